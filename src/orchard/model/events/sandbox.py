"""Facts about the wall around a plan's programs."""

from typing import Literal

from orchard.model.events.event import PhaseFact, PlanEvent
from orchard.model.sandbox import Level


class SandboxAsked(PlanEvent, frozen=True):
    """Who let the plan go on, or gave it work, asks for another wall than it had; it is built for the next program."""

    sandbox: Level


class SandboxSet(PlanEvent, frozen=True):
    """Another wall than before stands around the plan's programs from here on: another one was asked for."""

    sandbox: str
    limits: tuple[str, ...] = ()


class SandboxRefused(PhaseFact, frozen=True):
    """The wall kept a program from something; told at the 1st, 10th, 100th ... time."""

    kind: Literal["network", "file", "limit"]
    name: str
    """A host and port, a path, or what is limited."""
    reason: str
    """One word: `not-listed`, `network-off`, `private`, `loopback`, `hidden`, `read-only`, ..."""
    setting: str | None = None
    """The line of the configuration or the plan that opens exactly this; None: no line does."""
    count: int = 1
    subtask: str | None = None
    program: str | None = None
    """Who was kept from it, as far as it can be told."""
    how: str | None = None
    """The same line with the place where it belongs, fit to what stands there."""
