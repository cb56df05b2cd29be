"""Waiting for models: together, visibly, and with an end. The clock is the test's own."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

import pytest

from orchard.agents.builtin.governor import (
    LONGEST_WAIT,
    TRIES,
    Governor,
    pace_of,
    retry_after_of,
    shared_governor,
)
from orchard.agents.builtin.model import ModelError, Pace, Reply
from orchard.agents.protocol import Reason
from orchard.testing import says

pytestmark = pytest.mark.anyio


class Clock:
    """Time that passes only when everybody waits for it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        event = asyncio.Event()
        self._sleepers.append((self.now + seconds, event))
        await event.wait()

    async def run(self, *work: Awaitable[object]) -> list[object]:
        """Do all of it, and let time go on to the next who wakes up whenever nothing else happens."""
        gathered = asyncio.gather(*work, return_exceptions=True)
        for _ in range(100_000):
            for _ in range(20):
                await asyncio.sleep(0)
            if gathered.done():
                return list(gathered.result())
            self._sleepers.sort(key=lambda one: one[0])
            at, event = self._sleepers.pop(0)
            self.now = max(self.now, at)
            event.set()
        raise AssertionError("it never ends")


class Server:
    """Answers by a script, and remembers when it was asked."""

    def __init__(self, clock: Clock, *answers: Reply | ModelError) -> None:
        self.clock, self.answers = clock, list(answers)
        self.asked: list[float] = []

    async def __call__(self) -> Reply:
        self.asked.append(self.clock.now)
        answer = self.answers.pop(0) if self.answers else says("ok")
        if isinstance(answer, ModelError):
            raise answer
        return answer


@pytest.fixture
def clock() -> Clock:
    return Clock()


def governed(clock: Clock) -> Governor:
    return Governor(clock, clock.sleep, lambda: 0.0)


def busy(reason: Reason = "overloaded", retry_after: float | None = None, **more: bool) -> ModelError:
    return ModelError(reason, f"scripted {reason}", retry_after=retry_after, **more)  # type: ignore[arg-type]


async def asks(governor: Governor, ask: Callable[[], Awaitable[Reply]], notes: list[str], lane: str = "a") -> Reply:
    return await governor.reply(lane, ask, notes.append)


@pytest.mark.parametrize("reason", ["overloaded", "network", "rate-limit"])
async def test_what_may_pass_is_tried_again_with_growing_pauses_and_visibly(clock: Clock, reason: Reason) -> None:
    server, notes = Server(clock, busy(reason), busy(reason), busy(reason)), list[str]()

    (reply,) = await clock.run(asks(governed(clock), server, notes))

    assert isinstance(reply, Reply)
    assert [at - 1000 for at in server.asked] == pytest.approx([0, 1, 3, 7])
    assert notes[0] == f"scripted {reason}. Trying again in 1 s (try 2 of 6)."


async def test_what_does_not_pass_goes_on_to_the_caller_after_so_many_tries(clock: Clock) -> None:
    server = Server(clock, *[busy() for _ in range(20)])

    (end,) = await clock.run(asks(governed(clock), server, []))

    assert isinstance(end, ModelError) and end.reason == "overloaded"
    assert len(server.asked) == TRIES


@pytest.mark.parametrize("reason", ["failed", "not-logged-in"])
async def test_what_will_not_pass_is_not_tried_again(clock: Clock, reason: Reason) -> None:
    server = Server(clock, busy(reason))

    (end,) = await clock.run(asks(governed(clock), server, []))

    assert isinstance(end, ModelError) and len(server.asked) == 1


async def test_an_owner_who_says_that_it_is_of_no_use_is_believed(clock: Clock) -> None:
    server = Server(clock, busy("rate-limit", final=True))

    (end,) = await clock.run(asks(governed(clock), server, []))

    assert isinstance(end, ModelError) and len(server.asked) == 1


async def test_the_wait_that_is_asked_for_is_kept(clock: Clock) -> None:
    server = Server(clock, busy("rate-limit", retry_after=40))

    await clock.run(asks(governed(clock), server, []))

    assert server.asked == [1000, 1040]


async def test_a_wait_that_is_too_long_is_told_on_at_once(clock: Clock) -> None:
    server, notes = Server(clock, busy("rate-limit", retry_after=3600)), list[str]()

    (end,) = await clock.run(asks(governed(clock), server, notes))

    assert isinstance(end, ModelError) and end.retry_after == 3600
    assert clock.now == 1000 and not notes


