"""Orchard for models, over the Model Context Protocol.

`tools` has what can be called, `toolbox` all of it in one box, and `selection` what a host is offered of it. Calls that
are nearly right are put right and told (`argument_fixes`, `aliases`). `server` speaks the protocol, and `relay` is the
small process between a host and the daemon.
"""
