"""What a job's own git wrote comes into the repository whole and checked, or not at all."""

import resource
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

from orchard.errors import OrchardError
from orchard.git.objects import quarantine
from orchard.git.objects.quarantine import Brought, bring_in, is_empty, variables
from orchard.git.repository import Repository
from orchard.testing import Repo


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "objects"
    made.mkdir()
    return made


def job_git(repo: Repo, repository: Repository, folder: Path, *args: str, stdin: bytes = b"") -> str:
    """Git as the job runs it, in the user's own checkout for simplicity."""
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **variables(folder, repository)}
    names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *args], cwd=repo.path, env=env | names, input=stdin, stdout=-1, check=True)
    return done.stdout.decode().strip()


def test_a_job_that_uses_no_git_costs_nothing(repository: Repository, folder: Path) -> None:
    assert is_empty(folder)
    assert bring_in(repository, folder) == Brought()
    assert bring_in(repository, folder / "missing") == Brought()


def test_commits_of_a_job_are_in_the_repository_afterwards(repo: Repo, repository: Repository, folder: Path) -> None:
    before = set((repo.path / ".git/objects").rglob("*"))
    repo.write({"a.txt": "one\n", "dir/b.txt": "two\n"})
    job_git(repo, repository, folder, "add", ".")
    tree = job_git(repo, repository, folder, "write-tree")
    commit = job_git(repo, repository, folder, "commit-tree", tree, "-p", "HEAD", "-m", "x")
    assert set((repo.path / ".git/objects").rglob("*")) == before
    assert subprocess.run(["git", "cat-file", "-e", commit], cwd=repo.path, check=False).returncode != 0

    brought = bring_in(repository, folder)

    assert (brought.refused, brought.objects) == (None, 5)
    assert repo("show", f"{commit}:dir/b.txt") == "two\n"
    assert is_empty(folder) and not list((repository.state / "tmp").iterdir())
    repo("fsck", "--strict")


def test_packs_of_a_job_come_along(repo: Repo, repository: Repository, folder: Path) -> None:
    repo.write({"a.txt": "one\n"})
    job_git(repo, repository, folder, "add", "a.txt")
    blob = job_git(repo, repository, folder, "hash-object", "a.txt")
    job_git(repo, repository, folder, "pack-objects", "-q", str(folder / "pack/pack"), stdin=f"{blob}\n".encode())
    (folder / blob[:2] / blob[2:]).unlink()

    assert bring_in(repository, folder).objects == 1
    assert repo("cat-file", "blob", blob) == "one\n"


def test_an_object_that_is_not_what_its_name_says_stays_out(repo: Repo, repository: Repository, folder: Path) -> None:
    repo.write({"a.txt": "one\n"})
    blob = job_git(repo, repository, folder, "hash-object", "-w", "a.txt")
    other = "0" * 40
    (folder / "00").mkdir()
    (folder / blob[:2] / blob[2:]).rename(folder / "00" / other[2:])

    assert bring_in(repository, folder).refused is not None
    assert not is_empty(folder)
    repo("fsck", "--strict")


