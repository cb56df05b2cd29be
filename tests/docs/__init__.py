"""The pages, as a reader uses them: every command that they show is run."""
