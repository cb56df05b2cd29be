"""Definitions as a user meets them: in `orchard agents`, in `validate`, and with the agent that works alone."""

from pathlib import Path

import pytest

from orchard.testing import Repo
from tests.agents.llm import Say, ScriptedLlm, steps
from tests.surfaces.test_agents import Desk

ARCHITECT = "---\nname: architect\ndescription: Designs \x1b[31mthings\nmodel: opus\ntools: Read\n---\nBe careful.\n"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo", files={".claude/agents/architect.md": ARCHITECT})
    made.commit({".claude/agents/claude.md": ARCHITECT.replace("architect", "claude"), ".gitignore": ".agents/\n"})
    made.write({".claude/agents/fresh.md": ARCHITECT.replace("architect", "fresh"), ".agents/skills/s/SKILL.md": "x"})
    return made


def test_they_are_listed_with_their_origin_and_why_some_are_not_used(desk: Desk, repo: Repo) -> None:
    own = desk.folder / "home" / ".claude" / "agents"
    own.mkdir(parents=True)
    (own / "mine.md").write_text(ARCHITECT.replace("architect", "mine"))
    done = desk.orchard("agents", cwd=repo.path)

    assert "architect   repository  Designs things" in done.out and "mine        user" in done.out
    assert ".claude/agents/fresh.md is not used: it is not committed" in done.out
    assert "'AGENT:claude' means this definition" in done.out and "\x1b" not in done.out
    rows = {one["file"]: one for one in desk.orchard("agents", "--json", cwd=repo.path).json["definitions"]}
    assert rows[".claude/agents/architect.md"] == {
        "name": "architect", "description": "Designs things", "origin": "repository",
        "file": ".claude/agents/architect.md", "model": "opus", "tools": ["Read"], "agent": None, "usable": True,
        "why_not": None,
    }  # fmt: skip
    assert rows["~/.claude/agents/mine.md"]["origin"] == "user"


def test_one_is_shown_with_its_text_and_outside_of_a_repository_there_are_the_users(desk: Desk, repo: Repo) -> None:
    desk.configure('[agents.planner]\ninstructions = "Plan first."\ntools = "read-only"\n')
    shown = desk.orchard("agents", "architect", cwd=repo.path)
    assert "Be careful." in shown.out and "repository: .claude/agents/architect.md" in shown.out
    assert desk.orchard("agents", "@planner", "--json").json["instructions"] == "Plan first."
    assert "not committed" in desk.orchard("agents", "fresh", cwd=repo.path).out
    missing = desk.orchard("agents", "architekt", cwd=repo.path)
    assert missing.code == 3 and "did you mean 'architect'?" in missing.err


def test_validate_tells_what_has_no_effect_and_what_jobs_will_miss(desk: Desk, repo: Repo) -> None:
    (repo.path / "plan.yaml").write_text('name: P\njobs: [{id: a, work: "@builtin:architect Go"}]\n')
    done = desk.orchard(
        "validate", "plan.yaml", cwd=repo.path, ANTHROPIC_API_KEY="x", ANTHROPIC_BASE_URL="http://127.0.0.1:9"
    )

    assert done.code == 0, done.err
    assert "'model: opus' in .claude/agents/architect.md has no effect" in done.err
    assert "brings it along: /.agents/" in done.err


def test_the_agent_that_works_alone_takes_a_definition(desk: Desk, repo: Repo) -> None:
    with ScriptedLlm(steps(Say("Fine."))) as llm:
        env = {"ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": llm.url}
        done = desk.orchard("agent", "@architect Where does it go?", "--model", "fake-model", cwd=repo.path, **env)
        assert done.code == 0, done.err
        asked = llm.requests[-1]
        assert "Where does it go?\\n\\n---\\n\\n## Your role: `architect`" in str(asked.body["messages"]).replace(
            "\n", "\\n"
        )
        assert {name for name in asked.tools if not name.startswith("mcp__orchard__")} == {"read_file"}
        other = desk.orchard("agent", "@claude:architect x", cwd=repo.path, **env)
    assert other.code == 2 and "the built-in one works alone" in other.err


def test_validate_tells_all_problems_at_once_whatever_kind_they_are(desk: Desk, repo: Repo) -> None:
    (repo.path / "plan.yaml").write_text("""
name: P
base: nowhere
jobs:
  - {id: a, work: "@architekt Go", agnet: x}
  - {id: b, needs: [q], work: {command: make, timeout: never}}
  - {id: c, work: make, postchecks: {instructions: look, interactive: true}}
""")
    done = desk.orchard("validate", "plan.yaml", cwd=repo.path)

    assert done.code == 2
    for said in (
        "base: There is no branch or commit 'nowhere'",
        "There is no agent 'architekt', and no definition of that name",
        "unknown field 'agnet'; did you mean 'agent'?",
        "there is no job 'q'",
        "'never' is not a duration",
        "only the work of a job can be",
    ):
        assert said in done.err, done.err


def test_validate_tells_unknown_tools_with_the_nearest_name_and_a_task_that_no_agent_does(
    desk: Desk, repo: Repo
) -> None:
    (repo.path / "plan.yaml").write_text("""
name: P
jobs:
  - {id: a, task: Write it}
  - id: b
    tools: [Read, raed_file, "git_*", "mcp__x__y"]
    work: {agent: builtin, instructions: go, deny_tools: [bsah, "gti_*"]}
""")
    done = desk.orchard("validate", "plan.yaml", cwd=repo.path, ANTHROPIC_API_KEY="x")

    assert done.code == 0, done.err
    assert "job 'a' has a 'task' but neither 'agent' nor 'work'" in done.err
    assert "'tools: raed_file' names no tool that is known here; did you mean 'read_file'?" in done.err
    assert "'deny_tools: bsah' names no tool that is known here; did you mean 'bash'?" in done.err
    assert "'deny_tools: gti_*'" in done.err and "mcp__x__y" not in done.err and "'tools: git_*'" not in done.err
