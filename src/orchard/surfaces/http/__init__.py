"""The HTTP API, the dashboard's files and the daemon that serves both.

`operations` is the table of routes, derived from the table of what can be asked; `api` answers them, `openapi`
describes them, and `events` tells what happens under the numbers of the journal.
"""
