"""The doctor finds what is wrong, and changes nothing while looking."""

import json
import os
import time
from pathlib import Path

import filelock
import pytest
from msgspec.structs import replace

from orchard.config.layers import Config
from orchard.config.load import Settings
from orchard.config.user_dirs import UserDirs
from orchard.core.views.documents import bare_summary
from orchard.engine.machine import doctor
from orchard.engine.machine.doctor import Finding, examine, healthy
from orchard.engine.server.address import LOCK_FILE, Address, write_address
from orchard.git.repository import find_repository
from orchard.git.worktree.worktrees import TRASH
from orchard.model.events.plans import PlanSubmitted
from orchard.model.plan import PlanId
from orchard.model.sandbox import Sandbox
from orchard.process.families.identity import identify
from orchard.process.sandbox.level import Finding as WallFinding
from orchard.process.sandbox.level import Walls
from orchard.store.journal import Journal
from orchard.store.plan_list import PlanRow
from orchard.store.slots import Slots
from orchard.surfaces.cli.render.doctor import finding_lines
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo

OFF = Config(sandbox=Sandbox(level="off"))


@pytest.fixture(autouse=True)
def nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "repo")


def findings(repo: Repo, settings: Settings | None = None, *, engine_alive: bool = False) -> list[Finding]:
    home = repo.path.parent / "home"
    dirs = UserDirs(home / "state", home / "config", home / "run")
    return examine(find_repository(repo.path), settings or Settings(OFF), dirs, engine_alive=engine_alive)


