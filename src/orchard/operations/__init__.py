"""The one list of what can be asked of Orchard.

An operation is declared once: its name, a sentence, typed arguments and a typed answer, an example, and where it can be
found: as an HTTP route, an MCP tool and a command, or the reason why not. Surfaces derive what they need from that.

A command changes something about a plan, in two halves. `prepare` looks at what takes time (can these agents be had?
what do the remotes hold?); it may wait, and it records nothing. `decide` says what happens: events and an answer, or a
refusal. It waits for nothing, and the handler records its events in the same breath, under the lock of the plan. So
what a decision looked at still holds when it is recorded, and two clients are never both told "done" for changes that
exclude each other. What was prepared may be out of date by then: `decide` compares it with the run, and asks for
another look by `Outdated`, or refuses.

What follows a decision (stopping programs, moving a branch, removing worktrees) is the engine's to do; `finish` says
what came of it.
"""
