"""Traces of plans: what they hold, that they go on after a crash, and that nobody pays who asked for none."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import propagate
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from orchard.agents.protocol import Called, Result, Said, Task, Used, Watch
from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.engine.server import start as opening
from orchard.engine.server.session import Session
from orchard.engine.trace import names
from orchard.engine.trace import trace as tracing
from orchard.engine.trace.spans import Spans
from orchard.engine.trace.trace import Tracing
from orchard.engine.turns import turn as turns
from orchard.model.events.plans import (
    AgentEnded,
    AgentStarted,
    Event,
    JobFailed,
    JobPicked,
    JobStarted,
    PhaseStarted,
    PlanStarted,
    PlanSubmitted,
    Recorded,
    SubtaskSpawned,
)
from orchard.model.phases import Phase
from orchard.model.plan import JobId, PlanId
from orchard.model.plan_codec import plan_json
from orchard.model.usage import Usage
from orchard.planfile.parse import parse
from orchard.store.reader import read
from tests.engine.collector import Collector, Span, collecting
from tests.engine.conftest import Orchard, job, until
from tests.engine.scripted import ScriptedAgents, ends, sleeps, writes

pytestmark = pytest.mark.anyio

TWO_JOBS = """
    name: Two jobs
    jobs:
      - {id: a, work: "echo canary-output; echo a > a.txt"}
      - {id: b, needs: [a], work: "@one canary-instruction"}
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_") or name == names.TRACEPARENT]:
        monkeypatch.delenv(name)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Somebody who wants traces, as the standard variables say."""
    with collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        yield found


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


def is_whole(spans: list[Span]) -> bool:
    """Whether there is one trace, in which every span but the plan's has a parent that contains its beginning."""
    by_id = {span.id: span for span in spans}
    roots = [span for span in spans if not span.parent]
    inside = all(by_id[one.parent].started <= one.started <= one.ended for one in spans if one.parent)
    return (
        len(by_id) == len(spans)
        and len({span.trace for span in spans}) == 1
        and all(span.name == "invoke_workflow" for span in roots)
        and inside
    )


# ------------------------------------------------------------------------------------ what they hold


async def test_a_plan_is_one_trace_of_its_jobs_phases_agents_and_tools(
    orchard: Orchard, agents: ScriptedAgents, collector: Collector
) -> None:
    def turn(task: Task, watch: Watch) -> Result:
        watch.tell(Called("Read", "secret/path.txt"))
        watch.tell(Said("I have read it."))
        watch.tell(Called("Bash", "make canary-command"))
        watch.tell(Called("Bash", "make canary-command", failed=True))
        done = writes({"b.txt": "b"}, session="s7", tokens=100)(task, watch)
        assert isinstance(done, Result)
        return done

    agents.add("one", turn)
    before = time.time_ns()

    status = await orchard.run(TWO_JOBS)

    assert status["plan"]["status"] == "succeeded"
    assert is_whole(collector.spans) and collector.services == {"orchard"}
    plan, a, b = (collector.one(name) for name in ("invoke_workflow", "job a", "job b"))
    assert (plan["gen_ai.operation.name"], plan["gen_ai.workflow.name"]) == ("invoke_workflow", "Two jobs")
    assert (plan["orchard.plan.id"], plan["orchard.outcome"], plan.error) == (status["plan"]["id"], "succeeded", None)
    assert (plan["orchard.sandbox"], a["orchard.sandbox"]) == ("off", "off")
    assert {a.parent, b.parent, collector.one("job __snapshot-validation__").parent} == {plan.id}
    assert (b["orchard.job.id"], b["orchard.attempt"], b["orchard.outcome"]) == ("b", 1, "succeeded")
    assert before <= plan.started <= a.started <= a.ended <= b.started <= b.ended <= plan.ended <= time.time_ns()
    work = next(span for span in collector.named("phase work") if span.parent == b.id)
    agent = collector.one("invoke_agent one")
    assert (agent.parent, work["orchard.phase"], work["orchard.outcome"]) == (work.id, "work", "passed")
    assert "phase prechecks" not in {span.name for span in collector.spans if span.parent == b.id}, "it was skipped"
    assert agent.attributes | {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "one", "gen_ai.conversation.id": "s7",
        "gen_ai.usage.input_tokens": 99, "gen_ai.usage.output_tokens": 1, "orchard.purpose": "work",
        "orchard.outcome": "done",
    } == agent.attributes  # fmt: skip
    read, bash = collector.one("execute_tool Read"), collector.one("execute_tool Bash")
    assert {read.parent, bash.parent} == {agent.id} and read["gen_ai.tool.name"] == "Read"
    assert (read.error, bash.error) == (None, "failed")


