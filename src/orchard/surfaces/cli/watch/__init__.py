"""`orchard watch`: plans on the whole screen, and what can be done about them by a key.

One thread for each repository reads the journal (`place.py`), woken by its growth, and makes documents of it
(`picture.py`); the pages of a job, its log, its diff and its details, are read on another one (`pages.py`), so that a
large diff holds nothing up. The loop only draws. It draws after every change, at most eight times a second, and once a
second while something runs; a line is drawn where it is seen, and sent to the terminal where it changed (`rows.py`).

Keys ask the engine for operations of the table (`actions.py`), as the verbs of the command line do, and what is refused
is said in the foot. Watching never becomes the engine of work: what goes on because of a key goes on in the engine that
runs, or in one in the background, and leaving ends nothing.

All text comes as `Line`s, whose pieces went through `safe`. No text is ever read as markup.

This package is the only one that imports textual, which is an extra: without it a plan is watched as a picture that
only moves (`commands.plans.watch`).
"""
