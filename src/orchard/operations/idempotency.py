"""Keys by which a request to make a plan is known when it comes again, because its answer did not arrive."""

import json
import re
from collections.abc import Iterable
from hashlib import sha256

from orchard.core.run import Run
from orchard.errors import UsageError
from orchard.model.events.plans import Json
from orchard.model.plan import PlanId
from orchard.store.plan_list import PlanRow
from orchard.text import quoted

KEY_LENGTH = 200
KEY_PATTERN = "^[!-~]([ -~]*[!-~])?$"


def remembered_key(plan: Json, key: str | None, *, scaffolding: bool) -> Json | None:
    """What is remembered of a key: itself, and what was asked for with it."""
    if key is None:
        return None
    if len(key) > KEY_LENGTH or re.fullmatch(KEY_PATTERN, key) is None:
        raise UsageError(
            f"The idempotency key {quoted(key)} has another form than keys have.",
            hint=f"Give 1 to {KEY_LENGTH} printable ASCII characters, with no blank at either end.",
        )
    # A plan that starts at once is remembered as it always was, so that keys of older journals are known.
    asked = {"scaffolding": plan} if scaffolding else plan
    said = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return {"key": key, "digest": sha256(said.encode()).hexdigest()}


def plan_with(wanted: Json, runs: Iterable[Run], rows: Iterable[PlanRow]) -> PlanId | None:
    """The plan that was made with this key; a key that was used for another plan is refused."""
    keys = {row.id: row.summary.key for row in rows}
    keys.update((run.id, run.key) for run in runs)
    for found, given in keys.items():
        if given is None or given["key"] != wanted["key"]:
            continue
        if given != wanted:
            raise UsageError(
                f"The key '{wanted['key']}' was used for plan '{found}', which was asked for in another way.",
                hint="Use a new key for every plan; the same one only to ask for the same plan again.",
            )
        return found
    return None