def about(topic: str, found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.topic == topic]


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below a folder, with what changes when it is written."""
    found = {}
    for place, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            status = (Path(place) / name).lstat()
            found[str(Path(place, name).relative_to(folder))] = (status.st_size, status.st_mtime_ns, status.st_mode)
    return found


def write_journal(repo: Repo, status: str) -> Path:
    path = repo.path / ".git" / "orchard" / "journal.db"
    plan = PlanId("01TEST")
    journal = Journal.open(path)
    row = PlanRow(
        plan,
        "Half done",
        1.0,
        0,
        status,
        False,
        replace(bare_summary(plan, "Half done", status, 1.0), hint=f"orchard land {plan}"),
    )
    journal.append(plan, PlanSubmitted({"name": "Half done", "jobs": []}), 1.0, row)
    journal.flush()
    journal.close()
    return path


def test_a_fresh_repository_is_healthy(repo: Repo) -> None:
    found = findings(repo)

    assert healthy(found)
    assert {"python", "git", "sqlite", "disk", "state", "engine"} <= {finding.topic for finding in found}
    assert not [finding for finding in found if finding.level == "warning" and finding.topic != "sandbox"]


def test_that_agents_run_with_the_rights_of_the_user_is_said_in_plain_words(repo: Repo) -> None:
    (said,) = about("agents", findings(repo))

    assert said.level == "note"
    assert "Agents run with your rights" in said.message and "read and write whatever you can" in said.message
    assert "container" in in_commands(said.hint or "")


def test_a_sandbox_that_is_off_is_told_in_red(repo: Repo) -> None:
    off = next(one for one in about("sandbox", findings(repo)) if one.level == "warning")

    assert (off.message, off.alarming) == ("Jobs run without a wall: the sandbox is off.", True)
    assert any(("Jobs run without a wall: the sandbox is off.", "bad") in line for line in finding_lines([off]))


def test_where_no_wall_can_be_had_the_default_says_what_to_install(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    none = Walls((WallFinding("bwrap", False, "No room."), WallFinding("landlock", False, "Too old.")))
    monkeypatch.setattr(doctor, "walls", lambda: none)

    (told,) = [one for one in about("sandbox", findings(repo, Settings(Config()))) if one.level == "problem"]

    assert told.message == "No wall can be put around programs on this machine. bwrap: No room. landlock: Too old."
    assert "Install bubblewrap" in in_commands(told.hint or "") and 'sandbox = "off"' in in_commands(told.hint or "")


def test_programs_that_the_repositorys_own_git_config_names_are_told_by_their_keys(repo: Repo) -> None:
    assert about("programs", findings(repo)) == []
    repo("config", "filter.fancy.smudge", "/tmp/evil --token=hunter2")
    repo("config", "remote.origin.uploadpack", "evil")
    repo("config", "credential.https://host.helper", "evil")

    (said,) = about("programs", findings(repo))

    for key in ("filter.fancy.smudge", "remote.origin.uploadpack", "credential.https://host.helper"):
        assert key in said.message
    assert "hunter2" not in said.message and "git config --local" in in_commands(said.hint or "")


def test_looking_changes_nothing(repo: Repo) -> None:
    write_journal(repo, "running")
    (repo.path / ".worktrees" / TRASH).mkdir(parents=True)
    findings(repo)  # git makes its own empty folder the first time anything is asked
    before = listing(repo.path)

    findings(repo)

    after = listing(repo.path)
    # SQLite makes its shared memory for a reader, and takes it away again.
    ignored = {".git/orchard", ".git/orchard/journal.db-shm", ".git/orchard/journal.db-wal"}
    assert {name: facts for name, facts in after.items() if name not in ignored} == {
        name: facts for name, facts in before.items() if name not in ignored
    }
    assert repo("status", "--porcelain") == ""


def test_an_interrupted_plan_is_a_warning_that_names_resume(repo: Repo) -> None:
    write_journal(repo, "running")

    plans = about("plans", findings(repo))

    assert [finding.level for finding in plans] == ["warning"]
    assert in_commands(plans[0].hint or "") == "Run 'orchard resume 01TEST'."


@pytest.mark.parametrize("status", ["succeeded", "failed", "canceled"])
def test_a_plan_that_is_over_and_whose_branch_was_being_moved_is_a_warning_that_names_resume(
    repo: Repo, status: str
) -> None:
    write_journal(repo, status)

    plans = about("plans", findings(repo))

    assert [finding.level for finding in plans] == ["warning"]
    assert "may be half-way" in plans[0].message and in_commands(plans[0].hint or "") == "Run 'orchard resume 01TEST'."
    assert about("plans", findings(repo, engine_alive=True)) == []


def test_a_running_plan_is_no_finding_while_an_engine_works_on_it(repo: Repo) -> None:
    write_journal(repo, "running")

    found = findings(repo, engine_alive=True)

    assert about("plans", found) == []
    assert about("engine", found)[0].message.startswith("an engine is running")


def test_a_lock_that_is_held_without_an_address_is_a_warning(repo: Repo) -> None:
    state = repo.path / ".git" / "orchard"
    state.mkdir()

    with filelock.FileLock(state / LOCK_FILE):
        held = about("engine", findings(repo))
    free = about("engine", findings(repo))

    assert ([one.level for one in held], [one.level for one in free]) == (["warning"], ["ok"])


def test_an_engine_without_its_socket_is_a_warning(repo: Repo) -> None:
    state = repo.path / ".git" / "orchard"
    state.mkdir()
    me = identify(os.getpid())
    assert me is not None
    write_address(state, Address(me.pid, me.started, me.boot, str(state / "gone.sock"), "nonce"))

    (engine,) = about("engine", findings(repo, engine_alive=True))

    assert engine.level == "warning" and "gone.sock" in engine.message


def test_a_plan_that_waits_names_its_command(repo: Repo) -> None:
    write_journal(repo, "waiting")

    assert in_commands(about("plans", findings(repo))[0].hint or "") == "Run 'orchard land 01TEST'."


def test_a_damaged_journal_is_a_problem_and_is_left_alone(repo: Repo) -> None:
    path = write_journal(repo, "succeeded")
    data = bytearray(path.read_bytes())
    data[4096 + 8 : 2 * 4096] = b"\xff" * (4096 - 8)
    path.write_bytes(bytes(data))

    found = findings(repo)

    assert not healthy(found)
    assert "journal" in {finding.topic for finding in found if finding.level == "problem"}
    assert path.read_bytes() == bytes(data)


def test_a_file_that_is_no_journal_is_a_problem(repo: Repo) -> None:
    path = repo.path / ".git" / "orchard" / "journal.db"
    path.parent.mkdir()
    path.write_text("this is not a database" * 100)

    assert "problem" in {finding.level for finding in about("journal", findings(repo))}


def test_a_state_folder_that_others_can_write_is_a_warning(repo: Repo) -> None:
    write_journal(repo, "succeeded")
    (repo.path / ".git" / "orchard").chmod(0o777)

    (state,) = about("state", findings(repo))

    assert state.level == "warning" and "chmod 700" in in_commands(state.hint or "")


def test_a_note_about_a_landing_that_cannot_be_read_is_a_problem(repo: Repo) -> None:
    claim = repo.path / ".git" / "orchard" / "landing" / "main"
    claim.mkdir(parents=True)
    assert healthy(findings(repo))
    (claim / "intent.json").write_text("{}")

    found = findings(repo)

    (said,) = about("landings", found)
    assert not healthy(found) and str(claim / "intent.json") in said.message
    assert f"rm {claim / 'intent.json'}" in in_commands(said.hint or "")


def test_a_landing_that_waits_for_a_worktree_that_is_not_to_be_found_is_a_problem(repo: Repo) -> None:
    claim = repo.path / ".git" / "orchard" / "landing" / "worktree-away"
    claim.mkdir(parents=True)
    row = {"top": "/away", "git_dir": "/x", "branch": "main", "stage": "/x/s", "old": "1" * 40, "new": "2" * 40}
    (claim / "intent.json").write_text(json.dumps({**row, "index": [], "items": [], "emptied": [], "made": []}))

    (said,) = about("landings", findings(repo))

    assert said.level == "problem" and "/away" in said.message and "git worktree repair" in in_commands(said.hint or "")


def test_a_pipe_among_the_refs_is_named_once_and_at_once(repo: Repo) -> None:
    place = repo.path / ".git" / "refs" / "heads" / "evil"
    os.mkfifo(place)
    began = time.monotonic()

    found = findings(repo)

    (said,) = [one for one in found if one.level == "problem"]
    assert time.monotonic() - began < 15
    assert "refs/heads/evil" in said.message and in_commands(said.hint or "").endswith(f"rm {place}")


def test_strays_and_trash_are_reported(repo: Repo) -> None:
    root = repo.path / ".worktrees"
    (root / "left-behind").mkdir(parents=True)
    (root / TRASH / "w1").mkdir(parents=True)
    (root / TRASH / "w1" / "file").write_bytes(b"x" * 3000)

    told = " ".join(finding.message for finding in about("leftovers", findings(repo)))

    assert "left-behind" in told and "1 files (3 KiB)" in told


def test_saved_work_is_counted(repo: Repo) -> None:
    repo("update-ref", "refs/orchard/wip/p/build/1", "HEAD")

    assert about("saved work", findings(repo))[0].message == "Orchard keeps one piece of saved work."


def test_a_stale_lock_of_git_is_a_problem(repo: Repo) -> None:
    lock = repo.path / ".git" / "index.lock"
    lock.touch()
    old = time.time() - 600
    os.utime(lock, (old, old))

    found = findings(repo)

    assert not healthy(found) and "index.lock" in about("git/lock", found)[0].message
    assert lock.exists()


def test_settings_that_wait_for_trust_are_named(repo: Repo) -> None:
    settings = Settings(Config(), warnings=("ORCHARD_FOO means nothing",), untrusted={"setup": ["make"]})

    found = findings(repo, settings)

    assert "setup" in about("trust", found)[0].message
    assert about("settings", found)[0].level == "warning"


def test_a_part_that_cannot_look_does_not_stop_the_others(repo: Repo) -> None:
    settings = Settings(Config(worktree_root="."))

    found = findings(repo, settings)

    assert about("leftovers", found)[0].level == "problem"
    assert about("disk", found) != []


def test_the_capacity_file_is_read_and_a_broken_one_is_a_warning(repo: Repo) -> None:
    home = repo.path.parent / "home"
    (home / "state").mkdir(parents=True)
    slots = Slots.open(home / "state" / "slots.db", 16)
    assert slots.acquire()

    (capacity,) = about("capacity", findings(repo))
    assert (capacity.level, capacity.message) == ("ok", "1 of 16 slots of this user are taken")

    slots.close()
    (home / "state" / "slots.db").write_text("broken" * 1000)
    (capacity,) = about("capacity", findings(repo))
    assert capacity.level == "warning" and "sets it aside" in capacity.message
