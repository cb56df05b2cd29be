"""What a landing or an undo says when it changed nothing."""

from typing import Literal

from msgspec import Struct

from orchard.errors import Hint

RefusalKind = Literal["moved", "checkout", "operation", "missing", "locked"]


class LandingRefused(Struct, frozen=True):
    kind: RefusalKind
    reason: str
    hint: Hint
