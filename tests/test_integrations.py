"""Files by which other programs use Orchard: they can be read, they agree with the project, and what they run works."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from orchard import __version__
from orchard.surfaces.cli.verbs import VERBS
from orchard.surfaces.mcp.hosts import is_ours
from tests.acceptance.program import Desk, desks
from tests.test_distribution import metadata

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ACTION, WORKFLOW = ".github/actions/run/action.yml", ".github/workflows/plan.yml"
PLUGIN = ROOT / "packaging" / "claude-plugin"
GOOD = 'name: Good\ntarget: goal\njobs:\n  - {id: one, work: "echo 1 > one.txt"}\n'


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def yaml(name: str) -> Any:
    return YAML(typ="safe").load((ROOT / name).read_text("utf-8"))


def document(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def steps(name: str) -> list[Any]:
    found = yaml(name)
    return list(found["runs"]["steps"] if "runs" in found else found["jobs"]["run"]["steps"])


def inputs(name: str) -> dict[str, Any]:
    found = yaml(name)
    held = found["inputs"] if "inputs" in found else found["on"]["workflow_call"]["inputs"]
    return dict(held)


# -------------------------------------------------------------------------------------------- MCP


def test_the_entry_for_the_registry_agrees_with_the_package() -> None:
    template = (ROOT / "packaging" / "server.json").read_text("utf-8")
    server = json.loads(template.replace("@OWNER@", "owner"))
    (package,) = server["packages"]

    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
    assert server["version"] == package["version"] == __version__
    assert server["description"] == PROJECT["description"] and len(server["description"]) <= 100
    assert package["identifier"] == PROJECT["name"]
    assert PROJECT["scripts"][package["identifier"]] == PROJECT["scripts"]["orchard"], "uvx starts it by that name"
    assert [one["value"] for one in package["packageArguments"]] == ["mcp"] and "mcp" in VERBS
    assert set(re.findall(r"@[A-Z]+@", template)) == {"@OWNER@"}
    assert "s|@OWNER@|" in (ROOT / ".github/workflows/release.yml").read_text("utf-8")


def test_the_published_readme_proves_whose_server_it_is() -> None:
    server = (ROOT / "packaging" / "server.json").read_text("utf-8").replace("@OWNER@", "some-one")

    text = metadata("https://github.com/some-one/orchard")["readme"]["text"]

    assert f"<!-- mcp-name: {json.loads(server)['name']} -->" in text
    assert "mcp-name" not in metadata("https://forge.example/owner/orchard")["readme"]["text"]


def test_the_plugin_for_claude_code_has_our_server_and_our_skill() -> None:
    manifest = document(PLUGIN / ".claude-plugin" / "plugin.json")
    (listed,) = document(ROOT / ".claude-plugin" / "marketplace.json")["plugins"]
    servers = document(PLUGIN / ".mcp.json")["mcpServers"]
    skill = PLUGIN / "skills" / "orchard" / "SKILL.md"

    assert (manifest["name"], manifest["version"]) == (listed["name"], __version__)
    assert manifest["description"] == listed["description"] == PROJECT["description"]
    assert manifest["license"] == PROJECT["license"]
    assert (ROOT / listed["source"]).resolve() == PLUGIN
    assert list(servers) == ["orchard"] and is_ours(servers["orchard"])
    assert skill.read_bytes() == (ROOT / "src/orchard/surfaces/cli/skill.md").read_bytes()


# ----------------------------------------------------------------------------------------- GitHub


@pytest.mark.parametrize("name", [ACTION, WORKFLOW])
def test_inputs_reach_scripts_as_variables_only_and_all_are_used(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    given = inputs(name)

    assert all("${{" not in step.get("run", "") for step in steps(name)), "text of a stranger would become a command"
    assert set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", text)) == set(given)
    assert given["version"]["default"] == __version__
    assert f"/{Path(name).parent if name == ACTION else name}@v{__version__}" in text
    assert f'"{PROJECT["name"]}==$VERSION"' in text


@pytest.mark.parametrize("name", [ACTION, WORKFLOW])
def test_the_page_uses_them_as_they_are(name: str) -> None:
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    used = f"OWNER/orchard/{Path(name).parent if name == ACTION else name}@v{__version__}"

    found = re.findall(rf"uses: {re.escape(used)}\n +with: {{(.*)}}", page)

    assert found
    for words in found:
        assert {word.partition(":")[0].strip() for word in words.split(",")} <= set(inputs(name))


def script(name: str, desk: Desk, **env: str) -> "subprocess.CompletedProcess[str]":
    (step,) = [step for step in steps(name) if step.get("name") == "Run the plan"]
    given = {**desk.env, **env, "PATH": f"{Path(sys.executable).parent}:{desk.env['PATH']}"}
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]],
        cwd=desk.repo.path, env=given, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_script_of_the_action_runs_a_plan_and_leaves_its_reports(desk: Desk) -> None:
    step, xml = desk.folder / "step.md", desk.folder / "jobs.xml"
    env = {"PLAN": str(desk.plan(GOOD)), "TARGET": "result", "JUNIT": str(xml), "ARGS": "--no-push --max-parallel 1"}

    done = script(ACTION, desk, **env, GITHUB_STEP_SUMMARY=str(step))

    assert done.returncode == 0, done.stderr
    assert desk.repo.files("result")["one.txt"] == "1\n"
    assert xml.is_file() and "✅" in step.read_text()


def test_the_script_of_the_action_needs_a_plan_only_and_hands_its_failure_on(desk: Desk) -> None:
    env = {"PLAN": str(desk.plan(GOOD.replace("echo 1", "exit 1;"))), "TARGET": "", "JUNIT": "", "ARGS": ""}

    assert script(ACTION, desk, **env).returncode == 1


def test_the_script_of_the_workflow_runs_a_plan(desk: Desk) -> None:
    env = {"PLAN": str(desk.plan(GOOD)), "TARGET": "result", "PUSH": "false", "RUNNER_TEMP": str(desk.folder)}

    done = script(WORKFLOW, desk, **env)

    assert done.returncode == 0, done.stderr
    assert desk.repo.files("result")["one.txt"] == "1\n"
    assert (desk.folder / "jobs.xml").is_file()


# ------------------------------------------------------------------------------------- pre-commit


def test_the_hook_of_pre_commit_checks_every_plan_file_it_is_given(desk: Desk) -> None:
    (hook,) = yaml(".pre-commit-hooks.yaml")
    good, bad = desk.plan(GOOD), desk.plan("name: Bad\njobs: [{id: a, wrok: x}]\n", "bad.yaml")
    worse = desk.plan("jobs: []\n", "worse.yaml")
    program, *words = shlex.split(hook["entry"])

    fine, wrong = desk(*words, good, good), desk(*words, bad, good, worse)

    assert program == "orchard" and hook["language"] == "python"
    assert fine.code == 0 and fine.out.count("valid: Good") == 2
    assert wrong.code == 2 and wrong.out.count("valid: Good") == 1
    assert "bad.yaml:1" in wrong.err or "bad.yaml:2" in wrong.err
    assert "worse.yaml:1" in wrong.err
    names = ("plan.yaml", "a/plan.yml", "plan.json", "deep/er/plan.toml")
    assert all(re.search(hook["files"], name) for name in names)
    assert not any(re.search(hook["files"], name) for name in ("myplan.yaml", "plan.yaml.j2", "plans/x.yaml"))


def test_several_plans_are_rows_of_json(desk: Desk) -> None:
    plan = desk.plan(GOOD)

    rows = [json.loads(row) for row in desk("validate", plan, plan, "--json").out.splitlines()]

    assert [(row["file"], row["valid"]) for row in rows] == [(str(plan), True)] * 2
