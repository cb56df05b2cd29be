"""Agents that a text describes, with the commands and skills that stand beside such texts."""
