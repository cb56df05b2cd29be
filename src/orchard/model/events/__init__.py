"""Every fact that can happen: the words of the journal.

`event` has the kinds, `plans`, `agents` and `subtasks` the facts, and `plans` also gives all of them their codec and
their names. An event is named in the past tense, is never taken back, and means to a run what `core.replay` says.
"""
