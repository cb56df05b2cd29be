"""The command line.

`verbs` lists every verb, so that help and completion import none; `group` imports a verb when it is used, and `action`
makes most of it from its operation. `start` is the one place where errors become text and exit codes, and `terminal`
prints.
"""
