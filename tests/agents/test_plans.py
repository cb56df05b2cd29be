"""Real agents in real plans: what they write lands, and what they used is what the model counted."""

import asyncio
import os
import shlex
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from orchard.agents.backends.codex import without_namespaces
from orchard.engine.server.session import Session
from orchard.engine.turns import turn as turns
from orchard.model.events.plans import AgentNoted, ConflictSettled, HealTried
from orchard.model.plan import PlanId
from orchard.process.families.table import TOKEN_VARIABLE
from orchard.testing import Repo
from tests.agents.claims import NOWHERE
from tests.agents.llm import Hang, Say, ScriptedLlm, Shell, routes, steps
from tests.agents.programs import program
from tests.engine.conftest import Orchard, job, statuses

pytestmark = pytest.mark.anyio

LINES = "".join(f"{number}\n" for number in range(1, 10))
SETTLED = LINES.replace("5", "both")


@dataclass(frozen=True)
class Kind:
    """An agent as a plan names it, and what it needs here."""

    name: str
    model: str | None
    programs: tuple[str, ...] = ()
    """From the table of pinned programs; none: it comes with us."""
    config: str = ""
    """More for the user's configuration; @URL@ and @HOME@ stand for the model's address and the user's home."""
    env: tuple[str, ...] = ()
    """`NAME=value`, with these in it."""
    files: tuple[tuple[str, str], ...] = ()
    """In the user's home, with these in them."""
    counts: frozenset[str] = field(default_factory=lambda: frozenset({"input", "cached", "output"}))

    @property
    def id(self) -> str:
        return self.name.replace(":", "-").replace(" ", "")


ANTHROPIC = ("ANTHROPIC_BASE_URL=@URL@", "ANTHROPIC_API_KEY=not-a-key")
OPENAI = ("OPENAI_BASE_URL=@URL@/v1", "OPENAI_API_KEY=not-a-key")
COPILOT = ("COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL=@URL@/v1", "COPILOT_PROVIDER_API_KEY=not-a-key")
GEMINI = ("GOOGLE_GEMINI_BASE_URL=@URL@", "GEMINI_API_KEY=not-a-key")

BUILTIN = Kind("builtin", "fake-model", env=ANTHROPIC)
CLAUDE = Kind("claude", "claude-sonnet-4-5", ("claude",), env=ANTHROPIC)
CODEX = Kind("codex", "gpt-5", ("codex",), env=OPENAI)
QWEN = Kind("qwen", "fake-model", ("qwen",), env=(*OPENAI, "OPENAI_MODEL=fake-model"))
OPENCODE = """{"provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "Scripted",
"options": {"baseURL": "@URL@/v1", "apiKey": "{env:OPENAI_API_KEY}"}, "models": {"fake-model": {}}}}}"""
CODEX_TOML = """model = 'gpt-5'
model_provider = 'scripted'
sandbox_mode = 'danger-full-access'
check_for_update_on_startup = false
analytics.enabled = false
features.plugins = false
features.apps = false
[model_providers.scripted]
name = 'scripted'
base_url = '@URL@/v1'
env_key = 'SCRIPTED_KEY'
wire_api = 'responses'
"""
KINDS = (
    BUILTIN,
    CLAUDE,
    CODEX,
    QWEN,
    Kind("copilot", "fake-model", ("copilot",), env=COPILOT),
    Kind("gemini", "gemini-2.5-flash", ("gemini",), env=GEMINI),
    Kind(
        "opencode",
        "scripted/fake-model",
        ("opencode",),
        env=(
            "OPENAI_API_KEY=not-a-key",
            "OPENCODE_CONFIG=@HOME@/providers.json",
            "OPENCODE_DISABLE_MODELS_FETCH=1",
            f"NPM_CONFIG_REGISTRY={NOWHERE}",
        ),
        files=(("providers.json", OPENCODE),),
    ),
    Kind(
        "pilot",
        None,
        ("copilot",),
        config="[agents.pilot]\ncommand = 'acp:copilot --acp'\n",
        env=(*COPILOT, "COPILOT_MODEL=fake-model"),
    ),
    Kind("anthropic", None, ("claude-agent-acp",), "[agents.anthropic]\ncommand = 'acp:claude-agent-acp'\n", ANTHROPIC),
    Kind(
        "openai",
        None,
        ("codex-acp",),
        "[agents.openai]\ncommand = 'acp:codex-acp'\nenv = {CODEX_HOME = '@HOME@/codex', SCRIPTED_KEY = 'not-a-key'}\n",
        files=(("codex/config.toml", CODEX_TOML),),
    ),
)


