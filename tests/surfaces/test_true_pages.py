"""What the pages say is what happens: plan files are checked in full, bodies are accepted, no agent is asked."""

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from orchard.planfile.parse import parse
from orchard.surfaces.http.operation import Part
from orchard.surfaces.http.operations import ROUTES
from tests.acceptance.program import Desk, desks

ROOT = Path(__file__).parent.parent.parent
BODY = re.compile(r"`(POST|PATCH) (/\S+)` \| .*?`(\{.*?\})`", re.MULTILINE)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


# --------------------------------------------------------------------------------------- validate

BAD = """
name: Bad
base: nosuch
target: "bad..x"
jobs:
  - {id: a, work: "@clade x"}
  - {id: b, work: "@nosuch x"}
"""


def test_validate_says_at_once_and_with_its_place_whatever_would_keep_a_plan_from_starting(desk: Desk) -> None:
    plan = desk.plan(BAD)

    done = desk("validate", plan)

    assert done.code == 2
    for place, words in {
        ":3:7 base": "no branch or commit 'nosuch'",
        ":4:9 target": "'bad..x' is not a name that git allows",
        ":6:19 jobs[0].work": "did you mean 'claude'?",
        ":7:19 jobs[1].work": "no agent 'nosuch'",
    }.items():
        assert any(place in row and words in row for row in done.err.splitlines()), (place, done.err)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("after: nosuch\njobs: [{id: a, work: 'true'}]", ":2:8 after: There is no plan 'nosuch'"),
        (
            "jobs: [{id: a, work: 'true', postchecks: {instructions: x, interactive: true}}]",
            "jobs[0].postchecks[0].interactive: a check or a setup is interactive",
        ),
        ("verify: {instructions: x, interactive: true}\njobs: [{id: a, work: 'true'}]", ":2:40 verify.interactive"),
        (
            "env: {CI: '1', PATH: /x}\njobs: [{id: a, work: '@builtin x'}]",
            ":2:22 env.PATH: a plan may not set 'PATH' for an agent: it decides where keys go or which programs run; "
            "'allow_env' of [agents.builtin]",
        ),
        (
            "jobs: [{id: a, env: {ANTHROPIC_BASE_URL: 'http://x'}, work: '@builtin x'}]",
            "jobs[0].env.ANTHROPIC_BASE_URL: a plan may not set",
        ),
        (
            "setup: [{agent: builtin, instructions: x}]\njobs: [{id: a, work: 'true', env: {HOME: /x}}]",
            "jobs[0].env.HOME: a plan may not set",
        ),
        (
            "setup: [{agent: builtin, instructions: x, allowed_folders: [/not/there]}]\njobs: [{id: a, work: 'true'}]",
            ":2:61 setup[0].allowed_folders[0]: there is no folder '/not/there'",
        ),
        (
            "verify: {agent: builtin, instructions: x, allowed_folders: [nosuch]}\njobs: [{id: a, work: 'true'}]",
            "verify.allowed_folders[0]: there is no folder 'nosuch'",
        ),
        *(
            (f"jobs: [{{id: a, work: {{agent: builtin, instructions: x, allowed_folders: [{odd}]}}}}]", "no folder '")
            for odd in ("~nosuchperson/x", "x" * 300, "loop")
        ),
        ("worktree_root: .git\njobs: [{id: a, work: 'true'}]", ":2:16 worktree_root"),
    ],
)
def test_validate_refuses_what_run_would_refuse(desk: Desk, fields: str, said: str) -> None:
    plan = desk.plan(f"name: x\n{fields}\n")
    (desk.repo.path / "loop").symlink_to("loop")

    checked, ran = desk("validate", plan), desk("run", plan)

    assert checked.code == 2 and said in checked.err, checked.err
    assert ran.code in (2, 3)


def test_a_run_that_comes_after_a_plan_which_failed_says_what_it_waits_for_and_what_helps(desk: Desk) -> None:
    desk("run", desk.plan("name: One\njobs: [{id: a, work: 'false', heal: false}]\n", "one.yaml"))

    done = desk("run", desk.plan("name: Two\nafter: One\njobs: [{id: b, work: 'true'}]\n"))

    assert done.code == 4
    assert "that one has failed" in done.talk and "orchard resume two-" in done.talk


# ------------------------------------------------------------------------------------ the rights of agents

REACHING = """
name: Reaching
start_paused: true
setup: [{agent: builtin, model: m, instructions: x, allowed_folders: [~/.ssh]}]
jobs:
  - {id: a, work: {agent: builtin, model: m, instructions: x, allowed_folders: [/, .git/hooks, link, docs]}}
"""


