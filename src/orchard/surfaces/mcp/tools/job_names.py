"""Jobs that are named by what people call them: in `needs`, where the plan's parser takes ids only."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchard.model.events.plans import Json
from orchard.model.plan import Job
from orchard.text import quoted

_DEEP = 8


def full_ids(value: Json) -> dict[str, str | None]:
    """The full ids of the jobs in a plan, or in a list of jobs, with the names that people see."""
    return {
        f"{group}/{job['id']}" if group else job["id"]: job.get("name")
        for job, group in _jobs(value)
        if isinstance(job.get("id"), str)
    }


def names_in(jobs: Iterable[Job]) -> dict[str, str | None]:
    """The same of jobs that a plan has."""
    return {job.id: job.name for job in jobs}


def with_ids(value: Json, known: Mapping[str, str | None]) -> list[str]:
    """Put the id in the place of each name that only one job has; a word that is an id stays what it is."""
    notes = []
    for job, _ in _jobs(value):
        needs = job.get("needs")
        given = needs if isinstance(needs, list) else [needs]
        found = [id_of(need, known) if isinstance(need, str) else need for need in given]
        if found != given:
            changed = [(old, new) for old, new in zip(given, found, strict=True) if old != new]
            notes += [f"needs: {quoted(old)} was taken to mean job '{new}'." for old, new in changed]
            job["needs"] = found
    return notes


def id_of(word: str, known: Mapping[str, str | None]) -> str:
    """The full id of the one job with this name; the word itself where it is an id, or where nothing is clear."""
    if word in known or any(full.rpartition("/")[2] == word for full in known):
        return word
    wanted = word.strip().casefold()
    same = [full for full, name in known.items() if isinstance(name, str) and name.strip().casefold() == wanted]
    return same[0] if len(same) == 1 else word


def _jobs(value: Any, group: str = "", depth: int = 0) -> Iterator[tuple[Json, str]]:
    """Every job that can be read, with its group; what cannot be read is left to the parser."""
    if not isinstance(value, dict) or depth > _DEEP:
        return
    for job in _list(value.get("jobs")):
        if isinstance(job, dict):
            own = job.get("group")
            yield job, group or (own if isinstance(own, str) else "")
    for inner in _list(value.get("groups")):
        name = inner.get("name") if isinstance(inner, dict) else None
        if isinstance(name, str):
            yield from _jobs(inner, f"{group}/{name}" if group else name, depth + 1)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
