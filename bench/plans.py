"""The plans that are measured, and the same graphs for ninja."""

import json
from collections.abc import Iterator
from pathlib import Path

WIDTH = 100
NEEDS = 3

Graph = dict[str, list[str]]
"""What each job needs."""


def layered(jobs: int, width: int = WIDTH) -> Graph:
    """Layers of jobs, each of which needs three of the layer before it."""
    graph: Graph = {}
    for number in range(jobs):
        layer, place = divmod(number, width)
        above = [(layer - 1) * width + (place + step) % width for step in range(NEEDS)] if layer else []
        graph[_name(number)] = [_name(one) for one in dict.fromkeys(above)]
    return graph


def chain(jobs: int) -> Graph:
    """One job after the other."""
    return {_name(number): [_name(number - 1)] if number else [] for number in range(jobs)}


def independent(jobs: int) -> Graph:
    """Jobs that need nothing."""
    return {_name(number): [] for number in range(jobs)}


def _name(number: int) -> str:
    return f"j{number:05}"


def write_plan(path: Path, graph: Graph, *, parallel: int, work: str | None = None, changes: bool = True) -> Path:
    """A plan file of this graph, in the form that people write; `{job}` in the work stands for the job's id."""
    path.write_text("".join(_plan_lines(graph, parallel, work, changes)), "utf-8")
    return path


def _plan_lines(graph: Graph, parallel: int, work: str | None, changes: bool) -> Iterator[str]:
    yield f"name: bench\nbase: main\ntarget: landed\nmax_parallel: {parallel}\njobs:\n"
    for job, needs in graph.items():
        yield f"  - id: {job}\n"
        if needs:
            yield f"    needs: [{', '.join(needs)}]\n"
        if work is not None:
            yield f"    work: {json.dumps(work.format(job=job))}\n"
        if not changes:
            yield "    expects_no_changes: true\n"


def write_ninja(path: Path, graph: Graph, command: str = "true") -> Path:
    """The same graph as a build file; what the command should make never exists, so all of it runs."""
    rows = [f"rule run\n  command = {command}\n"]
    rows += [f"build {job}: run{' ' if needs else ''}{' '.join(needs)}\n" for job, needs in graph.items()]
    path.write_text("".join(rows), "utf-8")
    return path
