"""Real agents behind a wall: they work, go on, are stopped, hand work on, reach their model only, and have no key."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from orchard.engine.server.session import Session
from orchard.model.events.plans import AgentNoted, PlanStarted, SandboxRefused
from orchard.model.plan import PlanId
from orchard.process.sandbox.level import walls
from tests.agents.llm import Call, Hang, Mcp, Say, Script, ScriptedLlm, Shell, routes, steps
from tests.agents.test_plans import BUILTIN, KINDS, Kind, asks, carrying, install
from tests.agents.test_subtasks_real import CHILD, Taught, parent
from tests.agents.test_subtasks_real import orchard as orchard
from tests.agents.turns import everything_at_an_address
from tests.engine.conftest import job, statuses

pytestmark = pytest.mark.anyio

LEVELS = [finding.level for finding in walls().findings if finding.works]
SECRET = "sk-the-real-key-4711"
FOUND_ELSEWHERE = ("openai",)
"""Their address stands in a file of theirs, and names this machine: behind bubblewrap that is the job's own."""
BEHIND = [kind for kind in KINDS if kind.name not in FOUND_ELSEWHERE]
CHEAP = ("builtin", "claude", "codex")
"""All that is tried is tried at both levels; of the others, that they work."""
PAIRS = [(kind, level) for kind in BEHIND for level in LEVELS]

