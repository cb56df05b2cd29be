"""The journal while it is written: numbers, group commit, failure, forgetting."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.core.views.documents import bare_summary
from orchard.model.events.plans import PhaseStarted, PlanPaused, Recorded, Warned
from orchard.model.phases import Phase
from orchard.model.plan import JobId, PlanId
from orchard.process.failpoint import rearm
from orchard.store import journal as journal_module
from orchard.store.db import StoreError, open_database
from orchard.store.journal import Journal, JournalFailed
from orchard.store.plan_list import JOURNAL, PlanRow
from orchard.store.reader import JournalReader, read

pytestmark = pytest.mark.anyio

PLAN = PlanId("p1")
OTHER = PlanId("p2")


def row(plan: PlanId = PLAN, status: str = "running", said: str | None = None) -> PlanRow:
    summary = replace(bare_summary(plan, f"name of {plan}", status, 5.0), error=said)
    return PlanRow(plan, f"name of {plan}", 5.0, 0, status, False, summary)


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    rearm(None)


async def test_events_come_back_as_they_went_in(tmp_path: Path) -> None:
    started = PhaseStarted(JobId("a/b"), 2, Phase.WORK)
    with Journal.open(tmp_path / "journal.db") as journal:
        first = journal.append(PLAN, started, 10.5)
        second = journal.append(OTHER, PlanPaused("why", waiting=True), 11.0)
        async with asyncio.timeout(10):
            await journal.durable()

    with read(tmp_path / "journal.db") as reader:
        assert list(reader.events()) == [
            Recorded(first, 10.5, PLAN, started),
            Recorded(second, 11.0, OTHER, PlanPaused("why", waiting=True)),
        ]
        assert (first, second, reader.last_seq()) == (1, 2, 2)


async def test_numbers_go_on_after_reopening(tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        with Journal.open(tmp_path / "journal.db") as journal:
            assert journal.append(PLAN, PlanPaused(), 1.0) == expected


@pytest.mark.parametrize(
    "text", ["half a pair \udc80", "nul \0 and \x1b[31m", "line\nbreak", "\U0001f333 tree", '"];--']
)
async def test_text_from_anywhere_survives(tmp_path: Path, text: str) -> None:
    event = Warned(text)
    with Journal.open(tmp_path / "journal.db") as journal:
        journal.append(PLAN, event, 1.0, replace(row(said=text), name=text))

    with read(tmp_path / "journal.db") as reader:
        assert [found.event for found in reader.events()] == [event]
        assert [plan.summary.error for plan in reader.plans()] == [text]


async def test_what_is_awaited_is_in_the_file_when_the_wait_ends(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.db") as journal, read(tmp_path / "journal.db") as reader:
        for _ in range(20):
            seq = journal.append(PLAN, PlanPaused(), 1.0)
            async with asyncio.timeout(10):
                await journal.durable(seq)
            assert reader.last_seq() >= seq


async def test_events_that_arrive_during_a_commit_share_the_next_one(tmp_path: Path, disarmed: None) -> None:
    commits: list[int] = []
    with Journal.open(tmp_path / "journal.db") as journal:
        journal.on_commit(commits.append)
        rearm("journal.before-commit:1:sleep=0.3")
        journal.append(PLAN, PlanPaused(), 1.0)
        for _ in range(500):
            journal.append(PLAN, PlanPaused(), 1.0)
        async with asyncio.timeout(10):
            await journal.durable()

    assert commits[-1] == 501
    assert len(commits) <= 3


async def test_events_that_belong_together_share_a_commit_however_late_the_second_is(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.db") as journal:
        commits: list[int] = []
        journal.on_commit(commits.append)
        with journal.together():
            journal.append(PLAN, PlanPaused("first"), 1.0)
            threading.Event().wait(5 * journal_module.GATHER_SECONDS)
            journal.append(PLAN, PlanPaused("second"), 2.0)
        async with asyncio.timeout(10):
            await journal.durable()

    assert commits == [2]


async def test_commits_are_told_in_the_loop_until_unsubscribed(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    heard = asyncio.Event()

    def listen(seq: int) -> None:
        told.append((seq, threading.get_ident()))
        heard.set()

    with Journal.open(tmp_path / "journal.db") as journal:
        unsubscribe = journal.on_commit(listen, asyncio.get_running_loop())
        journal.append(PLAN, PlanPaused(), 1.0)
        async with asyncio.timeout(10):
            await heard.wait()
        unsubscribe()
        journal.append(PLAN, PlanPaused(), 1.0)
        async with asyncio.timeout(10):
            await journal.durable()

    assert told == [(1, threading.get_ident())]


async def test_a_wait_that_is_cancelled_harms_nobody(tmp_path: Path, disarmed: None) -> None:
    with Journal.open(tmp_path / "journal.db") as journal:
        rearm("journal.before-commit:1:sleep=0.2")
        journal.append(PLAN, PlanPaused(), 1.0)
        wait = asyncio.ensure_future(journal.durable())
        await asyncio.sleep(0)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        async with asyncio.timeout(10):
            await journal.durable()

        assert journal.durable_seq == 1


async def test_a_failed_commit_ends_the_journal_and_tells_everyone(tmp_path: Path, disarmed: None) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    safe = journal.append(PLAN, PlanPaused("safe"), 1.0)
    journal.flush()
    rearm("journal.before-commit:1:error")
    lost = journal.append(PLAN, PlanPaused("lost"), 1.0)

    async with asyncio.timeout(10):
        with pytest.raises(JournalFailed, match=r"after event 1: .*Input/output error"):
            await journal.durable(lost)
        with pytest.raises(JournalFailed):
            await journal.durable()
        await journal.durable(safe)
    for attempt in (
        lambda: journal.append(PLAN, PlanPaused(), 1.0),
        journal.flush,
        lambda: journal.forget(PLAN),
    ):
        with pytest.raises(JournalFailed):
            attempt()
    journal.close()

    with Journal.open(tmp_path / "journal.db") as again, read(tmp_path / "journal.db") as reader:
        assert [found.event for found in reader.events()] == [PlanPaused("safe")]
        assert again.append(PLAN, PlanPaused("again"), 2.0) == 2


async def test_a_failure_while_closing_is_not_swallowed(tmp_path: Path, disarmed: None) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    rearm("journal.before-commit:1:error")
    journal.append(PLAN, PlanPaused(), 1.0)

    with pytest.raises(JournalFailed):
        journal.close()


async def test_forgetting_during_a_failure_does_not_hang(tmp_path: Path, disarmed: None) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    rearm("journal.before-commit:1:error")

    async with asyncio.timeout(10):
        with pytest.raises(JournalFailed):
            await asyncio.to_thread(journal.forget, PLAN)
    journal.close()


async def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    journal.close()

    with pytest.raises(JournalFailed, match="is closed"):
        journal.append(PLAN, PlanPaused(), 1.0)


async def test_a_disk_that_is_far_behind_refuses_events_without_a_gap(
    tmp_path: Path, disarmed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "QUEUED_EVENTS", 50)
    with Journal.open(tmp_path / "journal.db") as journal:
        rearm("journal.before-commit:1:sleep=0.5")
        with pytest.raises(JournalFailed, match="events behind"):
            for _ in range(200):
                journal.append(PLAN, PlanPaused(), 1.0)
        last = journal.last_seq
        async with asyncio.timeout(10):
            await journal.durable()
        assert journal.append(PLAN, PlanPaused(), 1.0) == last + 1

    with read(tmp_path / "journal.db") as reader:
        assert [found.seq for found in reader.events()] == list(range(1, last + 2))


async def test_closing_leaves_one_file(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.db") as journal:
        for _ in range(100):
            journal.append(PLAN, PlanPaused(), 1.0)

    assert [path.name for path in tmp_path.iterdir()] == ["journal.db"]


async def test_the_row_of_a_plan_changes_with_its_events_but_keeps_its_birth(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.db") as journal:
        journal.append(OTHER, PlanPaused(), 1.0, row(OTHER))
        first = journal.append(PLAN, PlanPaused(), 1.0, row(said="0"))
        journal.append(PLAN, PlanPaused(), 2.0, replace(row(status="succeeded", said="3"), settled=True, created=99.0))

    with read(tmp_path / "journal.db") as reader:
        shown = row(status="succeeded", said="3").summary
        assert reader.plan(PLAN) == PlanRow(PLAN, "name of p1", 5.0, first, "succeeded", True, shown)
        assert reader.plan(PlanId("p3")) is None
        assert [plan.id for plan in reader.plans()] == [OTHER, PLAN]


async def test_a_forgotten_plan_is_gone_and_its_numbers_stay_used(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.db") as journal:
        journal.append(OTHER, PlanPaused(), 1.0, row(OTHER))
        for _ in range(3):
            journal.append(PLAN, PlanPaused(), 1.0, row())
        assert journal.forget(PLAN) == 3
        assert journal.forget(PlanId("never-seen")) == 0

    with Journal.open(tmp_path / "journal.db") as journal, read(tmp_path / "journal.db") as reader:
        assert [found.seq for found in reader.events()] == [1]
        assert [plan.id for plan in reader.plans()] == [OTHER]
        assert reader.last_seq() == 4
        assert journal.append(PLAN, PlanPaused(), 1.0) == 5


async def test_a_journal_of_an_older_version_keeps_its_events(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    older = replace(JOURNAL, steps=JOURNAL.steps[:1])
    with closing(open_database(path, older)) as connection:
        connection.execute("INSERT INTO events VALUES (7, 'p1', 1.0, 'PlanPaused', '{\"reason\": \"old\"}')")
    newer = replace(JOURNAL, steps=(*JOURNAL.steps, "ALTER TABLE plans ADD COLUMN extra TEXT"))

    open_database(path, newer).close()

    with closing(sqlite3.connect(path)) as found:
        assert found.execute("SELECT seq, body FROM events").fetchall() == [(7, '{"reason": "old"}')]
    with read(tmp_path / f"journal.db.v{JOURNAL.version}") as copy:
        assert [event.event for event in copy.events()] == [PlanPaused("old")]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("FutureEvent", "{}"),
        ("PlanPaused", '{"future_field": 1}'),
        ("PlanPaused", "{"),
        ("PhaseStarted", '{"job": "a"}'),
    ],
)
async def test_an_event_that_is_not_understood_is_named(tmp_path: Path, name: str, body: str) -> None:
    path = tmp_path / "journal.db"
    with closing(open_database(path, JOURNAL)) as connection:
        connection.execute("INSERT INTO events VALUES (1, 'p1', 1.0, ?, ?)", (name, body))

    with read(path) as reader, pytest.raises(StoreError, match=f"Event 1 .*'{name}'"):
        list(reader.events())


async def test_a_reader_of_a_missing_journal_is_empty_creates_nothing_and_finds_it_later(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    with read(path) as reader:
        assert (reader.plans(), list(reader.events()), reader.last_seq()) == ([], [], 0)
        assert list(tmp_path.iterdir()) == []

        with Journal.open(path) as journal:
            journal.append(PLAN, PlanPaused(), 1.0)

        assert reader.last_seq() == 1
    assert JournalReader.empty().plans() == []


async def test_events_can_be_asked_for_by_plan_place_and_number(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.db") as journal:
        for number in range(1300):
            journal.append(OTHER if number % 2 else PLAN, PlanPaused(), 1.0)

    with read(tmp_path / "journal.db") as reader:
        assert [found.seq for found in reader.events()] == list(range(1, 1301))
        assert [found.seq for found in reader.events(since=1290)] == list(range(1291, 1301))
        assert [found.seq for found in reader.events(limit=700)] == list(range(1, 701))
        assert [found.seq for found in reader.events(OTHER, since=2, limit=3)] == [4, 6, 8]
        assert list(reader.events(limit=0)) == []


async def test_a_slow_reader_does_not_keep_the_log_from_being_cut(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.db") as journal, read(tmp_path / "journal.db") as reader:
        for _ in range(1200):
            journal.append(PLAN, PlanPaused(), 1.0)
        journal.flush()
        half_way = reader.events()
        next(half_way)

        journal.close()

        assert not (tmp_path / "journal.db-wal").exists() or (tmp_path / "journal.db-wal").stat().st_size == 0
        assert sum(1 for _ in half_way) == 1199


async def test_a_thousand_plans_are_listed_in_one_small_question(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.db") as journal:
        for number in range(1000):
            plan = PlanId(f"plan-{number}")
            journal.append(plan, PlanPaused(), 1.0, row(plan, said="one of many"))

    with read(tmp_path / "journal.db") as reader:
        assert [plan.first_seq for plan in reader.plans()] == list(range(1, 1001))


async def test_where_the_second_of_two_events_cannot_happen_neither_does(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.db") as journal:
        journal.append(PLAN, Warned("before"), 1.0)
        with pytest.raises(ValueError, match="no"), journal.together():
            journal.append(PLAN, Warned("first"), 2.0)
            raise ValueError("no")
        seq = journal.append(PLAN, Warned("after"), 3.0)
        await journal.durable()

    found = [(one.seq, one.event) for one in read(tmp_path / "journal.db").events()]
    assert found == [(1, Warned("before")), (seq, Warned("after"))]


async def test_what_cannot_be_taken_in_has_no_number_and_is_not_written(tmp_path: Path) -> None:
    def refuse(recorded: Recorded) -> None:
        raise ValueError(f"not {recorded.seq}")

    with Journal.open(tmp_path / "journal.db") as journal:
        with pytest.raises(ValueError, match="not 1"):
            journal.append(PLAN, Warned("never"), 1.0, take_in=refuse)
        taken: list[int] = []
        journal.append(PLAN, Warned("one"), 2.0, take_in=lambda one: taken.append(one.seq))
        await journal.durable()

    assert taken == [1]
    assert [one.event for one in read(tmp_path / "journal.db").events()] == [Warned("one")]


async def test_an_event_for_which_there_is_no_room_is_not_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "QUEUED_EVENTS", 0)
    taken: list[Recorded] = []
    with Journal.open(tmp_path / "journal.db") as journal, pytest.raises(JournalFailed, match="behind"):
        journal.append(PLAN, Warned("never"), 1.0, take_in=taken.append)

    assert taken == []
