"""The limits of what a plan may hold, for parser, schema and documentation; and those of one program."""

from msgspec import Struct

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


class Limits(Struct, frozen=True):
    """Seconds and bytes after which a program is stopped; None is no limit."""

    wall: float | None = None
    idle: float | None = None
    """No output and no CPU time for this long."""
    log_bytes: int = 1 << 30
    grace: float = 10.0
    """Between the request to end and the end by force."""