REACHES = f"{sys.executable} -c \"import urllib.request as r; r.urlopen('http://second.example/', timeout=5)\" || true"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of them take a minute to hand work on."""
    monkeypatch.setattr("tests.engine.conftest.LONGEST", 240.0)


@contextmanager
def walled(
    kind: Kind, level: str, script: Script, monkeypatch: pytest.MonkeyPatch, home: Path, config: str = ""
) -> Iterator[ScriptedLlm]:
    """A model at an address of this machine, and a user who has a real key for it."""
    monkeypatch.setenv("ORCHARD_SANDBOX", level)
    real = replace(kind, env=tuple(given.replace("not-a-key", SECRET) for given in kind.env))
    with ScriptedLlm(script) as llm:
        install(monkeypatch, home, llm, real, config=config)
        yield llm


def sent(llm: ScriptedLlm) -> set[str]:
    """What requests for a turn say who they are."""
    names = ("authorization", "x-api-key", "x-goog-api-key")
    return {
        asked.headers[name].removeprefix("Bearer ") for asked in llm.requests for name in names if name in asked.headers
    }


MOST = "ORCHARD_TEST_ALL" in os.environ
"""Each agent works behind the wall every day; that each also resumes, cancels and hands on takes half an hour."""


def _named(each: object) -> str:
    return each if isinstance(each, str) else str(getattr(each, "id", each))


everyday = pytest.mark.parametrize(
    ("kind", "level"), [one for one in PAIRS if MOST or one[1] == LEVELS[0] or one[0] is BUILTIN], ids=_named
)
pairs = pytest.mark.parametrize(
    ("kind", "level"),
    [
        one
        for one in PAIRS
        if (MOST and (one[1] == LEVELS[0] or one[0].name in CHEAP))
        or one[0] is BUILTIN
        or (one[0].name, one[1]) == ("claude", LEVELS[0])
    ],
    ids=_named,
)


@everyday
async def test_an_agent_works_without_a_key_and_reaches_nothing_but_its_model(
    kind: Kind, level: str, orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    (private_home / "private.txt").write_text("the user's\n")
    looks = f"env > env.txt; cat {private_home}/private.txt > read.txt 2>/dev/null; {REACHES}"
    script = steps(Shell(looks), Say("Looked around."))
    with walled(kind, level, script, monkeypatch, private_home) as llm:
        status = await orchard.run(f"name: One\njobs: [{{id: a, work: {asks(kind, 'Look around')}}}]")

        assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
        assert sent(llm) == {SECRET}
    (started,) = orchard.events(PlanStarted)
    landed = orchard.repo.files("work")
    assert started.sandbox == level
    assert SECRET not in landed["env.txt"]
    assert landed["read.txt"] == ""
    refused = {one.name: one for one in orchard.events(SandboxRefused)}
    assert refused["second.example:80"].reason == "not-listed"
    assert refused["second.example:80"].setting == 'allowed_urls: ["second.example"]'
    noted = [one.message for one in orchard.events(AgentNoted)]
    assert not [said for said in noted if "allowed_urls" in said or "whatever is public" in said], noted


@pytest.mark.parametrize("level", LEVELS)
async def test_an_agent_shares_the_temporary_folder_of_the_job_and_finds_at_its_home_what_is_opened(
    level: str, orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    (private_home / "data").mkdir()
    (private_home / "data/in.txt").write_text("in\n")
    monkeypatch.setenv("ORCHARD_SANDBOX_EXPOSE", "~/data")
    script = steps(
        Shell("cat $TMPDIR/before ~/data/in.txt > said.txt; grep -c email ~/.gitconfig >> said.txt"), Say("Done.")
    )
    checks = "prechecks: 'echo before > $TMPDIR/before', postchecks: '! ls $TMPDIR | grep orchard-agent'"
    with walled(BUILTIN, level, script, monkeypatch, private_home):
        status = await orchard.run(f"name: One\njobs: [{{id: a, {checks}, work: {asks(BUILTIN, 'Look around')}}}]")

        assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert orchard.repo.files("work")["said.txt"] == "before\nin\n1\n"


@pairs
async def test_a_retry_behind_the_wall_goes_on_in_the_same_session(
    kind: Kind, level: str, orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    script = routes(
        {"attempt 2 begins": steps(Shell("echo good > a.txt"), Say("Mended."))},
        otherwise=steps(Shell("echo bad > a.txt"), Say("Wrote it.")),
    )
    plan = f"name: Again\njobs: [{{id: a, heal: false, postchecks: grep good a.txt, work: {asks(kind, 'Write a')}}}]"
    with walled(kind, level, script, monkeypatch, private_home):
        status = await orchard.run(plan)
        assert job(status, "a")["failed_phase"] == "postchecks", job(status, "a")["error"]

        status = await orchard.ask("retry_plan", jobs=["a"], phase="work")

        assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    first, second = (attempt["turns"] for attempt in orchard.attempts("a", None))
    assert second[0]["resumed"] and second[0]["session"] == first[0]["session"]
    assert len(second) == 1, [one.message for one in orchard.events(AgentNoted)]


@pairs
async def test_a_canceled_agent_behind_the_wall_is_gone(
    kind: Kind, level: str, orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    with walled(
        kind, level, steps(Hang(Shell("echo late > late.txt")), Say("Done.")), monkeypatch, private_home
    ) as llm:
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


@pairs
async def test_an_agent_behind_the_wall_hands_work_to_another_and_takes_it_over(
    kind: Kind, level: str, orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    script = routes({"CHILD-TASK": CHILD, "PARENT-TASK": parent})
    with walled(kind, level, script, monkeypatch, private_home) as llm:
        status = await orchard.run(f"name: Help\njobs: [{{id: a, work: {asks(kind, 'PARENT-TASK')}}}]")

        told = "\n".join(result for asked in llm.requests for result in asked.results)
    assert statuses(status) == {"a": "succeeded"}, (job(status, "a")["error"], told[-3000:])
    assert orchard.repo.files("work")["both.txt"] == "draft\nfrom the child\n", told[-3000:]
    (subtask,) = job(status, "a")["subtasks"]
    assert (subtask["status"], subtask["pulled"]) == ("completed", True)


def only(*names: str) -> list[Kind]:
    return [kind for kind in KINDS if kind.name in names]


@pytest.mark.parametrize("kind", [BUILTIN, *only("claude")], ids=lambda kind: kind.id)
async def test_what_the_work_allows_is_let_through_to_where_it_leads(
    kind: Kind, orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    # Nothing answers to this name; that it was looked up, and not refused, is what counts.
    script = steps(Shell(f"{REACHES}; echo done > done.txt"), Say("Done."))
    allows = asks(kind, "Reach").replace("{type", "{allowed_urls: [second.example], type")
    with walled(kind, LEVELS[0], script, monkeypatch, private_home):
        status = await orchard.run(f"name: One\njobs: [{{id: a, work: {allows}}}]")

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert "second.example:80" not in {one.name for one in orchard.events(SandboxRefused)}


TOOLS = """
    git add -A; git commit -qm first; echo staged > staged.txt; git add staged.txt; git rev-parse HEAD:one.txt
