"""Ways in for people and programs: `cli`, `http` and `mcp`.

What can be asked stands in `operations`, once; a surface derives its verbs, routes and tools from there, and only
renders. `next_steps` writes a next step in the words of each surface.
"""
