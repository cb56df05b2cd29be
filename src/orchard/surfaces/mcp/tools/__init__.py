"""Tools: most derived whole from the table of operations, the rest with a renderer of their own."""
