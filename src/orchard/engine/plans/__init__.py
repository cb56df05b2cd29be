"""What an engine keeps about the plans that it runs: those in memory, the commits they mean, their budgets."""
