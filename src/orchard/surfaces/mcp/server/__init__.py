"""MCP on the wire: the SDK's server, the engine's door and the daemon's."""