async def test_when_one_is_told_to_wait_all_of_its_lane_do_and_then_start_one_by_one(clock: Clock) -> None:
    governor, server, notes = governed(clock), Server(clock, busy("rate-limit", retry_after=30)), list[str]()
    begun = clock.now

    async def later() -> Reply:
        await asyncio.sleep(0)
        return await asks(governor, server, notes)

    ends = await clock.run(asks(governor, server, notes), *[later() for _ in range(20)])

    starts = sorted(server.asked[-20:])
    assert all(isinstance(end, Reply) for end in ends)
    assert starts[0] >= begun + 30
    assert all(second - first > 0.05 for first, second in pairwise(starts))
    assert starts[-1] < begun + 40
    assert any("Waiting 30 s" in note for note in notes)


async def test_another_lane_does_not_wait(clock: Clock) -> None:
    governor = governed(clock)
    held, free = Server(clock, busy("rate-limit", retry_after=30)), Server(clock)

    await clock.run(asks(governor, held, []), asks(governor, free, [], lane="b"))

    assert free.asked == [1000]


async def test_a_broken_connection_of_one_holds_nobody_else(clock: Clock) -> None:
    governor, broken, fine = governed(clock), Server(clock, busy("network")), Server(clock)

    async def later() -> Reply:
        await asyncio.sleep(0)
        return await asks(governor, fine, [])

    await clock.run(asks(governor, broken, []), later())

    assert broken.asked == [1000, 1001] and fine.asked == [1000]


async def test_no_more_calls_start_than_the_headers_leave_until_they_are_renewed(clock: Clock) -> None:
    governor = governed(clock)
    server = Server(clock, Reply(says("ok").message, "end_turn", says("ok").usage, pace=Pace(left=3, reset=20)))
    await clock.run(asks(governor, server, []))

    await clock.run(*[asks(governor, server, []) for _ in range(8)])

    assert server.asked.count(1000) == 4
    assert all(at >= 1020 for at in server.asked[4:])


async def test_a_header_with_a_wrong_clock_cannot_hold_us_for_long(clock: Clock) -> None:
    governor = governed(clock)
    server = Server(clock, Reply(says("ok").message, "end_turn", says("ok").usage, pace=Pace(left=0, reset=1e6)))
    await clock.run(asks(governor, server, []))

    await clock.run(asks(governor, server, []))

    assert server.asked[1] <= 1000 + 61


async def test_waiting_for_a_turn_ends_when_it_takes_too_long(clock: Clock) -> None:
    governor = governed(clock)
    always = [busy("rate-limit", retry_after=100) for _ in range(200)]
    server = Server(clock, *always)

    ends = await clock.run(*[asks(governor, server, []) for _ in range(10)])

    assert all(isinstance(end, ModelError) and end.reason == "rate-limit" for end in ends)
    assert clock.now - 1000 < LONGEST_WAIT * (TRIES + 1)


async def test_cancellation_ends_a_wait_at_once() -> None:
    governor, noted = Governor(), asyncio.Event()

    async def ask() -> Reply:
        raise busy("rate-limit", retry_after=60)

    waiting = asyncio.ensure_future(governor.reply("a", ask, lambda _: noted.set()))
    async with asyncio.timeout(30):
        await noted.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


def test_there_is_one_for_the_process() -> None:
    assert shared_governor() is shared_governor()


def test_headers_of_both_vendors_are_understood() -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()
    anthropic = {
        "anthropic-ratelimit-requests-remaining": "7",
        "anthropic-ratelimit-requests-reset": soon,
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": soon,
    }
    openai = {"x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1m0.5s"}

    found = pace_of(anthropic)

    assert found is not None and found.left == 0 and found.reset == pytest.approx(30, abs=5)
    assert pace_of(openai) == Pace(59, 60.5)


@pytest.mark.parametrize("bad", ["", "soon", "-5", "nan", "1e99", "9" * 400, "1m2x", "2026-01-01T00:00:00"])
def test_headers_that_make_no_sense_say_nothing(bad: str) -> None:
    assert pace_of({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": bad}) is None
    assert pace_of({"x-ratelimit-remaining-requests": bad, "x-ratelimit-reset-requests": "1s"}) is None
    assert retry_after_of({"retry-after": bad}) is None


def test_the_wait_may_be_given_in_three_ways() -> None:
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)

    assert retry_after_of({"retry-after": "1.5"}) == 1.5
    assert retry_after_of({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after_of({"retry-after": then}) == pytest.approx(90, abs=5)
    assert retry_after_of({}) is None
