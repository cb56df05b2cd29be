"""Landings where the file system, the attributes, a lock or an edit are not what one hopes for: nothing is lost."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orchard.git import folders
from orchard.git.history import show_path
from orchard.git.landing import checkout, intent, placement
from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.landing import land, undo
from orchard.git.landing.obstacles import LandingRefused
from orchard.git.landing.recovery import settle_all
from orchard.git.repository import find_repository
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.git.moment import unnoticed_but_for_the_index
from tests.git.test_landing import Scene, ignore, make_scene, picture
from tests.git.test_landing_steps import at, killed_at


@pytest.fixture
def scene(repo: Repo) -> Scene:
    return make_scene(repo)


# ------------------------------------------------------------------------------------ no renames with flags

NO_FLAGS = "from orchard.git import folders; folders._call = lambda: lambda source, goal, flag: 22\n"
"""What a file system says that does not know the flags (NFS, FUSE)."""


def killed_without_flags(scene: Scene, nth: int) -> bool:
    """Land where renames have no flags, killed just before the nth name of ours is removed; False: it came through."""
    code = (
        "import os, signal\nfrom pathlib import Path\n"
        "from orchard.git.landing.landing import land\nfrom orchard.git.repository import find_repository\n"
        f"{NO_FLAGS}left, real = [{nth}], os.unlink\n"
        "def late(place, *args, **named):\n"
        "    left[0] -= isinstance(place, bytes)\n"
        "    if left[0] == 0:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(place, *args, **named)\n"
        "os.unlink = late\n"
        f"repo = find_repository(Path({str(scene.repo.path)!r}))\n"
        f"land(repo, 'main', {scene.old!r}, {scene.new!r}, 'm')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True)
    assert done.returncode in (0, -9), done.stderr.decode()
    return done.returncode == -9


@pytest.fixture
def without_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_call", lambda: lambda source, goal, flag: errno.EINVAL)


@pytest.mark.usefixtures("without_flags")
def test_a_landing_that_dies_where_renames_have_no_flags_is_taken_back(scene: Scene) -> None:
    before, nth = picture(scene.repo.path), 1
    while killed_without_flags(scene, nth):
        (found,) = settle_all(scene.repository)

        assert found.theirs == (), nth
        assert picture(scene.repo.path) == before, nth
        assert scene.repo("status", "--porcelain") == "", nth
        assert not list(scene.repository.common_dir.glob("*.lock")), nth
        nth += 1

    assert nth > 4 and scene.repo.head("main") == scene.new


@pytest.mark.usefixtures("without_flags")
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_file_that_is_half_put_back_where_renames_have_no_flags_is_put_back_later(
    scene: Scene, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real, left = picture(scene.repo.path), os.unlink, [nth]
    killed_at(scene, "checkout.placed")

    def fail(place: bytes | str, **named: Any) -> None:
        if isinstance(place, bytes):
            left[0] -= 1
            if left[0] == 0:
                raise OSError(errno.EIO, "gone", place)
        real(place, **named)

    with monkeypatch.context() as patches:
        patches.setattr(os, "unlink", fail)
        with pytest.raises(OSError, match="gone"):
            settle_all(scene.repository)
    (found,) = settle_all(scene.repository)

    assert found.theirs == ()
    assert picture(scene.repo.path) == before
    assert scene.repo("status", "--porcelain") == ""


@pytest.mark.usefixtures("without_flags")
@pytest.mark.parametrize("name", ["a.txt", "gone.txt"])
def test_what_an_editor_saves_where_renames_have_no_flags_is_kept(
    scene: Scene, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, calls = os.fsencode(scene.repo.path / name), list[str]()

    def save(event: str, source: bytes) -> None:
        """An editor's new file takes the place of the old one, just before or just after we touch it."""
        if source == where and event not in calls:
            calls.append(event)
            (scene.repo.path / ".swap").write_text(f"mine {event}\n")
            (scene.repo.path / ".swap").rename(scene.repo.path / name)

    real_link, real_rename = os.link, os.rename

    def link(source: bytes, goal: bytes, **named: Any) -> None:
        real_link(source, goal, **named)
        save("link", source)

    def rename(source: bytes, goal: bytes) -> None:
        save("rename", source)
        real_rename(source, goal)

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os, "rename", rename)

    refused = scene.land()

    assert calls
    assert isinstance(refused, LandingRefused) and name in refused.reason
    assert (scene.repo.path / name).read_text() == f"mine {calls[-1]}\n"
    assert scene.repo("status", "--porcelain") == f" M {name}\n"