@pytest.fixture
def orchard(tmp_path: Path) -> Orchard:
    repo = Repo.make(tmp_path / "repo", files={"README.md": "# small\n", "shared.txt": LINES})
    repo("checkout", "-q", "-b", "work")
    return Orchard(repo)


def install(
    monkeypatch: pytest.MonkeyPatch, private_home: Path, llm: ScriptedLlm, *kinds: Kind, config: str = ""
) -> None:
    """Make the agents usable: programs on the PATH, an address and a made-up key in the environment."""
    path = [
        folder for kind in kinds for name in kind.programs for folder in program(name).search_path.split(os.pathsep)
    ]
    monkeypatch.setenv("PATH", os.pathsep.join(dict.fromkeys([*path, *os.environ["PATH"].split(os.pathsep)])))

    def filled(text: str) -> str:
        return text.replace("@URL@", llm.url).replace("@HOME@", str(private_home))

    for kind in kinds:
        for given in kind.env:
            name, _, value = given.partition("=")
            monkeypatch.setenv(name, filled(value))
        for name, content in kind.files:
            (private_home / name).parent.mkdir(parents=True, exist_ok=True)
            (private_home / name).write_text(filled(content))
    place = private_home / "config" / "orchard" / "config.toml"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(config + filled("".join(kind.config for kind in kinds)))


