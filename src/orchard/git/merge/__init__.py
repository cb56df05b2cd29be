"""Merges in memory: `merge` makes them, `account` proves that no path was lost, and conflicts are values."""
