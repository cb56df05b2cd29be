"""Programs, not plans.

`launcher` makes every process of a job, and `program` runs one from its start to the end of everything it started.
`families` finds and ends what a program left running, `sandbox` builds the wall around it, and `proxy` is its one way
out to the network. `failpoint` is where tests make us die.
"""
