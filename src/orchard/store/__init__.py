"""SQLite and files.

`journal` holds every fact in one order, on disk before the engine acts on it; `reader` reads it in any process. Logs
are plain files that programs write themselves, and `redact` stands before everything that leaves one. `slots` counts
the jobs of a user over all processes.
"""
