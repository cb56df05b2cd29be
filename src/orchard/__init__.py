"""Orchard runs a plan of jobs in parallel git worktrees, merges them in memory and lands the result."""

__version__ = "0.1.0"