# ------------------------------------------------------------------------------------ filters and attributes


def lands_filtered(folder: Path, place: str, setting: str = "") -> None:
    """Land and undo with a filter that git does not miss where it fails; `place` is a file of attributes."""
    repo = Repo.make(folder)
    repo("config", "filter.rot.smudge", "tr a-z b-za")
    repo("config", "filter.rot.clean", "tr a-z za-y")
    if setting:
        repo("config", setting, place)
    (repo.path / ".git/info").mkdir(exist_ok=True)
    (repo.path / ".git/info/exclude").write_text(".gitattributes\nattributes\n")
    repo.write({place: "*.x filter=rot\n"})
    old = repo.commit({"d/a.x": "one\n"})
    repo("checkout", "-q", "--detach")
    new = repo.commit({"d/a.x": "two\n", "d/new.x": "new\n"})
    repo("checkout", "-q", "main")

    assert land(find_repository(repo.path), "main", old, new, "m") == BranchMoved(repo.path)
    assert (repo.path / "d/a.x").read_text() == "two\n"
    assert repo("show", "HEAD:d/a.x") == "svn\n"
    assert repo("status", "--porcelain") == ""
    assert undo(find_repository(repo.path), "main", old, new) == BranchMoved(repo.path)
    assert (repo.path / "d/a.x").read_text() == "one\n"


@pytest.mark.parametrize("name", ["50%full", "100%%", "a 'b' %f"])
def test_a_filter_runs_in_a_folder_with_a_percent_sign_in_its_name(tmp_path: Path, name: str) -> None:
    lands_filtered(tmp_path / name, ".git/info/attributes")


@pytest.mark.parametrize("place", [".gitattributes", "d/.gitattributes"])
def test_attributes_that_git_does_not_track_are_obeyed(tmp_path: Path, place: str) -> None:
    lands_filtered(tmp_path / "repo", place)


def test_a_file_of_attributes_that_is_named_from_the_checkout_on_is_obeyed(tmp_path: Path) -> None:
    lands_filtered(tmp_path / "repo", "attributes", "core.attributesFile")


def test_attributes_behind_a_link_are_not_read_as_git_does_not_read_them(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".gitattributes").write_text("* text eol=crlf\n")
    (repo.path / "link").symlink_to(tmp_path / "elsewhere")
    (repo.path / ".git/info").mkdir(exist_ok=True)
    (repo.path / ".git/info/exclude").write_text(".gitattributes\n")
    old = repo.commit({"d/a.txt": "old\n"})
    repo("checkout", "-q", "--detach")
    (repo.path / "link").unlink()
    new = repo.commit({"d/a.txt": "new\n", "link/b.txt": "new\n"})
    repo("checkout", "-q", "main")
    (repo.path / "d/.gitattributes").symlink_to(tmp_path / "elsewhere" / ".gitattributes")

    assert land(find_repository(repo.path), "main", old, new, "m") == BranchMoved(repo.path)
    assert (repo.path / "d/a.txt").read_bytes() == (repo.path / "link/b.txt").read_bytes() == b"new\n"


# ------------------------------------------------------------------------------------ a lock that was removed


