"""What a job needs in its worktree besides its commit: copies of ignored folders of the user's."""
