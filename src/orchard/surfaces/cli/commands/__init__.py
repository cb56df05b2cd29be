"""The verbs, by what they are about."""
