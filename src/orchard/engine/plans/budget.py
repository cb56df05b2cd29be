"""Budgets of time, tokens and money: a warning when most of one is used, a pause when all of it is."""

import asyncio
from collections.abc import Callable, Iterable, Iterator

from orchard.core.run import Run
from orchard.model.events.plans import BudgetWarned, Event, PlanPaused
from orchard.model.plan import PlanId

WARN_AT = 0.8
"""The part of a budget after which a person is warned."""


class Budgets:
    """A timer for each plan that has minutes left; what it finds is recorded like any other fact."""

    def __init__(self, record: Callable[[PlanId, Event], int], clock: Callable[[], float]) -> None:
        self._record, self._clock = record, clock
        self._timers: dict[PlanId, asyncio.TimerHandle] = {}

    def watch(self, runs: Iterable[Run]) -> None:
        loop = asyncio.get_running_loop()
        for run in runs:
            minutes = run.plan.budget.minutes
            if minutes is None or run.id in self._timers or not run.is_active or run.paused is not None:
                continue
            left = 60 * minutes * (1.0 if "minutes" in run.budget_warned else WARN_AT) - self._used(run)
            self._timers[run.id] = loop.call_later(max(0.0, left), self._reached, run)

    def check(self, run: Run) -> None:
        """Act on what agents have used: tokens and cost have no timer, they are looked at when something was used."""
        for kind, used, limit in _spent(run):
            if used >= limit:
                if run.paused is None or not run.paused.waiting:
                    self._record(run.id, PlanPaused(used_up(kind, limit), waiting=True))
            elif used >= WARN_AT * limit and kind not in run.budget_warned:
                self._record(run.id, BudgetWarned(kind, round(used, 6), limit))

    def used_up(self, run: Run) -> str | None:
        """Why no agent of the plan may call its model again, if that is so."""
        minutes = run.plan.budget.minutes
        if minutes is not None and self._used(run) / 60 >= minutes:
            return used_up("minutes", minutes)
        return next((used_up(kind, limit) for kind, used, limit in _spent(run) if used >= limit), None)

    def forget(self, plan: PlanId) -> None:
        if (timer := self._timers.pop(plan, None)) is not None:
            timer.cancel()

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _used(self, run: Run) -> float:
        return run.active_seconds(self._clock()) - run.budget_from

    def _reached(self, run: Run) -> None:
        del self._timers[run.id]
        minutes = run.plan.budget.minutes
        if minutes is None or not run.is_active or run.paused is not None:
            return
        used = self._used(run) / 60
        if used >= minutes:
            self._record(run.id, PlanPaused(used_up("minutes", minutes), waiting=True))
        elif used >= WARN_AT * minutes and "minutes" not in run.budget_warned:
            self._record(run.id, BudgetWarned("minutes", round(used, 3), minutes))
        # Recording wakes the engine, which sets the next timer.
        self.watch([run])


def used_up(kind: str, limit: float) -> str:
    amount = f"${limit:g}" if kind == "cost" else f"{limit:,.10g} {kind}"
    return f"The budget of {amount} is used up."


def _spent(run: Run) -> Iterator[tuple[str, float, float]]:
    """What of each budget is used since a person last let the plan go on: kind, used, limit."""
    budget, (tokens, cost) = run.plan.budget, run.used_before
    if budget.tokens is not None:
        yield "tokens", run.used_tokens - tokens, budget.tokens
    if budget.cost is not None:
        yield "cost", run.used_cost - cost, budget.cost
