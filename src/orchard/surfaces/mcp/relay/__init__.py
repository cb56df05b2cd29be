"""`orchard mcp`: the small process between a host and the daemon; nothing heavy is imported here."""
