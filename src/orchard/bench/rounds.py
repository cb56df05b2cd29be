"""Rounds of measuring: floor and ours by turns, so that a busy moment of the machine hits both.

A measure has *sides*: each does its work once and returns figures by name. A round runs every side once, each
round beginning with another one. A bar compares figures: one of ours with a floor of the same round, or with a
fixed number. A ratio is taken within a round, and the median of these is what counts: two figures that were taken
minutes apart, on a machine that does other things as well, say nothing about each other.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from msgspec import Struct, field
from msgspec.structs import asdict

DIGITS = 4

Figures = Mapping[str, float]
Samples = dict[str, list[float]]
"""One value per round for each figure."""

Side = Callable[[], Figures]
Take = Callable[[Sequence[float]], float]
"""How the values of all rounds become one."""


class Bar(Struct, frozen=True):
    """What a figure, or with a floor the ratio of the two, must reach; without `most` and `least` it is only shown."""

    what: str
    ours: str
    floor: str | None = None
    most: float | None = None
    least: float | None = None
    unit: str = "s"
    take: Take = median
    beside: str | None = None
    """A figure to print as floor where the bar is a fixed number all the same."""


class Point(Struct, frozen=True):
    """One place on a scaling line: a size, and the figure that was measured there."""

    size: str
    figure: str


class Scaling(Struct, frozen=True):
    what: str
    points: tuple[Point, ...]
    unit: str = "ms"


class Measure(Struct, frozen=True):
    sides: tuple[Side, ...]
    bars: tuple[Bar, ...]
    scaling: tuple[Scaling, ...] = ()


class Row(Struct, frozen=True):
    measure: str
    what: str
    floor: float | None
    ours: float
    unit: str
    ratio: float | None
    bar: str
    ok: bool


class Report(Struct, frozen=True):
    rows: tuple[Row, ...]
    scaling: tuple[str, ...] = ()
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)


def _silent(_: int) -> None:
    """Say nothing about progress."""


def run_rounds(
    name: str,
    measure: Measure,
    rounds: int,
    settle: Callable[[], None] = os.sync,
    begin: Callable[[int], None] = _silent,
) -> Report:
    """What one side left to write is written before the next; `begin` is told the number of each round, from 1."""
    samples: Samples = {}
    for number in range(rounds):
        begin(number + 1)
        turn = number % len(measure.sides)
        for side in (*measure.sides[turn:], *measure.sides[:turn]):
            settle()
            for figure, value in side().items():
                samples.setdefault(figure, []).append(value)
    rows = tuple(judge(name, bar, samples) for bar in measure.bars)
    return Report(rows, tuple(_line(scaling, samples) for scaling in measure.scaling), samples)


def judge(measure: str, bar: Bar, samples: Samples) -> Row:
    ours = bar.take(samples[bar.ours])
    beside = bar.floor or bar.beside
    floor = median(samples[beside]) if beside is not None else None
    ratio = _ratio(samples[bar.ours], samples[bar.floor]) if bar.floor is not None else None
    value = ours if ratio is None else ratio
    ok = (bar.most is None or value <= bar.most) and (bar.least is None or value >= bar.least)
    return Row(measure, bar.what, floor, ours, bar.unit, ratio, _asked(bar), ok)


def _ratio(ours: Sequence[float], floor: Sequence[float]) -> float:
    return median(mine / bare for mine, bare in zip(ours, floor, strict=True))


def _asked(bar: Bar) -> str:
    sign, number = ("≤", bar.most) if bar.most is not None else ("≥", bar.least)
    if number is None:
        return ""
    return f"{sign} {number:g}×" if bar.floor is not None else f"{sign} {number:,g} {bar.unit}".rstrip()


def _line(scaling: Scaling, samples: Samples) -> str:
    points = [f"{point.size} {median(samples[point.figure]):.3g} {scaling.unit}" for point in scaling.points]
    return f"{scaling.what}: {', '.join(points)}"


# ------------------------------------------------------------------------------------- as people read it


def document(facts: Mapping[str, object], reports: Mapping[str, Report]) -> dict[str, object]:
    return {
        **facts,
        "rows": [_short(asdict(row)) for report in reports.values() for row in report.rows],
        "scaling": [line for report in reports.values() for line in report.scaling],
        "samples": {
            name: {key: [_significant(value) for value in values] for key, values in report.samples.items()}
            for name, report in reports.items()
        },
    }


def _short(row: dict[str, object]) -> dict[str, object]:
    return {key: _significant(value) if isinstance(value, float) else value for key, value in row.items()}


def _significant(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def table(rows: Sequence[Row], *, judged: bool) -> str:
    lines = ["| what | floor | ours | ratio | bar | |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for row in rows:
        verdict = ("ok" if row.ok else "MISS") if judged and row.bar else ""
        lines.append(f"| {row.what} | {floor(row)} | {ours(row)} | {ratio(row)} | {row.bar} | {verdict} |")
    return "\n".join(lines)


def floor(row: Row) -> str:
    return "" if row.floor is None else figure(row.floor, row.unit)


def ours(row: Row) -> str:
    return figure(row.ours, row.unit)


def ratio(row: Row) -> str:
    return "" if row.ratio is None else f"{row.ratio:.2f}×"


def figure(value: float, unit: str) -> str:
    shown = f"{value:,.0f}" if value >= 100 or unit == "" else f"{value:.3g}"
    return f"{shown} {unit}".rstrip()
