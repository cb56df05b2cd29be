"""Text to a plan, with every problem at once and at its place.

`document` reads YAML, JSON and TOML into values, within limits; `places` and `yaml` help it. `fields` is the one
list of what may be written, for checking, JSON Schema and documentation; `rules` are the rules of single values,
`forms` the names and forms that are understood, and `problems` puts what pydantic finds into words. `given` reads a
plan that has no problem without pydantic, by what is written from `fields` into `checks`. `parse` makes the plan.
`reshape` changes the graph of one that is under way, and `works` finds what a plan has agents and programs do. Nothing
here touches a disk.
"""
