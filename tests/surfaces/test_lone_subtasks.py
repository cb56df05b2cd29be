"""`orchard agent` that hands work to others: each subtask is a plan of one job, and the agent pulls what it wants."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchard.testing import Repo
from tests.agents.llm import Asked, Hang, Mcp, Reply, Say, ScriptedLlm, Shell, routes, steps
from tests.nursery import command
from tests.surfaces.test_agent import environment, rows

SUBTASK = re.compile(r"subtask-[a-z0-9]+")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo", files={"README.md": "# small\n", "kept.txt": "kept\n"})
    made("checkout", "-q", "-b", "work")
    return made


def lone(repo: Repo, llm: ScriptedLlm, *words: str) -> "subprocess.CompletedProcess[str]":
    return command("agent", *words, "--model", "fake-model", cwd=repo.path, env=environment(llm), seconds=180)


def ids(asked: Asked) -> list[str]:
    return list(dict.fromkeys(SUBTASK.findall("\n".join(asked.results_since("PARENT")))))


def parent(asked: Asked) -> Reply | Sequence[Reply]:
    results, found = asked.results_since("PARENT"), ids(asked)
    script: list[Reply] = [
        Shell("printf 'draft\\n' > draft.txt; git add draft.txt; printf 'mine\\n' >> kept.txt"),
        Mcp("orchard", "spawn_subtask", {"instructions": "CHILD: go on with the draft", "name": "Helper"}),
        Mcp("orchard", "spawn_subtask", {"instructions": "RIVAL: change what the parent changed"}),
        Mcp("orchard", "await_subtasks", {}),
        Shell("printf 'again\\n' >> kept.txt"),
        Mcp("orchard", "pull_subtask_changes", {"id": found[0] if found else ""}),
        Mcp("orchard", "pull_subtask_changes", {"id": found[1] if len(found) > 1 else ""}),
        Say("All of it is here."),
    ]
    return script[min(len(results), len(script) - 1)]


CHILD = steps(
    Mcp("orchard", "spawn_subtask", {"instructions": "GRANDCHILD: too deep"}),
    Shell("sed 's/draft/from the child/' draft.txt > child.txt"),
    Say("Wrote child.txt."),
)
RIVAL = steps(Shell("printf 'theirs\\n' >> kept.txt"), Say("Changed kept.txt."))


def test_a_lone_agent_spawns_awaits_and_pulls_one_clean_and_one_conflicting_change(repo: Repo) -> None:
    with ScriptedLlm(routes({"CHILD": CHILD, "RIVAL": RIVAL, "PARENT": parent})) as llm:
        done = lone(repo, llm, "PARENT", "--json")
        told = "\n".join(result for asked in llm.requests for result in asked.results)

    assert done.returncode == 0, (done.stderr, told)
    assert (repo.path / "child.txt").read_text() == "from the child\n", told
    assert (repo.path / "kept.txt").read_text() == "kept\nmine\nagain\n"
    assert '"status": "merged"' in told and '"status": "conflict"' in told and "Wrote child.txt." in told
    assert repo("diff", "--cached", "--name-only").split() == ["draft.txt"], "the index is as the agent left it"
    assert repo.head() == repo.head("work") and repo("branch", "--list", "orchard/*") == ""
    assert rows(done)[-1]["usage"]["output"] == llm.usage().output, "what helpers used counts"
    assert not [name for name in repo.refs("refs/orchard/wip") if "/agent/" in name]


def test_a_helper_of_a_lone_agent_cannot_hand_out_work_itself(repo: Repo) -> None:
    with ScriptedLlm(routes({"CHILD": CHILD, "RIVAL": RIVAL, "PARENT": parent})) as llm:
        lone(repo, llm, "PARENT")
        asked = [one for one in llm.requests if any("CHILD" in prompt for prompt in one.prompts)]

    assert asked and not any(name.endswith("spawn_subtask") for one in asked for name in one.tools)
    assert not any("`spawn_subtask`: hand" in prompt for one in asked for prompt in one.prompts)
    assert not any("GRANDCHILD" in prompt for one in llm.requests for prompt in one.prompts)


def test_what_still_runs_when_the_agent_is_done_is_stopped_and_its_plan_is_out_of_the_way(repo: Repo) -> None:
    script = routes(
        {
            "CHILD": steps(Shell("echo half > half.txt"), Hang(Say("late"))),
            "PARENT": steps(
                Mcp("orchard", "spawn_subtask", {"instructions": "CHILD", "blocking": False}),
                Mcp("orchard", "await_subtasks", {"timeout_s": 5}),
                Say("I do not wait."),
            ),
        }
    )
    with ScriptedLlm(script) as llm:
        done = lone(repo, llm, "PARENT")
        left = command("list", "--json", cwd=repo.path)
        waiting = command("waiting", "--json", cwd=repo.path)

    assert done.returncode == 0, done.stderr
    assert json.loads(left.stdout) == [] and json.loads(waiting.stdout) == []
    assert not (repo.path / "half.txt").exists()
    saved = "".join(repo("ls-tree", "-r", "--name-only", commit) for commit in repo.refs("refs/orchard/wip").values())
    assert "half.txt" in saved, "what it did is saved"


@pytest.mark.parametrize("then", ["prune", "run"])
def test_what_a_killed_agent_left_is_out_of_the_way_and_what_its_helpers_did_can_be_recovered(
    repo: Repo, then: str
) -> None:
    script = routes(
        {
            "CHILD": steps(Shell("echo half > half.txt"), Hang(Say("late"))),
            "RIVAL": steps(Shell("echo all > all.txt"), Say("Done.")),
            "PARENT": steps(
                Mcp("orchard", "spawn_subtask", {"instructions": "RIVAL", "blocking": True}),
                Mcp("orchard", "spawn_subtask", {"instructions": "CHILD"}),
                Mcp("orchard", "await_subtasks", {"timeout_s": 45}),
            ),
        }
    )
    words = [sys.executable, "-m", "orchard", "agent", "PARENT", "--model", "fake-model"]
    with ScriptedLlm(script) as llm:
        env = {**environment(llm), "TMPDIR": str(repo.path.parent)}  # its scratch folder stays when it is killed
        agent = subprocess.Popen(words, cwd=repo.path, env=env, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not list(repo.path.glob(".worktrees/*/half.txt")) and time.monotonic() < deadline:
            time.sleep(0.05)
        agent.kill()
        agent.wait()
    left = json.loads(command("list", "--json", cwd=repo.path).stdout)
    assert len(left) == 2 and [name for name in repo.refs("refs/orchard/wip") if "/agent/" in name]

    (repo.path.parent / "other.yaml").write_text("name: Other\njobs: [{id: b, work: touch b.txt}]\n")
    rest = {"prune": ("--older-than", "30d"), "run": (str(repo.path.parent / "other.yaml"),)}[then]
    done = command(then, *rest, cwd=repo.path)

    assert done.returncode == 0, done.stderr
    left = json.loads(command("list", "--json", cwd=repo.path).stdout)
    assert [plan["name"] for plan in left] == ([] if then == "prune" else ["Other"])
    assert not [name for name in repo.refs("refs/orchard/wip") if "/agent/" in name]
    saved = json.loads(command("recover", "--json", cwd=repo.path).stdout)
    found = "".join(repo("ls-tree", "-r", "--name-only", one["ref"]) for one in saved)
    assert "half.txt" in found and "all.txt" in found


def test_a_helper_has_no_more_tools_than_the_agent(repo: Repo) -> None:
    script = routes(
        {
            "CHILD": steps(Say("Looked.")),
            "PARENT": steps(
                Mcp("orchard", "spawn_subtask", {"instructions": "CHILD", "blocking": True, "tools": "all"}),
                Say("Fine."),
            ),
        }
    )
    with ScriptedLlm(script) as llm:
        done = lone(repo, llm, "PARENT", "--tools", "read-only")
        child = next(one for one in llm.requests if any("CHILD" in prompt for prompt in one.prompts))
        told = "\n".join(result for asked in llm.requests for result in asked.results)

    assert done.returncode == 0, done.stderr
    assert '"status": "completed"' in told and "Looked." in told
    assert "read_file" in child.tools and not {"bash", "write_file"} & {*child.tools}


def test_a_lone_agent_that_is_limited_gives_no_work_to_a_command_that_cannot_be_held(
    repo: Repo, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    config = Path(os.environ["XDG_CONFIG_HOME"], "orchard", "config.toml")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"[agents.mine]\ncommand = \"sh -c 'touch {mark}'\"\n")
    asks = {"instructions": "CHILD", "agent": "mine", "tools": "all", "blocking": True}
    with ScriptedLlm(steps(Mcp("orchard", "spawn_subtask", asks), Say("Fine."))) as llm:
        done = lone(repo, llm, "PARENT", "--tools", "read-only")
        told = "\n".join(result for asked in llm.requests for result in asked.results)

    assert done.returncode == 0, done.stderr
    assert "mine cannot be held to that as you are" in told and not mark.exists()


def test_no_help_is_offered_outside_of_a_repository_in_a_job_or_where_agents_get_no_tools(
    repo: Repo, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with ScriptedLlm(steps(Say("Done."))) as llm:
        env = environment(llm)
        ways: list[tuple[Path, dict[str, str]]] = [
            (outside, {}),
            (repo.path, {"ORCHARD_JOB": "a"}),
            (repo.path, {"ORCHARD_AGENT_TOOLS": "false"}),
        ]
        for folder, more in ways:
            done = command("agent", "Look", "--model", "fake-model", cwd=folder, env={**env, **more})
            assert done.returncode == 0, done.stderr
        offered = llm.offered()
        command("agent", "Look", "--model", "fake-model", cwd=repo.path, env=env)

        assert not any("spawn_subtask" in name for name in offered), os.linesep.join(offered)
        assert any("spawn_subtask" in name for name in llm.offered())
