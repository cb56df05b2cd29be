"""Submodules from a folder of this machine, behind a wall: they are checked out, or the line that opens it is told."""

from pathlib import Path

import pytest

from orchard.git.repository import find_repository
from orchard.git.worktree.sources import local_sources
from orchard.testing import Repo
from tests.engine.conftest import Orchard, job
from tests.engine.test_sandbox import LEVELS, plan
from tests.engine.test_with_submodules import ALLOWED, Place
from tests.engine.test_with_submodules import place as place

OPENS = "git submodule update --init --recursive && cat sub/lib.txt sub/deep/deep.txt > said.txt"


@pytest.mark.anyio
@pytest.mark.skipif("bwrap" not in LEVELS, reason="behind Landlock git gives up")
@pytest.mark.parametrize("setting", [True, False])
async def test_a_job_checks_out_submodules_that_the_user_has_and_sees_no_more_of_where_they_come_from(
    orchard: Orchard, place: Place, monkeypatch: pytest.MonkeyPatch, setting: bool
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", "bwrap")
    library = place.library.path
    place.library("config", "remote.origin.url", "https://me:secret@example.com/x")
    tried = f"ls {library} > seen.txt; cat {library}/lib.txt {library}/.git/config >> seen.txt; "
    checked_out = OPENS if not setting else OPENS.replace(" --init", "")

    status = await orchard.run(plan(tried + checked_out, "submodules: true" if setting else ""))

    assert status["plan"]["status"] == "succeeded", job(status, "a")["error"]
    assert (place.read("work:said.txt"), place.read("work:seen.txt")) == ("1\ndeep\n", "")


def named_by_a_commit(orchard: Orchard, folder: Path) -> Repo:
    private = Repo.make(folder / "private")
    orchard.repo.commit({".gitmodules": f'[submodule "x"]\n\tpath = x\n\turl = {private.path}\n'})
    orchard.repo("update-index", "--add", "--cacheinfo", f"160000,{private.head()},x")
    orchard.repo("commit", "-qm", "x")
    orchard.repo("submodule", "init")
    return private


@pytest.mark.anyio
@pytest.mark.parametrize("level", LEVELS)
async def test_where_the_user_has_none_checked_out_the_line_that_opens_it_is_told(
    orchard: Orchard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", level)
    private = named_by_a_commit(orchard, tmp_path)

    status = await orchard.run(plan("git -c protocol.file.allow=always submodule update"))

    assert f'sandbox.expose = ["{private.path}"]' in str(job(status, "a")["hint"])


def test_what_only_a_commit_names_is_no_source(orchard: Orchard, tmp_path: Path) -> None:
    """A stranger's `.gitmodules` may name any repository of the user's, and `git submodule init` writes that down."""
    named_by_a_commit(orchard, tmp_path)
    assert "submodule.x.url" in orchard.repo("config", "--list")

    assert local_sources(find_repository(orchard.repo.path)) == ()


def test_sources_of_names_with_slashes_of_addresses_and_of_bare_repositories_are_found(
    orchard: Orchard, tmp_path: Path
) -> None:
    plain = Repo.make(tmp_path / "plain")
    bare = tmp_path / "bare.git"
    plain("clone", "-q", "--bare", str(plain.path), str(bare))
    for name, url in (("a/b", str(plain.path)), ("c", f"file://{bare}")):
        orchard.repo(*ALLOWED, "submodule", "--quiet", "add", "--name", name, url, name.replace("/", "-"))

    found = local_sources(find_repository(orchard.repo.path))

    assert {plain.path / ".git/objects", plain.path / ".git/HEAD", bare / "objects", bare / "refs"} <= set(found)
    assert not [path for path in found if path.name in ("config", "hooks", "logs")]