def carrying(token: str) -> list[str]:
    """The processes that belong to an attempt."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(TOKEN_VARIABLE) == token and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {process.name()}")
    return found


def asks(kind: Kind, instructions: str) -> str:
    model = f"model: {kind.model}, " if kind.model else ""
    return f"{{type: agent, agent: {kind.name!r}, {model}instructions: {instructions!r}}}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
async def test_what_an_agent_wrote_lands_and_its_usage_is_the_models_own(
    kind: Kind, orchard: Orchard, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    with ScriptedLlm(steps(Shell("printf 'hello\\n' > hello.txt"), Say("Wrote hello."))) as llm:
        install(monkeypatch, private_home, llm, kind)

        status = await orchard.run(f"name: One\njobs: [{{id: a, work: {asks(kind, 'Write hello')}}}]")

        assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
        assert orchard.repo.files("work")["hello.txt"] == "hello\n"
        (turn,) = orchard.attempts("a", None)[0]["turns"]
        assert (turn["outcome"], turn["text"]) == ("done", "Wrote hello.")
        used, handed_out = status["plan"]["usage"], llm.usage()
        assert {name: used[name] for name in kind.counts} == {name: getattr(handed_out, name) for name in kind.counts}


async def test_a_plan_of_codex_lands_from_its_own_sandbox_or_says_that_there_is_none(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    # Its sandbox lets commands write to the folders for temporary files that it knows; this one is none of them.
    outside = Path("/var/tmp") / f"orchard-outside-{uuid4().hex}"
    with ScriptedLlm(steps(Shell(f"touch {outside}; printf 'hello\\n' > hello.txt"), Say("Wrote hello."))) as llm:
        install(monkeypatch, private_home, llm, CODEX)

        status = await orchard.run(f"name: One\njobs: [{{id: a, work: {asks(CODEX, 'Write hello')}}}]")

    escaped = outside.exists()
    outside.unlink(missing_ok=True)
    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert orchard.repo.files("work")["hello.txt"] == "hello\n"
    noted = [one.message for one in orchard.events(AgentNoted)]
    no_walls = any("without its own sandbox" in message for message in noted)
    assert escaped == no_walls == (without_namespaces() is not None), noted


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
async def test_a_canceled_agent_is_gone_and_edits_nothing_later(
    kind: Kind, orchard: Orchard, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    with ScriptedLlm(steps(Hang(Shell("echo late > late.txt")), Say("Done."))) as llm:
        install(monkeypatch, private_home, llm, kind)
        monkeypatch.setenv("ORCHARD_GRACE", "1")

        async def cancel(session: Session, plan: PlanId) -> None:
            await asyncio.to_thread(llm.wait_hanging, 120.0)
            await session.request("cancel_plan", plan=plan)

        status = await orchard.run(f"name: Stop\njobs: [{{id: a, work: {asks(kind, 'Be late')}}}]", during=cancel)
        assert not carrying(f"{status['plan']['id']}:a:1")
        llm.release()
        await asyncio.sleep(1)

        assert statuses(status) == {"a": "canceled"}
        assert not Path(job(status, "a")["worktree"], "late.txt").exists()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
async def test_a_retry_goes_on_in_the_same_session(
    kind: Kind, orchard: Orchard, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    script = routes(
        {"attempt 2 begins": steps(Shell("echo good > a.txt"), Say("Mended."))},
        otherwise=steps(Shell("echo bad > a.txt"), Say("Wrote it.")),
    )
    with ScriptedLlm(script) as llm:
        install(monkeypatch, private_home, llm, kind)
        plan = (
            f"name: Again\njobs: [{{id: a, heal: false, postchecks: grep good a.txt, work: {asks(kind, 'Write a')}}}]"
        )
        status = await orchard.run(plan)
        assert job(status, "a")["failed_phase"] == "postchecks", job(status, "a")["error"]
        before = len(llm.requests)

        status = await orchard.ask("retry_plan", jobs=["a"], phase="work")

        assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
        first, second = (attempt["turns"] for attempt in orchard.attempts("a", None))
        assert second[0]["resumed"] and second[0]["session"] == first[0]["session"]
        assert len(second) == 1, [one.message for one in orchard.events(AgentNoted)]
        told = [asked for asked in llm.requests[before:] if asked.tools]
        assert any("Write a" in prompt for prompt in told[0].prompts[:-1]), "the session's history was sent again"


async def story(orchard: Orchard, kinds: tuple[Kind, Kind, Kind, Kind], llm: ScriptedLlm) -> None:
    one, two, three, _ = kinds
    status = await orchard.run(f"""
        name: Together
        max_parallel: 3
        verify: "grep -q both shared.txt && grep -q good three.txt"
        jobs:
          - {{id: one, task: "Say one", work: {asks(one, "TASK-ONE")}}}
          - {{id: two, task: "Say two", work: {asks(two, "TASK-TWO")}}}
          - {{id: three, work: {asks(three, "TASK-THREE")}, postchecks: "grep good three.txt"}}
    """)

    assert status["plan"]["status"] == "succeeded", status["plan"]["error"]
    landed = orchard.repo.files("work")
    assert (landed["shared.txt"], landed["three.txt"]) == (SETTLED, "good\n")
    used, handed_out = status["plan"]["usage"], llm.usage()
    assert (used["input"], used["cached"], used["output"]) == (handed_out.input, handed_out.cached, handed_out.output)
    (settled,) = orchard.events(ConflictSettled)
    assert settled.by == three.name
    (healed,) = orchard.events(HealTried)
    assert (healed.job, healed.outcome) == ("three", "passed")


def script(settled: str) -> ScriptedLlm:
    return ScriptedLlm(
        routes(
            {
                "Resolve a merge conflict": steps(
                    Shell(f"printf %s {shlex.quote(settled)} > 1.merged"), Say("Kept both.")
                ),
                "Mend what makes": steps(Shell("echo good > three.txt"), Say("Made it good.")),
                "TASK-ONE": steps(Shell("sed -i s/5/one/ shared.txt"), Say("Said one.")),
                "TASK-TWO": steps(Shell("sed -i s/5/two/ shared.txt"), Say("Said two.")),
                "TASK-THREE": steps(Shell("echo bad > three.txt"), Say("Wrote it.")),
            },
            otherwise=steps(Say("Fine.")),
        )
    )


async def test_three_agents_work_one_settles_their_conflict_and_a_fourth_mends(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    kinds = (CLAUDE, CODEX, BUILTIN, QWEN)
    config = "resolver_agent = 'builtin'\n[heal]\nagent = 'qwen'\n[agents.builtin]\nmodel = 'fake-model'\n"
    with script(SETTLED) as llm:
        install(monkeypatch, private_home, llm, *kinds, config=config)

        await story(orchard, kinds, llm)


async def test_the_built_in_agent_alone_does_all_of_that(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    config = "resolver_agent = 'builtin'\n[agents.builtin]\nmodel = 'fake-model'\n"
    with script(SETTLED) as llm:
        install(monkeypatch, private_home, llm, BUILTIN, config=config)

        await story(orchard, (BUILTIN, BUILTIN, BUILTIN, BUILTIN), llm)


async def test_a_rate_limit_that_passes_is_waited_for_and_told(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    monkeypatch.setattr(turns, "WAITS", (0.1, 0.1))
    with ScriptedLlm(steps(Shell("echo a > a.txt"), Say("Done."))) as llm:
        install(monkeypatch, private_home, llm, BUILTIN)
        llm.fail(429, times=1)

        status = await orchard.run(f"name: Limited\njobs: [{{id: a, work: {asks(BUILTIN, 'Write a')}}}]")

        assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
        assert any(one.kind == "retry" for one in orchard.events(AgentNoted))