def test_what_the_user_stages_after_removing_our_lock_stays_staged(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def user() -> None:
        (scene.repo.path / ".git/index.lock").unlink()
        scene.repo.write({"mine.txt": "staged\n"})
        scene.repo("add", "mine.txt")
        scene.repo.write({"mine.txt": "edited\n"})
        unnoticed_but_for_the_index(scene.repo.path / ".git/index", scene.repo.path, b"mine.txt")

    at("checkout.swapped", user, monkeypatch)

    assert scene.land() == BranchMoved(scene.repo.path)
    assert scene.repo("show", ":mine.txt") == "staged\n"
    assert scene.repo("status", "--porcelain") == "AM mine.txt\n"
    assert not list(scene.repository.common_dir.glob("*.lock"))


def test_a_lock_that_another_git_took_after_ours_was_removed_is_not_overwritten(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = scene.repo.path / ".git/index.lock"

    def user() -> None:
        lock.unlink()
        lock.write_text("theirs")

    at("checkout.swapped", user, monkeypatch)

    assert scene.land() == BranchMoved(None)
    assert lock.read_text() == "theirs"


# ------------------------------------------------------------------------------------ edits that hide


@pytest.mark.parametrize("name", ["a.txt", "gone.txt"])
def test_an_edit_that_keeps_size_and_time_is_kept_and_stops_the_landing(
    scene: Scene, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = scene.repo.path / name
    time.sleep(2 * intent.RECENT)

    def edit() -> None:
        was = place.stat()
        with place.open("r+") as file:
            file.write("MINE")
        os.utime(place, ns=(was.st_atime_ns, was.st_mtime_ns))

    at("checkout.staged", edit, monkeypatch)

    refused = scene.land()

    assert isinstance(refused, LandingRefused) and name in refused.reason
    assert place.read_text().startswith("MINE")


def test_files_that_are_one_file_with_two_names_land(repo: Repo) -> None:
    old = repo.commit({"a.txt": "old\n", "b.txt": "old\n"})
    repo("checkout", "-q", "--detach")
    new = repo.commit({"a.txt": "new\n", "b.txt": "new\n"})
    repo("checkout", "-q", "main")
    (repo.path / "b.txt").unlink()
    (repo.path / "b.txt").hardlink_to(repo.path / "a.txt")
    time.sleep(2 * intent.RECENT)

    assert land(find_repository(repo.path), "main", old, new, "m") == BranchMoved(repo.path)
    assert repo("status", "--porcelain") == ""


# ------------------------------------------------------------------------------------ what is said


@pytest.mark.parametrize("name", ["a\x01b.txt", "a\nb.txt"])
def test_a_file_with_a_control_character_in_its_name_is_named_once(repo: Repo, name: str) -> None:
    old = repo.commit({name: "old\n"})
    repo("checkout", "-q", "--detach")
    new = repo.commit({name: "new\n"})
    repo("checkout", "-q", "main")
    repo.write({name: "mine\n"})

    refused = land(find_repository(repo.path), "main", old, new, "m")

    assert isinstance(refused, LandingRefused)
    assert refused.reason == f"Your changes in {repo.path} would be overwritten: {show_path(os.fsencode(name))}"


def test_a_checkout_on_several_file_systems_gets_a_hint_that_helps(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def across(source: bytes, goal: bytes) -> None:
        raise OSError(errno.EXDEV, "another file system", source)

    monkeypatch.setattr(placement, "take", across)
    refused = scene.land()
    assert isinstance(refused, LandingRefused) and "several file systems" in refused.reason

    command = in_commands(refused.hint).split("'")[1]
    scene.repo(*command.split()[1:])

    assert scene.repo("status", "--porcelain") == ""
    assert isinstance(scene.land(), BranchMoved) and scene.repo.head("main") == scene.new


# ------------------------------------------------------------------------------------ a folder for a file


def test_undo_of_a_folder_that_replaced_a_file_spares_what_is_in_it(scene: Scene) -> None:
    repo = scene.repo
    repo("checkout", "-q", "--detach")
    repo.write({"gone.txt": None})
    new = repo.commit({"gone.txt/inside": "x\n"})
    repo("checkout", "-q", "main")
    land(scene.repository, "main", scene.old, new, "m")
    ignore("secret")(scene)
    repo.write({"gone.txt/secret": "mine\n"})

    refused = undo(scene.repository, "main", scene.old, new)
    (repo.path / "gone.txt/secret").unlink()
    done = undo(scene.repository, "main", scene.old, new)

    assert isinstance(refused, LandingRefused) and "secret" in refused.reason
    assert done == BranchMoved(repo.path)


@pytest.mark.parametrize("verb", ["append", "remove"])
def test_an_edit_after_the_last_look_shows_and_an_undo_keeps_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    edited = scene.repo.path / "a.txt"

    def edit(given: intent.Intent) -> bytes | None:
        """The edit falls between the last look at the files and the notes in the index, which is written later."""
        found = placement.verify(given)
        with edited.open("a") as file:
            file.write("mine\n")
        if verb == "remove":
            edited.unlink()
        time.sleep(1.1)
        return found

    monkeypatch.setattr(checkout, "verify", edit)

    assert isinstance(scene.land(), BranchMoved)
    monkeypatch.undo()

    assert scene.repo("status", "--porcelain").strip() == ("M a.txt" if verb == "append" else "D a.txt")
    if verb == "append":
        refused = undo(scene.repository, "main", scene.old, scene.new)
        assert isinstance(refused, LandingRefused) and "a.txt" in refused.reason
        assert edited.read_text().endswith("mine\n")
