"""Graphs that only we measure, and the same for ninja."""

from pathlib import Path

from orchard.bench.plans import Graph, independent, job_name

WIDTH = 100
NEEDS = 3


def layered(jobs: int, width: int = WIDTH) -> Graph:
    """Layers of jobs, each of which needs three of the layer before it."""
    graph: Graph = {}
    for number in range(jobs):
        layer, place = divmod(number, width)
        above = [(layer - 1) * width + (place + step) % width for step in range(NEEDS)] if layer else []
        graph[job_name(number)] = [job_name(one) for one in dict.fromkeys(above)]
    return graph


def chain(jobs: int) -> Graph:
    """One job after the other."""
    return {job_name(number): [job_name(number - 1)] if number else [] for number in range(jobs)}


def joined(jobs: int, joins: int) -> Graph:
    """Jobs that need nothing, and some that need them all."""
    leaves = independent(jobs)
    return {**leaves, **{f"join{number:05}": list(leaves) for number in range(joins)}}


def write_ninja(path: Path, graph: Graph, command: str = "true") -> Path:
    """The same graph as a build file; what the command should make never exists, so all of it runs."""
    rows = [f"rule run\n  command = {command}\n"]
    rows += [f"build {job}: run{' ' if needs else ''}{' '.join(needs)}\n" for job, needs in graph.items()]
    path.write_text("".join(rows), "utf-8")
    return path