"""


async def test_the_built_in_agents_own_tools_keep_to_what_is_protected_and_find_what_its_commands_committed(
    orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    orchard.repo.commit({".github/workflows/ci.yml": "on: push\n"})
    script = steps(
        Call("write_file", {"path": ".github/workflows/ci.yml", "content": "evil"}),
        Call("write_file", {"path": ".github/workflows/more/evil.yml", "content": "evil"}),
        Call("edit_file", {"path": ".github/workflows/ci.yml", "old_text": "push", "new_text": "evil"}),
        Call("write_file", {"path": "one.txt", "content": "one\n"}),
        Shell(TOOLS.strip()),
        Call("git_log", {"count": 1}),
        Call("git_diff", {"staged": True}),
        Call("git_commit", {"message": "second"}),
        Say("Done."),
    )
    with walled(BUILTIN, LEVELS[0], script, monkeypatch, private_home) as llm:
        status = await orchard.run(f"name: Own\njobs: [{{id: a, work: {asks(BUILTIN, 'Use your tools')}}}]")

        told = llm.requests[-1].results
    assert statuses(status) == {"a": "succeeded"}, (job(status, "a")["error"], told)
    for refused in told[:3]:
        assert 'unprotected: [".github/workflows"]' in refused
    assert "first" in told[5] and "+staged" in told[6], told
    landed = orchard.repo.files("work")
    assert landed[".github/workflows/ci.yml"] == "on: push\n" and landed["staged.txt"] == "staged\n"
    assert not [name for name in landed if "evil" in name]


async def test_what_the_plan_opens_the_built_in_agents_own_tools_write(
    orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    orchard.repo.commit({".github/workflows/ci.yml": "on: push\n"})
    script = steps(
        Call("write_file", {"path": ".github/workflows/ci.yml", "content": "on: pull_request\n"}), Say("Ok.")
    )
    opens = "unprotected: ['.github/workflows']"
    with walled(BUILTIN, LEVELS[0], script, monkeypatch, private_home):
        status = await orchard.run(f"name: Own\n{opens}\njobs: [{{id: a, work: {asks(BUILTIN, 'Write')}}}]")

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert orchard.repo.files("work")[".github/workflows/ci.yml"] == "on: pull_request\n"


OWN = """
[agents.mine]
command = "sh -c 'env > env.txt; echo fine'"
pass_env = ["XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"]
"""


@pytest.mark.parametrize("known", [False, True])
async def test_an_agent_of_which_nothing_is_known_reaches_what_is_public_and_that_is_told_once(
    orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path, known: bool
) -> None:
    kind = Kind("mine", None, config=OWN + ("endpoints = ['model.example']\n" if known else ""))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
    work = asks(kind, "Anything")
    with walled(kind, LEVELS[0], steps(Say("")), monkeypatch, private_home):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(private_home / "config"))
        status = await orchard.run(f"name: Own\njobs: [{{id: a, work: {work}}}, {{id: b, needs: [a], work: {work}}}]")

    assert statuses(status)["a"] == "succeeded", job(status, "a")["error"]
    noted = [one.message for one in orchard.events(AgentNoted) if "whatever is public" in one.message]
    assert len(noted) == (0 if known else 1), noted
    seen = dict(line.partition("=")[::2] for line in orchard.repo.files("work")["env.txt"].splitlines())
    assert seen["XDG_CONFIG_HOME"] == f"{seen['HOME']}/.config" and "XDG_RUNTIME_DIR" not in seen


@pytest.mark.parametrize("level", LEVELS)
async def test_a_turn_that_may_only_read_finds_a_worktree_that_cannot_be_written_to(
    level: str, orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    (kind,) = only("codex")  # which has a shell in any case
    script = steps(Shell("echo planted > planted.txt; cat README.md"), Say("CHECK PASSED"))
    check = asks(kind, "Look").replace("{type", "{tools: read-only, type")
    with walled(kind, level, script, monkeypatch, private_home):
        status = await orchard.run(f"name: Read\njobs: [{{id: a, work: echo a > a.txt, postchecks: {check}}}]")

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert "planted.txt" not in orchard.repo.files("work")


async def test_a_server_at_an_address_of_this_machine_is_reached_through_the_door(
    orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    (kind,) = only("claude")
    script = steps(Mcp("every", "echo", {"message": "through the door"}), Shell("echo a > a.txt"), Say("Done."))
    uses = asks(kind, "Use it").replace("{type", "{mcp_servers: [every], type")
    with (
        everything_at_an_address() as url,
        walled(kind, LEVELS[0], script, monkeypatch, private_home, f"[mcp_servers.every]\nurl = '{url}'\n") as llm,
    ):
        status = await orchard.run(f"name: Serve\njobs: [{{id: a, work: {uses}}}]")

        told = "\n".join(result for asked in llm.requests for result in asked.results)
    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert "Echo: through the door" in told


@pytest.mark.parametrize("variable", ["ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"])
async def test_each_login_of_claude_that_is_in_a_variable_is_added_by_the_proxy(
    variable: str, orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    (kind,) = only("claude")
    kind = replace(kind, env=("ANTHROPIC_BASE_URL=@URL@", f"{variable}=not-a-key"))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with walled(kind, LEVELS[0], steps(Shell("env > env.txt"), Say("Done.")), monkeypatch, private_home) as llm:
        status = await orchard.run(f"name: One\njobs: [{{id: a, work: {asks(kind, 'Look')}}}]")

        assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
        assert sent(llm) == {SECRET}
    assert SECRET not in orchard.repo.files("work")["env.txt"]
