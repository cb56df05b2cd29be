"""A kernel wall around a program.

`policy` says as a value what a program may reach, and knows no kernel. `bwrap` and `landlock` make it true, with the
filter of `seccomp` and the limits of `resources`; `ground` finds out where the places of a policy really are, and
`scratch` puts the job's own temporary folder in the place of the machine's. `level` tries which wall can be built here,
and `spawn` is the one place that starts a program behind one.
"""
