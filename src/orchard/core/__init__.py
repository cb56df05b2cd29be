"""Pure decisions: values in, values out, with no clock, disk, process or event loop.

A `Run` is the replay of a plan's events and nothing else. `states` says how a job may move, in one table; `records`
is what is remembered of jobs, attempts, turns and subtasks; `replay` says what each event means for them;
`scheduler` picks the jobs to start. So a restart, a second terminal and a test with events in any order all see the
same run.
"""
