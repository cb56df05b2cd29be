"""Figures as people and programs read them: a table in Markdown, and a document."""

from collections.abc import Mapping, Sequence

from msgspec.structs import asdict

from orchard.bench.rounds import Report, Row

DIGITS = 4


def document(facts: Mapping[str, object], reports: Mapping[str, Report]) -> dict[str, object]:
    """Everything that was found: facts, rows, scaling lines and the figures of each round."""
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
    """Markdown, so that it can go into a page as it is."""
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
    """A figure with its unit, in as many digits as mean something."""
    shown = f"{value:,.0f}" if value >= 100 or unit == "" else f"{value:.3g}"
    return f"{shown} {unit}".rstrip()