async def test_nothing_that_was_asked_said_or_run_is_in_a_trace(
    orchard: Orchard, agents: ScriptedAgents, collector: Collector
) -> None:
    agents.add("one", ends(Result("failed", "canary-message", text="canary-words")))

    status = await orchard.run(TWO_JOBS)

    assert job(status, "b")["status"] == "failed" and "canary" in job(status, "b")["error"]
    assert collector.one("invoke_agent one").error == "failed"
    assert collector.raw and b"canary" not in collector.raw


async def test_the_model_that_was_asked_for_and_cached_tokens_are_told(
    orchard: Orchard, agents: ScriptedAgents, collector: Collector
) -> None:
    def turn(task: Task, watch: Watch) -> Result:
        watch.tell(Used(Usage("m", input=1, cached=10, cache_writes=100, output=5)))
        watch.tell(Used(Usage("m", input=2, cached=20, output=5)))
        (task.folder / "a.txt").write_text("a")
        return Result("done")

    agents.add("one", turn)

    await orchard.run("name: M\njobs: [{id: a, work: {type: agent, agent: one, instructions: x, model: m1}}]")

    agent = collector.one("invoke_agent one")
    assert agent["gen_ai.request.model"] == "m1"
    assert (agent["gen_ai.usage.input_tokens"], agent["gen_ai.usage.output_tokens"]) == (133, 10)
    assert agent["gen_ai.usage.cache_read.input_tokens"] == 30
    assert agent["gen_ai.usage.cache_creation.input_tokens"] == 100


async def test_what_failed_is_an_error_and_what_it_blocked_is_not_there(orchard: Orchard, collector: Collector) -> None:
    await orchard.run("""
        name: Fails
        jobs: [{id: a, work: "exit 3", heal: false}, {id: b, needs: [a], work: "true"}]
    """)

    a, plan = collector.one("job a"), collector.one("invoke_workflow")
    assert (a.error, a["error.type"], a["orchard.reason"], a["process.exit.code"]) == ("exit", "exit", "exit", 3)
    assert (plan.error, plan["orchard.outcome"]) == ("failed", "failed")
    (work,) = collector.named("phase work")
    assert work.error == "failed" and is_whole(collector.spans)
    assert collector.named("job b") == []


async def test_a_canceled_job_ends_with_everything_in_it(
    orchard: Orchard, agents: ScriptedAgents, collector: Collector
) -> None:
    agent = agents.add("one", sleeps())

    async def cancel(session: Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks))
        await session.request("cancel_plan", plan=plan)

    await orchard.run("name: Cancel\njobs: [{id: a, work: '@one Wait'}]", cancel)

    found = {span.name: span["orchard.outcome"] for span in collector.spans if span.name != "phase merge-fi"}
    assert found.items() >= {
        "invoke_workflow": "canceled", "job a": "canceled", "phase work": "canceled", "invoke_agent one": "stopped",
    }.items()  # fmt: skip
    assert not [span for span in collector.spans if span.error] and is_whole(collector.spans)


async def test_a_job_that_waits_for_a_person_is_two_stretches_of_one_plan(
    orchard: Orchard, collector: Collector
) -> None:
    await orchard.run("name: Held\njobs: [{id: a, approve: true, work: 'echo a > a.txt'}]")
    assert collector.named("invoke_workflow") == []

    await orchard.ask("approve_job", job="a")

    first, second = collector.named("job a")
    assert (first["orchard.outcome"], first["orchard.reason"]) == ("held", "approval")
    assert (second["orchard.outcome"], second["orchard.attempt"]) == ("succeeded", 1)
    assert {first.parent, second.parent} == {collector.one("invoke_workflow").id} and is_whole(collector.spans)


# ---------------------------------------------------------------------------------- after the engine


async def test_a_retry_by_another_engine_goes_on_with_the_trace(orchard: Orchard, collector: Collector) -> None:
    await orchard.run("""
        name: Again
        jobs: [{id: a, work: "test -e ../../again && echo a > a.txt", heal: false}]
    """)
    (orchard.repo.path / "again").touch()

    await orchard.ask("retry_plan")

    failed, passed = collector.named("job a")
    assert (failed["orchard.attempt"], failed["orchard.outcome"]) == (1, "failed")
    assert (passed["orchard.attempt"], passed["orchard.outcome"]) == (2, "succeeded")
    first, second = collector.named("invoke_workflow")
    assert (failed.parent, passed.parent) == (first.id, second.id) and is_whole(collector.spans)


