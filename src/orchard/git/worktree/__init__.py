"""Folders to work in: made, looked at without running anything in them, committed, saved, and only then reset."""
