"""Agents: what we add to a turn of a program, and fifty of our own at once."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.agents.llm import Call, Say, ScriptedLlm, steps

from bench.jobs import MEGABYTE, run_plan
from bench.repositories import QUICK, SMALL, make_repository
from orchard.bench.parts import MILLISECONDS
from orchard.bench.place import Bench
from orchard.bench.plans import ONE_FILE, independent, write_plan
from orchard.bench.rounds import Bar, Figures, Measure
from orchard.process.stopwatch import Broken, timed

FIRST_TURNS = 3

PROGRAM = """
cat > /dev/null
echo "$ORCHARD_JOB" > "made-by-$ORCHARD_JOB.txt"
echo "It is done."
"""
"""The least that an agent can do: hear its task, write a file, say so."""

BY_HAND = """
number=0
while [ "$number" -lt "$2" ]; do
    ORCHARD_JOB=$number sh "$1" < /dev/null > /dev/null
    number=$((number + 1))
done
"""


def agents(bench: Bench) -> Measure:
    """A turn of a program beside the same program by hand; and our own agent, fifty times at once."""
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    program, by_hand = bench.fresh("program.sh"), bench.fresh("by-hand.sh")
    program.write_text(PROGRAM)
    by_hand.write_text(BY_HAND)
    few, many, crowd = bench.size(5, 1), bench.size(45, 2), bench.size(50, 2)

    def hand() -> Figures:
        folder = bench.fresh("by-hand")
        folder.mkdir()
        used = timed(["sh", by_hand, program, str(many)], folder)
        return {"hand": MILLISECONDS * used.cpu / many}

    def ours() -> Figures:
        _configure(f"[agents.least]\ncommand = 'sh {program}'\n")
        used = {count: run_plan(bench, template, _plan(bench, "least", count, 2))[0].cpu for count in (few, many)}
        each = MILLISECONDS * (used[many] - used[few]) / (many - few)
        hand_ = hand()["hand"]
        return {"turn": each, "added": each - hand_}

    def together() -> Figures:
        with _model() as llm:
            used, _ = run_plan(bench, template, _plan(bench, "builtin", crowd, crowd))
            if len(llm.requests) < 2 * crowd:
                raise Broken(f"{crowd} agents asked only {len(llm.requests)} times")
        return {"memory": used.peak / MEGABYTE, "crowd": used.wall}

    alone = write_plan(bench.fresh("plan"), independent(1), parallel=1, work=ONE_FILE)

    def first() -> Figures:
        """What a run with one turn of our own agent uses more than one with a command: the least of several times."""
        times = range(bench.size(FIRST_TURNS, 1))
        command = min(run_plan(bench, template, alone)[0].cpu for _ in times)
        with _model():
            used = min(run_plan(bench, template, _plan(bench, "builtin", 1, 1))[0].cpu for _ in times)
        return {"command": command, "first": used - command}

    return Measure(
        (hand, ours, together, first),
        (
            Bar("turn of an agent, processor that we add", "added", most=250, unit="ms", beside="hand"),
            Bar(f"{crowd} built-in agents at once, memory", "memory", most=400, unit="MB", take=max),
            Bar(f"{crowd} built-in agents at once, all landed", "crowd", most=120),
            Bar("first turn of a built-in agent, processor: a run without", "first", most=1, beside="command"),
        ),
    )


@contextmanager
def _model() -> Iterator[ScriptedLlm]:
    """A model on this machine that has a file written, and a configuration in which our own agent asks it."""
    script = steps(Call("write_file", {"path": "mine.txt", "content": "mine\n"}), Say("It is done."))
    with ScriptedLlm(script) as llm:
        _configure(f"[agents.builtin]\nbase_url = '{llm.url}'\nmodel = 'fake-model'\napi_key_env = 'BENCH_KEY'\n")
        os.environ["BENCH_KEY"] = "not-a-key"
        try:
            yield llm
        finally:
            del os.environ["BENCH_KEY"]


def _configure(text: str) -> None:
    place = Path(os.environ["XDG_CONFIG_HOME"]) / "orchard" / "config.toml"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"[capacity]\nglobal = 0\n{text}")


def _plan(bench: Bench, agent: str, jobs: int, parallel: int) -> Path:
    """Agents that write different files; the built-in ones all write the same, in folders of their own."""
    work = {"type": "agent", "agent": agent, "instructions": "Write the file."}
    leaves = [{"id": f"j{number}", "work": work} for number in range(jobs)]
    body = {"name": "bench", "base": "main", "target": "landed", "max_parallel": parallel, "jobs": leaves}
    file = bench.fresh("plan.json")
    file.write_text(json.dumps(body))
    return file
