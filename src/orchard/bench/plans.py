"""The plans that are measured."""

import json
from collections.abc import Iterator
from pathlib import Path

ONE_FILE = "echo {job} > orchard-bench-{job}.txt"

Graph = dict[str, list[str]]
"""What each job needs."""


def independent(jobs: int) -> Graph:
    return {job_name(number): [] for number in range(jobs)}


def job_name(number: int) -> str:
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
            yield "    changes: forbidden\n"
