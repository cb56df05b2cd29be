"""Why there was nothing to land, in a person's words."""

from collections.abc import Collection

from orchard.core.sides import SIDES


def nothing_to_land(*, changed: bool, resolvers: Collection[str]) -> str:
    """Why a result is what the target holds already.

    `changed`: a job has changed a file; `resolvers`: who resolved conflicts of the plan.
    """
    if not changed:
        return "the jobs changed nothing"
    if any(one in SIDES for one in resolvers):
        return "what the jobs changed was dropped where conflicts were resolved"
    if resolvers:
        return "the branch already holds what is left of the jobs' changes after conflicts were resolved"
    return "the branch already holds the result of the jobs' changes"
