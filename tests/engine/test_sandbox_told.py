"""The wall that stands by itself, and what is told of it: its level, its limits, and the line that opens it."""

from pathlib import Path

import pytest

from orchard.config.layers import Config
from orchard.git.worktree.setup import folder_to_link
from orchard.model.events.plans import AgentNoted, PlanStarted, SandboxRefused, SandboxSet
from orchard.process.sandbox import level as levels
from orchard.process.sandbox.level import Finding, walls
from orchard.surfaces.cli.render.event_lines import event_lines
from orchard.surfaces.cli.render.job_page import job_lines
from orchard.surfaces.cli.render.lines import Line
from orchard.surfaces.cli.render.tree import look_now, status_lines
from tests.engine.conftest import Orchard, job

pytestmark = pytest.mark.anyio

LEVELS = [finding.level for finding in walls().findings if finding.works]
NONE = {"bwrap": Finding("bwrap", False, "No room."), "landlock": Finding("landlock", False, "Too old.")}
WORKS = "name: n\njobs:\n  - {id: a, work: touch a}\n"
FAILS = "name: n\njobs:\n  - {id: a, work: 'test -n \"$GO_ON\"'}\n"


@pytest.fixture
def by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORCHARD_SANDBOX")


def said(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


@pytest.mark.usefixtures("by_default")
async def test_a_wall_stands_where_the_settings_say_nothing(orchard: Orchard) -> None:
    assert Config().sandbox.level == "auto"

    status = await orchard.run(WORKS)

    assert status["plan"]["status"] == "succeeded"
    assert status["plan"]["sandbox"] == orchard.job("a")["sandbox"] == LEVELS[0]


@pytest.mark.usefixtures("by_default")
async def test_where_no_wall_can_be_had_no_program_runs_and_the_plan_says_what_to_install(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(levels, "found", lambda level: NONE[level])
        status = await orchard.run(WORKS)

    assert (status["plan"]["status"], job(status, "a")["started_at"]) == ("waiting", None)
    told = "No wall can be put around programs on this machine. bwrap: No room. landlock: Too old."
    assert told in status["plan"]["paused"]
    assert "Install bubblewrap" in status["plan"]["paused"] and 'sandbox = "off"' in status["plan"]["paused"]
    again = await orchard.ask("resume_plan")
    assert again["plan"]["status"] == "succeeded", "once it is installed, the plan goes on"


async def test_that_there_is_no_wall_stands_in_red_in_the_run_the_status_and_the_job(orchard: Orchard) -> None:
    await orchard.run(WORKS)
    app = orchard.app
    run = app.run_of(app.find_plan(None))
    started = next(one for one in app.reader.events(run.id) if isinstance(one.event, PlanStarted))
    status = app.status(None)

    red = ("sandbox off", "bad")
    assert red in event_lines(run, started)[0]
    assert red in status_lines(status, status.jobs)[0]
    assert ("off", "bad") in [piece for line in job_lines(app.job("a", None), look_now()) for piece in line]


async def test_the_weaker_wall_is_called_so(orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", "landlock")
    await orchard.run(WORKS)
    status = orchard.app.status(None)

    assert "sandbox landlock (weaker: see 'orchard doctor')" in said(status_lines(status, status.jobs))


async def test_limits_that_hold_are_told_with_the_plan_and_its_jobs(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX_FILES", "256")
    off = await orchard.run(WORKS)
    assert off["plan"]["limits"] == [], "without a wall none holds"

    monkeypatch.setenv("ORCHARD_SANDBOX", LEVELS[0])
    status = await orchard.run(WORKS)

    limits = ["Open files: at most 256 for each process."]
    assert status["plan"]["limits"] == orchard.job("a")["limits"] == limits
    shown = orchard.app.status(None)
    assert f"limit: {limits[0]}" in said(status_lines(shown, shown.jobs))
    assert limits[0] in said(job_lines(orchard.app.job("a", None), look_now()))


async def test_a_plan_that_goes_on_with_other_settings_says_which_wall_it_has_now(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = await orchard.run(FAILS)
    assert failed["plan"]["sandbox"] == "off"

    monkeypatch.setenv("ORCHARD_SANDBOX", LEVELS[0])
    monkeypatch.setenv("ORCHARD_SANDBOX_FILES", "256")
    again = await orchard.ask("retry_plan")

    assert again["plan"]["sandbox"] == orchard.job("a")["sandbox"] == LEVELS[0]
    assert orchard.events(SandboxSet) == [SandboxSet(LEVELS[0], ("Open files: at most 256 for each process.",))]
    monkeypatch.setenv("ORCHARD_SANDBOX", "off")
    assert (await orchard.ask("retry_plan"))["plan"]["sandbox"] == "off", "and it is never told wrong"


async def test_a_folder_that_worktrees_share_by_a_link_is_read_and_the_line_that_opens_it_is_told(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = orchard.repo.path / "node_modules"
    orchard.repo.commit({".gitignore": "node_modules\n"})
    shared.mkdir()
    (shared / "tool").write_text("tool\n")
    monkeypatch.setenv("ORCHARD_WORKTREE_LINK", "node_modules")
    monkeypatch.setenv("ORCHARD_SANDBOX", LEVELS[0])
    uses = "name: n\njobs:\n  - {id: a, work: 'cat node_modules/tool > read.txt && mkdir node_modules/made'}\n"

    status = await orchard.run(uses)

    (refused,) = orchard.events(SandboxRefused)
    assert (refused.reason, refused.setting) == ("read-only", f'sandbox.write = ["{shared}"]')
    assert refused.setting in str(job(status, "a")["hint"]) and not (shared / "made").exists()
    monkeypatch.setenv("ORCHARD_SANDBOX_WRITE", str(shared))
    done = await orchard.ask("retry_plan")
    assert done["plan"]["status"] == "succeeded" and (shared / "made").is_dir()
    assert orchard.repo.files("work")["read.txt"] == "tool\n"


@pytest.mark.parametrize("name", [".git/orchard", "../outside", "linked"])
def test_nothing_else_is_opened_by_the_name_of_a_link(orchard: Orchard, name: str, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (orchard.repo.path / "linked").symlink_to(tmp_path / "outside")

    assert folder_to_link(orchard.repo.path, name) is None


async def test_a_failed_program_that_was_told_of_a_hidden_file_and_says_nothing_gets_the_line_that_opens_it(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", LEVELS[0])
    (tmp_path / "data.txt").write_text("data\n")
    reads = (
        f"name: n\nenv: {{DATA: {tmp_path}/data.txt}}\njobs:\n  - {{id: a, work: 'cat \"$DATA\" 2>/dev/null > a'}}\n"
    )

    status = await orchard.run(reads)

    assert f'sandbox.expose = ["{tmp_path}/data.txt"]' in str(job(status, "a")["hint"])
    assert not orchard.events(SandboxRefused), "it may not have been the wall"


async def test_no_line_is_named_that_would_open_the_repositorys_own_git(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", LEVELS[0])

    status = await orchard.run("name: n\njobs:\n  - {id: a, work: git tag mine}\n")

    hint = str(job(status, "a")["hint"])
    assert "A job does not change branches, tags or settings of the repository" in hint and "sandbox." not in hint
    assert not orchard.events(SandboxRefused)


MEDIC = """#!/bin/sh
log=$(printf '%s' "$1" | sed -n 's/.*All of its output is in `\\(.*\\)`.*/\\1/p')
[ -z "$log" ] || cat "$log" > said.txt
echo shared > {shared}/out.txt; touch done-$ORCHARD_JOB
"""


@pytest.mark.parametrize("level", LEVELS)
async def test_an_agent_that_heals_reads_the_log_it_is_told_of_and_writes_to_the_folders_it_is_allowed(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, level: str, private_home: Path
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", level)
    shared, medic = tmp_path / "shared", private_home / "medic"
    shared.mkdir()
    medic.write_text(MEDIC.format(shared=shared))
    medic.chmod(0o755)
    (private_home / "config/orchard").mkdir()
    (private_home / "config/orchard/config.toml").write_text(f'[agents.medic]\ncommand = "{medic} {{prompt}}"\n')
    check = "test -e said.txt || { echo told in the log; exit 1; }"
    heals = f"name: n\njobs:\n  - id: a\n    work: touch a\n    postchecks: '{check}'\n"
    works = f"  - id: b\n    work: {{type: agent, agent: medic, instructions: Go, allowed_folders: ['{shared}']}}\n"
    monkeypatch.setenv("ORCHARD_HEAL_AGENT", "medic")

    status = await orchard.run(heals + works)

    assert status["plan"]["status"] == "succeeded", status["jobs"]
    assert "told in the log" in orchard.repo.files("work")["said.txt"]
    assert (shared / "out.txt").read_text() == "shared\n"
    assert not [one for one in orchard.events(AgentNoted) if "no effect" in one.message]


async def test_a_program_that_finds_no_server_of_this_machine_is_told_that_its_loopback_is_its_own(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", LEVELS[0])
    connects = "echo connect to localhost:5432 failed, Connection refused; exit 1"

    status = await orchard.run(f"name: n\njobs:\n  - {{id: a, work: '{connects}'}}\n")

    assert "no server of this machine is there" in str(job(status, "a")["hint"])
