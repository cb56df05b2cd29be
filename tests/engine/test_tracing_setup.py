"""Where traces go: who is asked, what is sent there and what is not, and that no plan suffers from it."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchard.config.layers import Config, Traces
from orchard.config.load import load_settings
from orchard.config.trust import trust
from orchard.engine.trace import setup as tracingsetup
from orchard.engine.trace import trace as tracing
from orchard.engine.trace.setup import FLUSH_SECONDS, Route, route, without_headers
from orchard.engine.trace.spans import AWAY, Spans
from orchard.model.plan import PlanId
from tests.engine.collector import collecting
from tests.engine.conftest import Orchard, until

pytestmark = pytest.mark.anyio

SMALL = "name: Small\njobs: [{id: a, work: 'env > a.txt'}]"
HERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OTEL_", "TRACE"))]:
        monkeypatch.delenv(name)


# ------------------------------------------------------------------------------------ who is asked


@pytest.mark.parametrize(
    ("settings", "env", "found"),
    [
        (Traces(), {}, None),
        (Traces(), {"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, Route()),
        (Traces(), {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": HERE}, Route()),
        (Traces(), {"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, None),
        (Traces(), {"OTEL_TRACES_EXPORTER": "otlp"}, Route()),
        (Traces(), {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, None),
        (Traces(), {"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, None),
        (Traces(HERE), {}, Route(HERE)),
        (Traces(HERE), {"OTEL_TRACES_EXPORTER": "none"}, None),
        (Traces(HERE), {"OTEL_SDK_DISABLED": "true"}, None),
        (Traces(HERE, "KEY"), {"KEY": "a=b"}, Route(HERE, "a=b")),
        (Traces(HERE), {"OTEL_EXPORTER_OTLP_HEADERS": "x=y"}, Route(HERE, "", "x=y")),
        (Traces(HERE), {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, Route(HERE)),
    ],
)
def test_settings_go_before_standard_variables_and_either_can_be_switched_off(
    settings: Traces, env: dict[str, str], found: Route | None
) -> None:
    assert route(settings, env) == found


@pytest.mark.parametrize(
    ("env", "word"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "zipkin"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "http/json"),
    ],
)
def test_a_way_that_we_do_not_know_is_told_and_not_tried(env: dict[str, str], word: str) -> None:
    said = route(Traces(), env)

    assert isinstance(said, str) and word in said


def test_a_repositorys_own_file_sends_nothing_anywhere_before_it_is_trusted(tmp_path: Path) -> None:
    from orchard.config.user_dirs import UserDirs

    dirs = UserDirs(tmp_path / "state", tmp_path / "config", tmp_path / "run")
    (tmp_path / "orchard.toml").write_text('[tracing]\nendpoint = "https://evil.example"\nheaders_env = "MY_KEY"\n')

    before = load_settings(tmp_path, {}, {}, dirs)
    assert before.config.tracing == Traces()
    assert set(before.untrusted) == {"tracing.endpoint", "tracing.headers_env"}

    assert before.untrusted_digest is not None
    trust(tmp_path, before.untrusted_digest, dirs.state)
    assert load_settings(tmp_path, {}, {}, dirs).config.tracing == Traces("https://evil.example", "MY_KEY")


# ------------------------------------------------------------------------------------- what is sent


async def test_headers_of_the_settings_are_sent_and_those_for_another_place_are_not(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_HEADERS", "authorization=Bearer%20team-key,x-team=1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-other-key=other-key,x-team=2")
    monkeypatch.setenv("ORCHARD_TRACING_HEADERS_ENV", "TEAM_HEADERS")
    with collecting() as collector:
        monkeypatch.setenv("ORCHARD_TRACING_ENDPOINT", collector.url)
        await orchard.run(SMALL)

    assert collector.named("job a")
    (headers,) = [{name: value for name, value in one.items() if name in HEADERS} for one in collector.headers[:1]]
    assert headers == {"authorization": "Bearer team-key", "x-team": "1"}
    assert "-key" not in orchard.repo.files("work")["a.txt"], "programs must not see the headers"


HEADERS = ("authorization", "x-team", "x-other-key")


async def test_standard_headers_go_to_the_standard_place(orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-other-key=other-key")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        await orchard.run(SMALL)

    assert collector.headers[0]["x-other-key"] == "other-key" and collector.services == {"mine"}
    assert "other-key" not in orchard.repo.files("work")["a.txt"]


def test_a_user_may_hand_the_headers_on() -> None:
    env = {"TEAM": "1", "OTEL_EXPORTER_OTLP_HEADERS": "2", "PATH": "3"}

    assert without_headers(env, Config(tracing=Traces(HERE, "TEAM"))) == {"PATH": "3"}
    assert without_headers(env, Config(tracing=Traces(HERE, "TEAM"), pass_env=("TEAM",))) == {"PATH": "3", "TEAM": "1"}


# ------------------------------------------------------------------------------- nobody pays for it


def run_cli(orchard: Orchard, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words],
        cwd=orchard.repo.path,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


RUN = """
import sys
from orchard.__main__ import main
sys.argv = ["orchard", "run", "{plan}"]
{before}
code = main()
print("imported:", sorted(name for name in sys.modules if name.split(".")[0] == "opentelemetry")[:3])
sys.exit(code)
"""


def plan_file(tmp_path: Path) -> Path:
    plan = tmp_path / "plan.yaml"
    plan.write_text(SMALL)
    return plan


def test_who_wants_no_traces_imports_nothing_for_them(orchard: Orchard, tmp_path: Path) -> None:
    done = run_cli(orchard, "-c", RUN.format(plan=plan_file(tmp_path), before=""))

    assert done.returncode == 0, done.stderr
    assert "imported: []" in done.stdout


def test_without_the_extra_a_plan_runs_and_one_line_says_what_to_install(orchard: Orchard, tmp_path: Path) -> None:
    missing = 'sys.modules["opentelemetry.sdk"] = None'

    done = run_cli(
        orchard, "-c", RUN.format(plan=plan_file(tmp_path), before=missing), OTEL_EXPORTER_OTLP_ENDPOINT=HERE
    )

    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).replace("\n", " ").count("orchard-agents[tracing]") == 1


@pytest.mark.parametrize(
    "env",
    [
        {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "-1"},
        {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many"},
        {"OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER": "nobody"},
    ],
)
async def test_variables_that_make_no_sense_are_told_and_the_plan_runs(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, env: dict[str, str]
) -> None:
    for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, **env}.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []

    async def look(session: object, plan: PlanId) -> None:
        said.extend(session.link.engine.notes)  # type: ignore[attr-defined]

    status = await orchard.run(SMALL, look)

    assert status["plan"]["status"] == "succeeded"
    assert [one for one in said if one.startswith("Plans are not traced")]


def refused() -> socket.socket:
    """A port where nobody listens."""
    unused = socket.socket()
    unused.bind(("127.0.0.1", 0))
    return unused


def silent() -> socket.socket:
    """A port where somebody takes connections and never answers."""
    listening = refused()
    listening.listen(64)
    return listening


@pytest.mark.parametrize("make", [refused, silent], ids=["refused", "silent"])
def test_a_place_that_does_not_answer_costs_spans_and_nothing_else(
    orchard: Orchard, tmp_path: Path, make: Callable[[], socket.socket]
) -> None:
    with make() as place:
        endpoint = f"http://127.0.0.1:{place.getsockname()[1]}"
        done = run_cli(orchard, "-m", "orchard", "run", str(plan_file(tmp_path)), OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)

    assert (done.returncode, done.stderr.count("\n")) == (0, 2), done.stderr
    said = done.stderr.rstrip()
    assert "could not be sent" in said


async def test_the_next_engine_need_not_wait_for_the_last_spans_of_this_one(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracingsetup, "FLUSH_SECONDS", 30.0)
    with silent() as place:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{place.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
        order: list[str] = []
        app = orchard.app

        async def first() -> None:
            async with app.session() as session:
                await session.request("create_plan", plan=app.parse_plan(None, SMALL.encode()))
            order.append("sent")

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(first())
            await until(lambda: bool(app.plans()) and not app.engine_alive())
            async with app.session(work=False):
                order.append("opened")

    assert order[0] == "opened"


def test_a_place_that_refuses_is_named_by_its_answer(orchard: Orchard, tmp_path: Path) -> None:
    with collecting(status=401) as collector:
        done = run_cli(
            orchard, "-m", "orchard", "run", str(plan_file(tmp_path)), OTEL_EXPORTER_OTLP_ENDPOINT=collector.url
        )

    assert (done.returncode, done.stderr.count("\n")) == (0, 2), done.stderr
    said = done.stderr.rstrip()
    assert "could not be sent" in said and "401" in said


async def test_the_last_spans_are_waited_for_in_bounded_time() -> None:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Stuck(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            time.sleep(FLUSH_SECONDS * 10)
            return SpanExportResult.SUCCESS

    spans = Spans(Stuck())
    spans.take(tracing.Part(1, 2, None, "x", 1.0, {}))

    begin = time.monotonic()
    said = spans.close(0.1)

    assert said is not None and "1 of 1 spans" in said
    assert time.monotonic() - begin < FLUSH_SECONDS * 5


async def test_an_engine_that_goes_on_says_for_how_long_traces_do_not_arrive() -> None:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    answers = [SpanExportResult.SUCCESS, SpanExportResult.FAILURE, SpanExportResult.FAILURE]

    class Flaky(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return answers.pop()

    notes = ["Something else."]
    spans = Spans(Flaky(), notes=notes)
    seen = []
    for number in range(1, 4):
        spans.take(tracing.Part(1, number, None, "x", 1.0, {}))
        spans._processor.force_flush()
        seen.append([note for note in notes if note.startswith(AWAY)])

    assert [len(found) for found in seen] == [1, 1, 0]
    assert notes == ["Something else."]
    assert "2 of 3 spans" in (spans.close(10.0) or "")