def test_validate_and_the_first_lines_of_a_run_tell_where_agents_may_write(desk: Desk) -> None:
    home, elsewhere = desk.folder / "home", desk.folder / "elsewhere"
    for folder in (home / ".ssh", elsewhere, desk.repo.path / "docs"):
        folder.mkdir(parents=True)
    (desk.repo.path / "link").symlink_to(elsewhere)
    plan, env = desk.plan(REACHING), {**USABLE, "HOME": str(home)}

    checked = desk("validate", plan, cwd=None, stdin=b"", **env)
    ran = desk("run", "--detach", plan, cwd=None, stdin=b"", **env)

    words = {
        "'~/.ssh'": "secrets are kept there",
        "'/': ": "all of it",
        "'.git/hooks'": "git keeps the repository there",
        f"'link' is '{elsewhere.resolve()}'": "outside of the repository",
    }
    for done in (checked, ran):
        assert done.code == 0, done.err
        for named, said in words.items():
            assert any(named in row and said in row for row in done.err.splitlines()[:8]), (named, done.err)
        assert "'docs'" not in done.err
    assert "setup[0].allowed_folders[0]" in checked.err and "job 'a'.work.allowed_folders[0]" in ran.err


BARE = f"{Path(shutil.which('git') or '').parent}:/usr/bin:/bin"
"""Without the programs of agents that a person may have installed."""
USABLE = {"ANTHROPIC_API_KEY": "not-a-key", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("fields", "env", "said"),
    [
        ("start_paused: true\njobs: [{id: a, work: {agent: builtin, model: m, instructions: x}}]", USABLE, True),
        ("jobs: [{id: a, work: 'echo a > a', heal: true}]\nresolver: fail", USABLE, True),
        ("jobs: [{id: a, work: 'echo a > a'}]", USABLE, True),
        ("jobs: [{id: a, work: 'echo a > a'}]\nresolver: fail", USABLE, False),
        ("jobs: [{id: a, work: 'echo a > a'}]", {"PATH": BARE}, False),
    ],
    ids=["work", "heal", "resolve", "none is asked", "no agent is usable"],
)
def test_the_first_line_of_a_run_says_that_agents_have_the_rights_of_the_user(
    desk: Desk, fields: str, env: dict[str, str], said: bool
) -> None:
    done = desk("run", "--detach", desk.plan(f"name: x\n{fields}\n"), cwd=None, stdin=b"", **env)

    lines = [line for line in done.err.splitlines() if line]
    assert done.code == 0, done.err
    assert any("Agents run with your rights" in line for line in lines[:2]) == said, lines
    if said and "agent:" not in fields:
        why = "a check fails" if "heal" in fields else "a merge conflicts"
        assert f"If {why}, Orchard may ask builtin to help." in done.err
    else:
        assert said or "may be asked" not in done.err


@pytest.mark.parametrize(
    ("options", "job", "env", "said"),
    [
        (
            ["--heal"],
            "",
            {"PATH": BARE},
            "warning: No agent can be used here, so Orchard heals nothing: orchard agents",
        ),
        (
            [],
            ", heal: true",
            {"PATH": BARE},
            "warning: No agent can be used here, so Orchard heals nothing: orchard agents",
        ),
        (["--heal"], "", {"PATH": BARE, "ORCHARD_AGENT": "codex"}, "warning: Agent 'codex' cannot be used here"),
        (["--heal"], "", USABLE, None),
        (["--no-heal"], "", {"PATH": BARE}, None),
        ([], "", {"PATH": BARE}, None),
    ],
    ids=["option", "plan", "named", "usable", "forbidden", "nobody asked"],
)
def test_healing_that_was_asked_for_and_has_no_agent_is_said_at_the_start_and_at_the_failure(
    desk: Desk, options: list[str], job: str, env: dict[str, str], said: str | None
) -> None:
    plan = desk.plan(f"name: x\njobs: [{{id: a, work: 'exit 3'{job}}}]\n")
    usable = env is USABLE

    done = desk("run", *options, *(["--detach"] if usable else []), plan, cwd=None, stdin=b"", **env)

    assert done.code == (0 if usable else 1), done.err
    first = done.err.partition("exit")[0]
    assert (said in first) if said else "heals" not in done.err, done.err
    assert ("note: healing was skipped: no agent is usable" in done.out) == bool(said), done.out


def test_a_run_says_what_it_leaves_out_whose_name_it_commits_under_and_which_hooks_do_not_run(desk: Desk) -> None:
    (desk.repo.path / "hooks").mkdir()
    for name, mode in (("pre-commit", 0o755), ("commit-msg", 0o644), ("pre-push.sample", 0o755)):
        (desk.repo.path / "hooks" / name).write_text("#!/bin/sh\n")
        (desk.repo.path / "hooks" / name).chmod(mode)
    desk.repo("config", "core.hooksPath", "hooks")
    tracked = next(path for path in desk.repo.path.iterdir() if path.is_file())
    tracked.write_text("edited\n")
    (desk.repo.path / "new.txt").write_text("forgotten\n")
    plan = desk.plan("name: x\njobs: [{id: a, work: 'echo a > a'}]\n")

    done = desk("run", plan, cwd=None, stdin=b"", PATH=BARE)
    quiet = desk("run", "--quiet", plan, cwd=None, stdin=b"", PATH=BARE)

    assert "1 uncommitted file and 2 untracked are not part of this run." in done.err, "the folder of hooks, too"
    assert "Orchard commits as Ada Tester <ada@example.com>. Git hooks do not run (pre-commit)." in done.err
    assert "uncommitted" not in quiet.err and "Commits" not in quiet.err


