"""The tools of the built-in agent, one module for each thing that they touch."""
