"""Git, not jobs.

`command` is the one place that starts git, and `refs` the one way in which refs move. Folders to work in and what
becomes of them are in `worktree`, merges that never touch a checkout in `merge`, and the one place that moves a branch
of the user's in `landing`. `objects` reads and writes without a process for each object.

Three rules hold throughout. What a job wrote is hostile: no filter, hook or configuration of its runs. Before anything
is removed it is saved under a ref and read back. Every step can die anywhere: what it was about to do stands on disk.
"""
