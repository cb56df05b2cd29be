"""Git's objects, read and written without a process for each; what jobs wrote comes in through a quarantine."""