async def test_a_plan_whose_engine_was_killed_is_still_one_whole_trace(
    orchard: Orchard, collector: Collector, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"""
name: Killed
jobs:
  - {{id: a, work: "echo a > a.txt"}}
  - {{id: b, needs: [a], work: "echo half > b.txt; touch {tmp_path}/ready; sleep 300"}}
""")
    environment = {**os.environ, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "orchard", "run", str(plan), "--quiet", cwd=orchard.repo.path, env=environment
    )
    await until(lambda: (tmp_path / "ready").exists() and bool(collector.named("job a")))
    engine.kill()
    await engine.wait()
    assert collector.named("invoke_workflow") == [] == collector.named("job b")
    known = {span.id for span in collector.spans}

    await orchard.ask("resume_plan")
    await orchard.ask("cancel_plan")

    assert known < {span.id for span in collector.spans}
    b = collector.one("job b")
    assert (b.error, b["orchard.attempt"]) == ("interrupted", 1)
    cut_off = [span for span in collector.spans if span.parent == b.id and span.error]
    assert [span.name for span in cut_off] == ["phase work"]
    assert is_whole(collector.spans)


# --------------------------------------------------------------------------------------- joining in


async def test_programs_and_agents_are_told_which_span_they_belong_to(
    orchard: Orchard, agents: ScriptedAgents, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", f"00-{'1' * 32}-{'2' * 16}-01")
    monkeypatch.setenv("TRACESTATE", "other=1")
    seen: dict[str, str] = {}

    def turn(task: Task, watch: Watch) -> Result:
        propagate.inject(seen)
        done = writes({"b.txt": "b"})(task, watch)
        assert isinstance(done, Result)
        return done

    agent = agents.add("one", turn)

    await orchard.run("""
        name: Told
        jobs:
          - {id: a, work: 'printf "%s %s" "$TRACEPARENT" "${TRACESTATE-none}" > a.txt'}
          - {id: b, needs: [a], work: "@one Write b"}
    """)

    work = next(span for span in collector.named("phase work") if span.parent == collector.one("job a").id)
    turn_span = collector.one("invoke_agent one")
    assert orchard.repo.files("work")["a.txt"] == f"00-{work.trace}-{work.id}-01 none"
    assert agent.tasks[0].env["TRACEPARENT"] == f"00-{turn_span.trace}-{turn_span.id}-01" == seen["traceparent"]


async def test_a_trace_that_the_sampler_does_not_want_is_not_sent(
    orchard: Orchard, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")

    await orchard.run("name: Off\njobs: [{id: a, work: 'echo $TRACEPARENT > a.txt'}]")

    assert collector.spans == []
    assert orchard.repo.files("work")["a.txt"].endswith("-00\n")


# ------------------------------------------------------------------------------------ bit by bit


class Heard:
    """A tracing that is told events one by one, a second each, and what it makes of them."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self._exporter = InMemorySpanExporter()
        self._spans = Spans(self._exporter)
        self.tracing = Tracing(self._spans, read(folder / "journal.db"), lambda: self.now)
        self._run = Run(PlanId("p-1"))
        plan = parse(b"name: P\njobs: [{id: a, work: 'true'}]")
        self.hear(PlanSubmitted(plan_json(plan)))
        self.hear(PlanStarted("main", "0" * 40, "main", None), JobPicked(A, 1), JobStarted(A, 1))

    def hear(self, *events: Event) -> None:
        for event in events:
            self.now += 1.0
            recorded = Recorded(int(self.now), self.now, self._run.id, event)
            apply(self._run, recorded)
            self.tracing.hear(self._run, recorded)

    def tell(self, telling: Called | Said, after: float, subtask: str | None = None) -> None:
        self.now += after
        self.tracing.told(self._run.id, A, telling, subtask)

    def spans(self) -> dict[str, ReadableSpan]:
        assert self._spans.close(10.0) is None
        return {span.name: span for span in self._exporter.get_finished_spans()}


A = JobId("a")
WORK = (A, 1, Phase.WORK)


def seconds(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None and span.end_time is not None
    return span.start_time / 1e9, span.end_time / 1e9


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def test_a_tool_ends_when_the_agent_is_heard_of_again(tmp_path: Path) -> None:
    heard = Heard(tmp_path)
    heard.hear(PhaseStarted(*WORK), AgentStarted(*WORK, "one", "work"))
    at = heard.now

    heard.tell(Called("first"), 1.0)
    heard.tell(Said("Well."), 2.0)
    heard.tell(Called("second"), 1.0)
    heard.tell(Called("third"), 4.0)
    heard.hear(AgentEnded(*WORK, "one", "work", "done"))

    spans = heard.spans()
    assert seconds(spans["execute_tool first"]) == (at + 1, at + 3)
    assert seconds(spans["execute_tool second"]) == (at + 4, at + 8)
    assert seconds(spans["execute_tool third"]) == (at + 8, at + 9)


def test_tools_that_are_called_at_once_run_beside_each_other(tmp_path: Path) -> None:
    heard = Heard(tmp_path)
    heard.hear(PhaseStarted(*WORK), AgentStarted(*WORK, "one", "work"))
    at = heard.now

    heard.tell(Called("left"), 0.0)
    heard.tell(Called("right"), 0.125)
    heard.tell(Called("left", failed=True), 2.875)
    heard.tell(Said("Both."), 1.0)
    heard.hear(AgentEnded(*WORK, "one", "work", "done"))

    spans = heard.spans()
    assert seconds(spans["execute_tool left"]) == (at, at + 3)
    assert seconds(spans["execute_tool right"]) == (at + 0.125, at + 4)
    assert spans["execute_tool left"].status.description == "failed"
    assert spans["execute_tool right"].status.is_unset


def test_the_agents_of_subtasks_lie_below_the_agents_that_asked_for_them(tmp_path: Path) -> None:
    heard = Heard(tmp_path)
    heard.hear(PhaseStarted(*WORK), AgentStarted(*WORK, "own", "work"))
    heard.hear(
        SubtaskSpawned(*WORK, "s-1", "child", "x", "0" * 40),
        SubtaskSpawned(*WORK, "s-2", "grand", "x", "0" * 40, "s-1"),
    )

    heard.hear(AgentStarted(*WORK, "child", "subtask", subtask="s-1"))
    heard.hear(AgentStarted(*WORK, "grand", "subtask", subtask="s-2"))
    heard.tell(Called("deep"), 0.5, "s-2")
    told = heard.tracing.environment(PlanId("p-1"), A, {}, "s-2")["TRACEPARENT"]
    for agent, subtask in (("grand", "s-2"), ("child", "s-1"), ("own", None)):
        heard.hear(AgentEnded(*WORK, agent, "work", "done", subtask=subtask))

    own, child, grand, deep = (
        heard.spans()[name]
        for name in ("invoke_agent own", "invoke_agent child", "invoke_agent grand", "execute_tool deep")
    )
    assert own.context and child.context and grand.context
    assert (parent(child), parent(grand)) == (own.context.span_id, child.context.span_id)
    assert parent(deep) == grand.context.span_id and f"{grand.context.span_id:016x}" in told
    assert child.attributes and child.attributes["orchard.subtask.id"] == "s-1"


def test_a_failure_ends_all_that_is_under_way_with_its_reason(tmp_path: Path) -> None:
    heard = Heard(tmp_path)
    heard.hear(PhaseStarted(*WORK), AgentStarted(*WORK, "one", "work"))
    heard.tell(Called("tool"), 0.5)

    heard.hear(JobFailed(A, 1, Phase.WORK, "interrupted", "the engine was stopped"))

    spans = heard.spans()
    found = {name: span.status.description for name, span in spans.items()}
    assert found == {
        "execute_tool tool": None, "invoke_agent one": "interrupted", "phase work": "interrupted",
        "job a": "interrupted", "invoke_workflow": "failed",
    }  # fmt: skip


def test_a_model_cannot_make_a_trace_grow_without_end(tmp_path: Path) -> None:
    heard = Heard(tmp_path)
    heard.hear(PhaseStarted(*WORK), AgentStarted(*WORK, "one", "work"))

    for _ in range(10 * tracing.MOST_TOOLS):
        heard.tell(Called("x" * 10_000), 0.0)

    (turn,) = heard.tracing._plans[PlanId("p-1")].jobs[A].turns.values()
    assert len(turn.tools) == tracing.MOST_TOOLS
    assert all(len(name) < 200 for name in heard.spans())


def test_a_clock_that_goes_back_makes_no_span_that_ends_before_it_begins(tmp_path: Path) -> None:
    heard = Heard(tmp_path)
    heard.now = -100.0
    heard.hear(PhaseStarted(*WORK))
    heard.now = -200.0

    heard.hear(JobFailed(A, 1, Phase.WORK, "exit", "no"))

    assert all(start <= end for start, end in map(seconds, heard.spans().values()))
