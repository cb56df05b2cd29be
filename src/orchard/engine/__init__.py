"""The imperative shell: performs what `core` decides, and records what happened.

Before anything happens outside of the process its intent is on disk (`record`, then `durable`), and afterwards git
is asked whether it happened; recovery is the same question, asked later. `engine` has the one task group and the
loop. `attempt` runs a job through its `phases`, in a `workspace` from the `pool`; `snapshot`, `validation` and
`landing` bring the results to the user's branch. An expected failure is a value (`outcome`), never an exception.
The engine knows no listener: surfaces follow the journal.
"""
