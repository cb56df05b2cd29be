"""The one way out of a job that has no network of its own: an HTTP proxy in the engine's event loop.

A job reaches one door (`doors.py`), which only this job has: a listener inside of its network namespace (`nets.py`), or
a port that asks for a token. A connection to it (`visits.py`) asks for something (`heads.py`, `bodies.py`) that is
judged by name (`allowed.py`). Then the name is resolved by us, each address is judged (`addresses.py`), and the
connection goes to the very address that was judged (`dialer.py`): a name that answers differently the second time is
not asked a second time. A redirect is a new request through the same door. Keys never enter a job: `routes.py` adds
them on the way to the one endpoint they belong to. What was refused is told once, and counted (`refusals.py`).

What it does not stop: of https it sees host and port only, so a job can speak to any site that an allowed host serves
as well, and can carry away what it has read to a host that is allowed.
"""
