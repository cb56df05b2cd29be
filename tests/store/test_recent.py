"""Readers in the process that writes are told the newest events from memory: nobody may notice."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from orchard.model.events.plans import PlanCanceled, Recorded, Warned
from orchard.model.plan import PlanId
from orchard.store import reader as recent
from orchard.store.journal import Journal
from orchard.store.reader import Recent, read

A, B = PlanId("a-aaaaa"), PlanId("b-bbbbb")


def some(first: int, last: int, plan: PlanId = A) -> list[Recorded]:
    return [Recorded(seq, 0.0, plan, Warned(str(seq))) for seq in range(first, last + 1)]


def numbers(found: list[Recorded] | None) -> list[int] | None:
    return None if found is None else [one.seq for one in found]


def test_what_came_later_is_known() -> None:
    newest = Recent()
    newest.add(some(5, 7))
    newest.add([*some(8, 8, B), *some(9, 9)])
    assert numbers(newest.since(4)) == [5, 6, 7, 8, 9]
    assert numbers(newest.since(7)) == [8, 9]
    assert numbers(newest.since(7, A)) == [9]
    assert numbers(newest.since(9)) == []


def test_what_is_older_than_the_memory_is_not_known() -> None:
    newest = Recent()
    assert newest.since(0) is None
    newest.add(some(5, 7))
    assert newest.since(3) is None
    newest.add(some(8, 8 + recent.KEPT))
    assert newest.since(7) is None
    assert numbers(newest.since(8)) == list(range(9, 9 + recent.KEPT))


@pytest.mark.anyio
async def test_a_reader_gets_the_same_from_memory_as_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal.open(path) as journal:
        for number in range(50):
            journal.append(A if number % 3 else B, Warned(f"é {number}"), 1.5 + number)
        journal.append(B, PlanCanceled("enough"), 99.0)
        await journal.durable()
        from_file, from_memory = read(path), read(path)
        from_memory.recent = journal.recent
        for plan in (None, A, B):
            for since in (0, 1, 17, 50, 51):
                for limit in (None, 1, 5):
                    assert list(from_memory.events(plan, since, limit)) == list(from_file.events(plan, since, limit))
        assert journal.recent.since(0) is not None, "the memory was asked"
        from_file.close()
        from_memory.close()


@pytest.mark.anyio
async def test_only_what_is_durable_is_remembered(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.db") as journal:
        journal.append(A, Warned("first"), 1.0)
        await journal.durable()
        with journal.together():
            journal.append(A, Warned("second"), 2.0)
            time.sleep(0.05)  # noqa: ASYNC251 - what is written meanwhile would be written too early
            assert numbers(journal.recent.since(0)) == [1]
        await journal.durable()
        assert numbers(journal.recent.since(0)) == [1, 2]


@pytest.mark.anyio
async def test_what_was_purged_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal.open(path) as journal:
        journal.append(A, Warned("first"), 1.0)
        journal.append(B, Warned("second"), 2.0)
        await journal.durable()
        await asyncio.to_thread(journal.forget, A)
        reader = read(path)
        reader.recent = journal.recent
        assert [one.plan for one in reader.events()] == [B]
        reader.close()


@pytest.mark.anyio
async def test_nobody_is_told_of_an_event_that_cannot_be_read_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    go_on = threading.Event()
    with Journal.open(path) as journal:
        journal.append(A, Warned("first"), 1.0)
        await journal.durable()
        remember = journal.recent.add
        monkeypatch.setattr(journal.recent, "add", lambda events: (go_on.wait(10), remember(events)))
        journal.append(A, Warned("second"), 2.0)
        other, own = read(path), read(path)
        own.recent = journal.recent
        while other.last_seq() < 2:  # noqa: ASYNC110 - until it is in the file, though not yet in memory
            await asyncio.sleep(0.001)

        newest, events = own.last_seq(), list(own.events())

        go_on.set()
        await journal.durable()
        assert newest == events[-1].seq
        assert own.last_seq() == 2
        own.close()
        other.close()
