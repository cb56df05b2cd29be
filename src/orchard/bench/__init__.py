"""Measuring: what we take beside what bare scripts and git itself take for the same.

`rounds` runs both by turns and judges the figures, `floors` are the scripts, `parts` measures single parts of the
engine in this process, `own` measures on copies of the user's repository. `place` is the folder where all of it
happens, with a home of its own; `machine` says what was measured on. `make bench` uses the same modules from the
folder at the top.
"""