def test_a_tree_that_would_write_into_git_s_own_folder_stays_out(
    repo: Repo, repository: Repository, folder: Path
) -> None:
    blob = job_git(repo, repository, folder, "hash-object", "-w", "--stdin", stdin=b"[core]\n")
    row = b"100644 .git\0" + bytes.fromhex(blob)
    tree = job_git(repo, repository, folder, "hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=row)

    refused = bring_in(repository, folder).refused

    assert refused is not None
    assert subprocess.run(["git", "cat-file", "-e", tree], cwd=repo.path, check=False).returncode != 0


def test_a_tree_without_its_files_stays_out(repo: Repo, repository: Repository, folder: Path) -> None:
    row = f"100644 blob {'1' * 40}\tgone\n".encode()
    job_git(repo, repository, folder, "mktree", "--missing", stdin=row)

    assert bring_in(repository, folder).refused is not None


def test_folders_that_a_job_names_are_not_read(
    repo: Repo, repository: Repository, folder: Path, tmp_path: Path
) -> None:
    """A file of alternates would let git read, and bring in, whatever the user has elsewhere."""
    private = Repo.make(tmp_path / "private")
    private.commit({"secret.txt": "the secret\n"})
    secret = private("rev-parse", "HEAD:secret.txt").strip()
    tree = private("rev-parse", "HEAD^{tree}").strip()
    commit = private("rev-parse", "HEAD").strip()
    (folder / "info").mkdir()
    (folder / "info/alternates").write_text(f"{private.path}/.git/objects\n")
    made = job_git(repo, repository, folder, "commit-tree", tree, "-p", commit, "-m", "leak")

    assert made and bring_in(repository, folder).refused is not None
    assert subprocess.run(["git", "cat-file", "-e", secret], cwd=repo.path, check=False).returncode != 0


def test_links_are_not_followed(repo: Repo, repository: Repository, folder: Path, tmp_path: Path) -> None:
    repo.write({"a.txt": "one\n"})
    blob = job_git(repo, repository, folder, "hash-object", "-w", "a.txt")
    (folder / blob[:2] / blob[2:]).rename(tmp_path / "elsewhere")
    (folder / blob[:2] / blob[2:]).symlink_to(tmp_path / "elsewhere")
    (folder / "pack").symlink_to(repo.path / ".git/objects/pack")

    assert bring_in(repository, folder) == Brought()


def test_a_link_in_the_place_of_the_folder_leads_to_no_other_repository(
    repo: Repo, repository: Repository, folder: Path, tmp_path: Path
) -> None:
    private = Repo.make(tmp_path / "private")
    private.commit({"secret.txt": "the secret\n"})
    folder.rmdir()
    folder.symlink_to(private.path / ".git/objects")

    assert bring_in(repository, folder) == Brought()
    private("fsck", "--strict")


def test_what_was_brought_in_is_removed_through_no_link(
    repo: Repo, repository: Repository, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write({"a.txt": "one\n"})
    blob = job_git(repo, repository, folder, "hash-object", "-w", "a.txt")
    real = repo.path / ".git/objects" / blob[:2]
    bring = quarantine._bring

    def swapped(*args: Any) -> Brought:
        """A program of the job that still runs puts a link there meanwhile."""
        done = bring(*args)
        real.mkdir(exist_ok=True)
        (real / blob[2:]).write_text("the user's")
        (folder / blob[:2]).rename(folder / "gone")
        (folder / blob[:2]).symlink_to(real)
        return done

    monkeypatch.setattr(quarantine, "_bring", swapped)
    bring_in(repository, folder)

    assert (real / blob[2:]).read_text() == "the user's"


def test_more_than_is_brought_in_is_refused_unread(repo: Repo, repository: Repository, folder: Path) -> None:
    for number in range(3):
        place = folder / "aa" / f"{number:038x}"
        place.parent.mkdir(exist_ok=True)
        with place.open("wb") as file:
            file.truncate(1 << 30)

    assert "more than 2 GiB" in (bring_in(repository, folder).refused or "")


def test_a_file_of_holes_is_refused_unread(repo: Repo, repository: Repository, folder: Path) -> None:
    place = folder / "aa" / ("b" * 38)
    place.parent.mkdir()
    with place.open("wb") as file:
        file.truncate(2 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert "consists of holes" in (bring_in(repository, folder).refused or "")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_an_object_that_would_fill_the_memory_once_git_unpacks_it_is_refused(
    repo: Repo, repository: Repository, folder: Path
) -> None:
    put = folder / "aa" / ("b" * 38)
    put.parent.mkdir()
    put.write_bytes(zlib.compress(b"blob %d\0" % (900 << 30) + bytes(1 << 20)))

    assert "says that it has more than 2 GiB" in (bring_in(repository, folder).refused or "")


def test_notes_for_git_are_written_through_no_link(repository: Repository, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (folder / "info").symlink_to(tmp_path / "private")

    with pytest.raises(OrchardError, match="is another one now"):
        quarantine.mounts(folder, repository, tmp_path / "shared")
    assert not list((tmp_path / "private").iterdir())
