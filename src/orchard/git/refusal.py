"""What a landing or an undo says when it changed nothing."""

from typing import Literal

from orchard.frozen import frozen

RefusalKind = Literal["moved", "checkout", "operation", "missing", "locked"]


@frozen
class LandingRefused:
    """Nothing was changed, and why."""

    kind: RefusalKind
    reason: str
    hint: str
