"""Settings: several layers, checked against one table.

`keys` is the table and `rows` its tables of agents and servers; `kinds` says what a value may be. `layers` puts
flags, environment, repository and user on top of the defaults and remembers where each value comes from. `load`
reads the files, and `trust` remembers what of a repository's file the user has agreed to: until then it neither
runs nor loosens anything.
"""
