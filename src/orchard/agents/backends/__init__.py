"""Coding agents of other vendors: one module, one value and one line in a dictionary each.

A backend says how its command line and environment are built, and reads its event stream into our vocabulary. The last
event of the stream decides between success and failure, not the exit code alone.
"""
