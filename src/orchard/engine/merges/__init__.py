"""Merging what jobs need, in memory: `gather` makes the commit that a job starts from.

The same commits give the same merge, so `memory` may keep what was made and decided, and forget it at any time.
`authorship` finds the jobs behind a conflict.
"""
