"""One place through which all agents of a process call their models, so that they wait together and not in turn.

Calls that count against the same limit share a lane. When the owner of a model says "not now" to one of them, the whole
lane is held, and those who wait start one after the other when it opens. What may pass is tried again here, with a
growing pause; what does not pass goes on to the caller as it is. Waiting is visible, bounded, and ends at once when
the caller is canceled.
"""

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache

from msgspec import Struct

from orchard.agents.builtin.model import ModelError, Pace, Reply
from orchard.agents.protocol import TRANSIENT

TRIES = 6
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
LONGEST_WAIT = 120.0
"""Seconds that a call waits for its turn; an owner who asks for more is told on instead, and the turn ends."""
MOST_TRUSTED_RESET = 60.0
"""A header that says so holds a lane for this long at most: its clock may be another than ours."""
SPREAD = 0.1
"""Seconds between the starts of those who waited."""
WORTH_TELLING = 1.0

Note = Callable[[str], None]


class _Lane(Struct):
    opens: float = 0.0
    """Nothing starts before."""
    next: float = 0.0
    """When the next of those who wait may start."""
    left: int | None = None
    """Requests that may still start before `resets`."""
    resets: float = 0.0
    under_way: int = 0


class Governor:
    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._lanes: dict[str, _Lane] = {}

    async def reply(self, lane: str, ask: Callable[[], Awaitable[Reply]], note: Note) -> Reply:
        place = self._lanes.setdefault(lane, _Lane())
        tried = 0
        while True:
            tried += 1
            await self._turn(place, note)
            try:
                return await self._ask(place, ask)
            except ModelError as error:
                pause = self._pause(error, tried)
                if pause is None:
                    raise
                note(f"{_sentence(error.message)} Trying again in {pause:.0f} s (try {tried + 1} of {TRIES}).")
                alone = error.reason == "network"
            if alone:
                await self._sleep(pause)
            else:
                # Its owner has too much to do: the others of the lane would only hear the same.
                place.opens = max(place.opens, self._clock() + pause)

    async def _ask(self, place: _Lane, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        place.under_way += 1
        try:
            reply = await ask()
            self._learn(place, reply.pace)
            return reply
        except ModelError as error:
            self._learn(place, error.pace)
            raise
        finally:
            place.under_way -= 1

    def _pause(self, error: ModelError, tried: int) -> float | None:
        """Seconds until the next try; None if there should be none."""
        if error.reason not in TRANSIENT or error.final or tried == TRIES:
            return None
        pause = float(min(FIRST_PAUSE * 2 ** (tried - 1), LONGEST_PAUSE))
        pause *= 1 + self._chance() / 2
        if error.retry_after is not None:
            pause = max(error.retry_after, 0.0) + self._chance() / 2
        return pause if pause <= LONGEST_WAIT else None

    async def _turn(self, place: _Lane, note: Note) -> None:
        begun = self._clock()
        told = False
        while True:
            now = self._clock()
            opens = place.opens
            if place.left is not None and place.left <= 0 and place.resets > now:
                opens = max(opens, place.resets)
            if now >= opens:
                break
            at = max(opens, place.next)
            if at - begun > LONGEST_WAIT:
                raise ModelError(
                    "rate-limit",
                    "The provider limits the rate, and the model cannot be asked yet.",
                    retry_after=at - now,
                )
            place.next = at + SPREAD
            if not told and at - now >= WORTH_TELLING:
                told = True
                note(f"Waiting {at - now:.0f} s for the model: the provider limits the rate.")
            await self._sleep(at - now)
        if place.left is not None:
            place.left -= 1

    def _learn(self, place: _Lane, pace: Pace | None) -> None:
        """Take in what the owner says; calls that are under way are not in its count yet."""
        if pace is None:
            return
        place.left = pace.left - (place.under_way - 1)
        place.resets = self._clock() + min(pace.reset, MOST_TRUSTED_RESET)


@cache
def shared_governor() -> Governor:
    return Governor()


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


# ------------------------------------------------------------------------------------ what headers say

_LIMITS = ("requests", "tokens", "input-tokens", "output-tokens")
_PARTS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|h|m|s)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def pace_of(headers: Mapping[str, str]) -> Pace | None:
    """What the headers of an answer say about limits, in either vendor's words: the tightest of them."""
    found: list[Pace] = []
    for limit in _LIMITS:
        for left, reset in (
            (f"anthropic-ratelimit-{limit}-remaining", f"anthropic-ratelimit-{limit}-reset"),
            (f"x-ratelimit-remaining-{limit}", f"x-ratelimit-reset-{limit}"),
        ):
            number, seconds = _number(headers.get(left)), _until(headers.get(reset))
            if number is None or seconds is None:
                continue
            # How many calls so many tokens are good for is not known; none are good for none.
            if limit == "requests" or number <= 0:
                found.append(Pace(int(number), seconds))
    return min(found, key=lambda pace: pace.left, default=None)


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer asks us to wait: as a number, or as a date."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    given = headers.get("retry-after")
    if (seconds := _number(given)) is not None:
        return seconds
    try:
        return None if given is None else max(0.0, (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < 1e9 else None


def _until(text: str | None) -> float | None:
    """Seconds until a moment that is given as a date, as `6m0.5s`, or as a number of seconds."""
    if text is None or (number := _number(text)) is not None:
        return None if text is None else number
    parts = _PARTS.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, (moment - datetime.now(UTC)).total_seconds()) if moment.tzinfo is not None else None
