"""What a job finds at `~`: what the wall opens of the user's home, at the same place, and nothing that it planted."""

from pathlib import Path

import pytest

from orchard.engine.machine.own_home import MOST, Opened, furnish, links_to
from orchard.engine.machine.refusals import kept_from, named_in
from orchard.model.events.plans import SandboxRefused
from orchard.process.sandbox.level import walls
from orchard.process.sandbox.policy import Policy
from tests.engine.conftest import Orchard, job
from tests.engine.test_sandbox import home as home
from tests.engine.test_sandbox import level as level
from tests.engine.test_sandbox import plan

LEVELS = [finding.level for finding in walls().findings if finding.works]


def put(path: Path, text: str = "x\n", mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


@pytest.mark.anyio
async def test_what_the_settings_and_toolchains_open_is_found_at_the_home(
    orchard: Orchard, home: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home / ".config/tool/settings", "own\n")
    put(home / ".npm/x")
    put(home / ".nvm/nvm.sh", "nvm() { echo nvm; }\n")
    put(home / ".cargo/bin/tool", "#!/bin/sh\necho tool\n", 0o755)
    put(home / ".cargo/credentials.toml", "secret\n")
    monkeypatch.setenv("ORCHARD_SANDBOX_EXPOSE", "~/.config/tool")
    monkeypatch.setenv("ORCHARD_SANDBOX_WRITE", "~/.npm")
    used = """
        . ~/.nvm/nvm.sh
        { cat ~/.config/tool/settings; nvm; ~/.cargo/bin/tool; } > said.txt
        echo kept > ~/.npm/kept; echo mine > ~/.config/other; echo mine > ~/.cargo/bin/another
        ! touch ~/.config/tool/x; ! test -e ~/.cargo/credentials.toml; ! test -e ~/.ssh
    """

    status = await orchard.run(plan(used))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert orchard.repo.files("work")["said.txt"] == "own\nnvm\ntool\n"
    assert (home / ".npm/kept").read_text() == "kept\n" and not (home / ".config/other").exists()
    assert not (home / ".cargo/bin/another").exists() and not (home / ".config/tool/x").exists()


@pytest.mark.anyio
@pytest.mark.parametrize("command", ["cat ~/data/in.txt", "test -e $HOME/data/in.txt"])
async def test_a_file_that_is_missing_at_the_home_is_named_as_the_user_names_it(
    orchard: Orchard, home: Path, level: str, command: str
) -> None:
    put(home / "data/in.txt")

    status = await orchard.run(plan(command))

    assert 'sandbox.expose = ["~/data/in.txt"]' in str(job(status, "a")["hint"])
    said = [(one.name, one.setting) for one in orchard.events(SandboxRefused)]
    assert said in ([], [(str(home / "data/in.txt"), 'sandbox.expose = ["~/data/in.txt"]')])


def test_what_the_user_s_home_has_neither_is_not_guessed(tmp_path: Path) -> None:
    work, users = tmp_path / "work", tmp_path / "users"
    put(users / "there")
    put(work / "own")
    policy = Policy(home=work, temporary=work, writable=(work,), hidden=(users,))

    def opens(said: str) -> list[str]:
        return [str(kept.path) for kept in kept_from(said, policy, {"HOME": str(users)})]

    assert opens(f"cat: {work}/there: No such file or directory") == [str(users / "there")]
    assert opens(f"cat: {work}/missing: No such file or directory") == []
    assert opens(f"cat: {work}/own: Permission denied") == []
    assert named_in(("cat x~/there /y~/there",), policy, users) is None


@pytest.fixture
def own(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A job's home, the user's, and a folder that no job may write to."""
    found = tmp_path / "own", tmp_path / "users", tmp_path / "victim"
    for folder in found:
        folder.mkdir()
    put(found[1] / ".cache/tool/x")
    put(found[1] / ".local/lib/python3.11/site-packages/one/a.py")
    put(found[1] / ".local/bin/one")
    return found


def test_what_a_job_planted_on_the_way_is_not_followed_and_stays(own: tuple[Path, Path, Path]) -> None:
    home, users, victim = own
    (home / ".cache").symlink_to(victim)
    (home / ".local").mkdir()
    (home / ".local/lib").symlink_to(victim)
    (home / ".local/bin").write_text("mine")
    opened = (
        Opened(users / ".cache/tool"), Opened(users / ".local/lib", 3), Opened(users / ".local/bin", 1)
    )  # fmt: skip

    furnish(home, links_to(users, opened))

    assert list(victim.iterdir()) == [] and (home / ".local/bin").read_text() == "mine"
    home.rename(home.with_name("moved"))
    home.symlink_to(victim)
    furnish(home, links_to(users, opened))
    assert list(victim.iterdir()) == []


def test_folders_that_tools_add_to_are_the_job_s_own_and_the_outermost_link_serves_what_is_in_it(
    own: tuple[Path, Path, Path],
) -> None:
    home, users, _ = own
    places = (Opened(users / ".cache"), Opened(users / ".cache/tool"), Opened(users / ".local/lib", 3))

    for _ in range(2):
        furnish(home, links_to(users, (*places, Opened(users), Opened(users.parent / "elsewhere"))))

    packages = home / ".local/lib/python3.11/site-packages"
    assert (home / ".cache").is_symlink() and packages.is_dir() and not packages.is_symlink()
    assert (packages / "one").readlink() == users / ".local/lib/python3.11/site-packages/one"
    assert [path.name for path in home.iterdir()] in ([".cache", ".local"], [".local", ".cache"])


def test_a_folder_of_very_many_entries_is_one_link(own: tuple[Path, Path, Path]) -> None:
    home, users, _ = own
    for number in range(MOST):
        (users / f".local/bin/{number}").touch()

    furnish(home, links_to(users, (Opened(users / ".local/bin", 1),)))

    assert (home / ".local/bin").is_symlink()
