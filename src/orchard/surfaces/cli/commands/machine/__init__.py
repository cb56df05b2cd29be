"""Commands about this machine: agents, settings, servers, what is left behind."""