def test_validate_needs_no_repository(desk: Desk) -> None:
    plan = desk.plan(BAD.replace("@clade", "echo").replace("@nosuch", "echo"))

    assert desk("validate", plan, cwd=desk.folder).code == 0


def test_a_run_names_every_agent_that_is_not_there(desk: Desk) -> None:
    done = desk("run", desk.plan(BAD.replace('base: nosuch\ntarget: "bad..x"\n', "")))

    assert done.code == 2 and "'clade'" in done.err and "'nosuch'" in done.err
    assert not desk.events()


# ------------------------------------------------------------------------------------------- YAML


@pytest.mark.parametrize(
    ("written", "meant"), [("1:30", "1:30"), ("http://a.b/c", "http://a.b/c"), ("a:b", "a:b"), ("'x:y'", "x:y")]
)
def test_text_with_a_colon_inside_is_text_in_braces_as_it_is_in_a_block(written: str, meant: str) -> None:
    braces = parse(f"name: x\nenv: {{X: {written}}}\njobs: [{{id: a, work: 'true'}}]\n".encode())
    block = parse(f"name: x\nenv:\n  X: {written}\njobs: [{{id: a, work: 'true'}}]\n".encode())

    assert braces.env == block.env == {"X": meant}


# ------------------------------------------------------------------------------------------ pages


def test_every_body_that_the_page_of_the_api_shows_is_accepted() -> None:
    shown = BODY.findall((ROOT / "docs" / "api.md").read_text())
    assert len(shown) >= 5
    for method, path, body in shown:
        if "..." in body:
            continue
        operation = next(one for one in ROUTES if one.method == method and one.path == path)
        assert operation.body is not None and not isinstance(operation.body, Part), path
        try:
            operation.body.model_validate_json(body)
        except ValidationError as error:
            pytest.fail(f"{method} {path} refuses {body}: {error}")


def test_no_text_tells_people_to_install_a_package_that_is_not_ours() -> None:
    places = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "src").rglob("*.py")]

    installed = r"(?:pip|pipx|tool) install '?(orchard[\w-]*)|orchard-agents\[([\w,]+)\]"
    named = {found.groups() for place in places for found in re.finditer(installed, place.read_text("utf-8"))}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]

    assert {name for name, _ in named if name} == {"orchard-agents"}
    assert {one for _, some in named if some for one in some.split(",")} == {"metrics", "tracing"} <= set(extras)


def test_the_demo_asks_no_agent_for_anything(desk: Desk, tmp_path: Path) -> None:
    trace = tmp_path / "asked"
    config = tmp_path / "config" / "orchard"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f'agent = "mine"\n[agents.mine]\ncommand = "touch"\nargs = ["{trace}"]\n')

    done = desk("demo", "--folder", tmp_path / "demo")

    assert done.code == 0, done.talk
    assert not trace.exists()


@pytest.mark.parametrize("words", [["--run"], ["--file", "there.yaml"]])
def test_a_plan_that_needs_a_yes_waits_for_a_person(desk: Desk, words: list[str]) -> None:
    (desk.repo.path / "there.yaml").write_text("name: mine\n")

    done = desk("plan", "Do something", *words)

    assert done.code == 4 and "--yes" in done.err


# -------------------------------------------------------------------------- fields that are accepted


def test_a_folder_that_cannot_be_linked_is_warned_about(desk: Desk) -> None:
    config = desk.folder / "config" / "orchard"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[worktree]\nlink = ["shared"]\n')
    (desk.repo.path / "shared").mkdir()

    done = desk("run", desk.plan("name: x\njobs: [{id: a, work: 'echo a > a'}, {id: b, work: 'echo b > b'}]\n"))

    assert done.code == 0 and done.out.split("Succeeded")[1].count("'shared' of 'worktree.link' is not linked") == 1


def test_a_file_to_read_first_that_is_not_there_is_warned_about(desk: Desk) -> None:
    config = desk.folder / "config" / "orchard"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[agents.mine]\ncommand = "touch"\nargs = ["made.txt"]\n')
    work = "{agent: mine, instructions: x, context_files: [README.md, nowhere.md]}"

    desk("run", desk.plan(f"name: x\njobs: [{{id: a, work: {work}}}]\n"))
    warnings = desk.status()["plan"]["warnings"]

    assert [one for one in warnings if "nowhere.md" in one] and not [one for one in warnings if "README" in one]


def test_what_evidence_found_is_shown(desk: Desk) -> None:
    said = json.dumps({"type": "analysis", "summary": "counted", "outcome": {"files": 17}})
    desk("run", desk.plan(f"name: x\njobs:\n  - id: a\n    work: |\n      echo '{said}' > \"$ORCHARD_EVIDENCE\"\n"))

    shown = desk("job", "a").out

    assert "analysis: counted" in shown and "files: 17" in shown
