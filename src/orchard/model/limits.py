"""The limits of what a plan may hold, in one place for parser, schema and documentation."""

PLAN_BYTES = 2 * 1024 * 1024
STRING_BYTES = 256 * 1024
NESTING = 64
JOBS = 10_000
NEEDS_PER_JOB = 200
NAME_LENGTH = 200
CHECKS_PER_JOB = 100
SETUP_WORKS = 100
MAX_PARALLEL = 1024
RESHAPE_CHANGES = 1000
BUDGET_TOKENS = 10**15

JOB_ID_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"

RELANDINGS = 5
"""How often the validation job starts over because the target moved under it."""
