"""Being the one engine of a repository, or finding it: a lock, a socket and a note that says where it is.

`start` takes the lock or joins who holds it; `session` is what a surface gets either way. `address` is the note,
`server` the socket and both sides of a connection, `crowd` keeps those who only stand there from taking all of it.
"""
