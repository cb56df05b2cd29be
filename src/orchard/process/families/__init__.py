"""Everything that one started program has left running: who belongs to it, what it uses, and how it ends."""
