"""The Agent Client Protocol: one client for every program that speaks it.

`conversation` leads a turn over the `lines` of a program, `updates` puts what it tells into our vocabulary,
`permission` answers what it asks, and `named` lists the programs that are known by name.
"""
