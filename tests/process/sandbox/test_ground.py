"""Where the places of a policy really are: links, what is missing, what is in the way, what cannot be kept."""

import os
from pathlib import Path

import pytest

from orchard.process.sandbox.ground import Account, forget, make_placeholders, remove_placeholders, survey
from orchard.process.sandbox.policy import Policy, SandboxError
from orchard.process.sandbox.secrets import by_folder, secrets_below

NO_ONE = Account(54321)


def policy(top: Path, **places: tuple[Path, ...]) -> Policy:
    return Policy(home=top, temporary=top, **{"writable": (), **places})  # type: ignore[arg-type]


def accesses(wanted: Policy) -> dict[Path, str]:
    forget()
    return {Path(place.path): place.access for place in survey(wanted, NO_ONE).places}


def test_a_place_behind_a_link_is_mounted_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "real/inside").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")

    assert accesses(policy(tmp_path, hidden=(tmp_path / "link/inside",))) == {tmp_path / "real/inside": "hidden"}


def test_an_exposed_link_in_a_hidden_folder_stays_a_link_and_shows_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "other/tool").mkdir(parents=True)
    (tmp_path / "home/tool").symlink_to(tmp_path / "other/tool")

    found = survey(
        policy(tmp_path, hidden=(tmp_path / "home", tmp_path / "other"), exposed=(tmp_path / "home/tool",)), NO_ONE
    )

    assert {place.path: place.link for place in found.places if place.access == "exposed"} == {
        f"{tmp_path}/other/tool": None,
        f"{tmp_path}/home/tool": f"{tmp_path}/other/tool",
    }


def test_what_is_made_a_moment_later_is_hidden_at_once(tmp_path: Path) -> None:
    wanted = policy(tmp_path, hidden=(tmp_path / "later",))
    assert survey(wanted, NO_ONE).places == ()

    (tmp_path / "later").mkdir()

    assert [place.path for place in survey(wanted, NO_ONE).places] == [f"{tmp_path}/later"]


def test_a_writable_place_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="gone' is not there"):
        survey(policy(tmp_path, writable=(tmp_path / "gone",)), NO_ONE)


def test_a_protected_name_without_its_placeholder_is_an_error(tmp_path: Path) -> None:
    wanted = policy(tmp_path, writable=(tmp_path,), protected=(tmp_path / ".claude",))
    with pytest.raises(SandboxError, match="has no placeholder"):
        survey(wanted, NO_ONE)

    made = make_placeholders(wanted)

    assert accesses(wanted)[tmp_path / ".claude"] == "protected"
    remove_placeholders(made)
    assert list(tmp_path.iterdir()) == []


def test_a_placeholder_with_something_in_it_is_not_taken_away(tmp_path: Path) -> None:
    made = make_placeholders(policy(tmp_path, writable=(tmp_path,), protected=(tmp_path / ".a/b",)))
    (tmp_path / ".a/mine").write_text("x")

    remove_placeholders(made)

    assert [path.name for path in tmp_path.rglob("*")] == [".a", "mine"]


def test_a_file_in_the_way_of_a_protected_name_is_protected_in_its_place(tmp_path: Path) -> None:
    (tmp_path / ".github").write_text("a file")
    wanted = policy(tmp_path, writable=(tmp_path,), protected=(tmp_path / ".github/workflows",))

    assert make_placeholders(wanted) == ()
    assert accesses(wanted)[tmp_path / ".github"] == "protected"


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        (".vscode", "home/.ssh"),  # hidden by itself
        (".mcp.json", "home/.ssh/id"),  # in something hidden
        (".mcp.json", "home/.netrc"),
        (".github", "home"),  # a folder above the protected name
        (".mcp.json", "public"),  # read-only already
    ],
)
def test_a_link_at_a_protected_name_brings_in_nothing(tmp_path: Path, name: str, goal: str) -> None:
    (tmp_path / "home/.ssh").mkdir(parents=True)
    for file in ("home/.ssh/id", "home/.netrc", "home/workflows", "public"):
        (tmp_path / file).write_text("secret")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / name).symlink_to(tmp_path / goal)
    protected = tuple(tmp_path / "tree" / one for one in (".vscode", ".mcp.json", ".github/workflows"))
    (tmp_path / "tree/.vscode").mkdir() if name != ".vscode" else None
    (tmp_path / "tree/.mcp.json").touch() if name != ".mcp.json" else None
    (tmp_path / "tree/.github/workflows").mkdir(parents=True) if name != ".github" else None
    hidden = tuple(tmp_path / one for one in ("home", "home/.ssh", "home/.netrc"))

    found = accesses(policy(tmp_path, writable=(tmp_path / "tree",), hidden=hidden, protected=protected))

    below = {path: access for path, access in found.items() if not path.is_relative_to(tmp_path / "tree")}
    assert below == {tmp_path / "home": "hidden"}


def test_a_link_at_a_protected_name_that_stays_in_its_worktree_protects_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "tree/real").mkdir(parents=True)
    (tmp_path / "tree/.vscode").symlink_to("real")

    found = accesses(policy(tmp_path, writable=(tmp_path / "tree",), protected=(tmp_path / "tree/.vscode",)))

    assert found == {tmp_path / "tree": "writable", tmp_path / "tree/real": "protected"}


def test_a_protected_name_that_is_a_link_is_told_as_a_gap(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / ".claude").symlink_to("shared")
    wanted = policy(
        tmp_path, writable=(tmp_path,), protected=(tmp_path / ".claude", tmp_path / ".claude/settings.json")
    )
    made = make_placeholders(wanted)

    found = survey(wanted, NO_ONE)

    assert found.gaps == (tmp_path / ".claude",)
    assert {place.path for place in found.places if place.access == "protected"} == {f"{tmp_path}/shared"}
    remove_placeholders(made)


def test_relative_paths_and_dots_are_refused() -> None:
    for path in (Path("x"), Path("/a/../b")):
        with pytest.raises(SandboxError, match="absolute paths"):
            policy(Path("/"), writable=(path,))


def test_what_only_its_owner_or_his_group_may_read_is_a_secret(tmp_path: Path) -> None:
    modes = {"shadow": 0o600, "group": 0o640, "none": 0o000, "open": 0o644, "folder": 0o700, "through": 0o711}
    for name, mode in modes.items():
        path = tmp_path / name
        path.mkdir() if mode & 0o100 else path.write_text("x")
        path.chmod(mode)
    (tmp_path / "empty").touch(0o600)
    (tmp_path / "through/key").write_text("x")
    (tmp_path / "through/key").chmod(0o400)
    owner, group = os.geteuid(), (tmp_path / "group").stat().st_gid

    own = {path.name for path in secrets_below((tmp_path,), owner, frozenset())}
    others = {path.name for path in secrets_below((tmp_path,), owner + 1, frozenset({group}))}

    assert own == {"shadow", "group", "none", "folder", "key"}
    assert others == {"group"}


def test_one_secret_among_the_logs_hides_all_of_them() -> None:
    found = ("/etc/shadow", "/var/log/auth.log", "/var/log/apt/term.log", "/var/logs/other", "/var/spool/cron/root")

    assert by_folder(found) == ("/etc/shadow", "/var/log", "/var/logs/other", "/var/spool")
