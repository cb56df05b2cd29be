"""A journal that an earlier version wrote is read to the documents that the earlier version made of it."""

import gzip
import json
from typing import Any

import pytest
from tools.journal_fixture import documents, fixtures

from orchard.model.events.plans import decode, encode, event_types


def plans() -> list[Any]:
    found: list[Any] = []
    for path in fixtures():
        with gzip.open(path, "rt") as file:
            found += [json.loads(line) for line in file]
    return found


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: str(plan["events"][0][0]))
def test_a_plan_of_an_earlier_version_is_read_to_the_same_documents(plan: Any) -> None:
    now = json.loads(json.dumps(documents(plan["events"])))

    assert as_far_as_known(now, plan["documents"]) == in_words_of_today(plan["documents"])


def in_words_of_today(known: Any) -> Any:
    """Sentences for people name the phases otherwise since; the ids of the phases are as they were."""
    text = json.dumps(known)
    for phase, shown in (("merge-fi", "preparing"), ("merge-ri", "merging")):
        text = text.replace(f"failed in {phase}:", f"failed in {shown}:")
    return json.loads(text)


def as_far_as_known(now: Any, known: Any) -> Any:
    """A document without the fields that it has gained since."""
    if isinstance(now, dict) and isinstance(known, dict):
        return {name: as_far_as_known(value, known[name]) for name, value in now.items() if name in known}
    if isinstance(now, list) and isinstance(known, list) and len(now) == len(known):
        return [as_far_as_known(one, other) for one, other in zip(now, known, strict=True)]
    return now


def test_an_event_of_an_earlier_version_is_written_as_it_was() -> None:
    for plan in plans():
        for _, _, name, body in plan["events"]:
            written = encode(decode(name, body))
            assert written[0] == name
            assert json.loads(body).items() <= json.loads(written[1]).items()


def test_the_fixture_holds_every_kind_of_event() -> None:
    known = {name for plan in plans() for _, _, name, _ in plan["events"]}

    assert event_types().keys() - known == {"PlanPurged"}, "which is told to those who follow, and kept nowhere"
    assert sum(path.stat().st_size for path in fixtures()) < 300_000
