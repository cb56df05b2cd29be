"""A run as documents: what every surface shows, made in one place.

`documents` and `figures` are the types, whose fields are promised to other programs. `plans`, `attempts`, `workers`
and `usage` make them of a run; `graph` draws it; `events` shows what happened. A document is whole, or what changed
since an event, and costs what changed: what is shown of a job is kept until something happens to that job.
"""
