"""Files that belong to other programs."""
