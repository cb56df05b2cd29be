"""Merges in memory: what comes out, whose attributes count, and that nothing of the repository is run."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.git.merge import merge as merge_module
from orchard.git.merge.conflicts import ConflictKind
from orchard.git.merge.merge import Merger, SigningFailed, UnrelatedHistories
from orchard.git.objects.reader import Entry, Objects
from orchard.git.repository import Repository, find_repository
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Content, Repo
from tests.git.merger import commit_tree, merge_commits

LINES = "".join(f"line {number}\n" for number in range(20))


@pytest.fixture
def merger(repository: Repository) -> Iterator[Merger]:
    with Objects(repository.git) as objects, Merger(repository, objects) as merger:
        yield merger


def branch(repo: Repo, name: str, files: dict[str, Content], start: str = "main") -> str:
    """A branch with one more commit than where it starts."""
    repo("checkout", "-q", "-B", name, start)
    commit = repo.commit(files)
    repo("checkout", "-q", "main")
    return commit


def test_a_clean_merge_holds_both_sides_and_leaves_the_checkout_alone(repo: Repo, merger: Merger) -> None:
    ours, theirs = branch(repo, "a", {"a.txt": "a"}), branch(repo, "b", {"b.txt": "b"})
    repo.write({"draft.txt": "the user is typing"})

    merge = merger.merge(ours, theirs)

    assert merge.clean
    assert repo.files(merge.tree) == {"README.md": "# A small repository\n", "a.txt": "a", "b.txt": "b"}
    assert repo("status", "--porcelain") == "?? draft.txt\n"


def test_commits_that_contain_each_other_need_no_merging(repo: Repo, merger: Merger) -> None:
    first = repo.head()
    second = repo.commit({"a": "a"})
    third = repo.commit({"b": "b"})
    tree = repo("rev-parse", f"{third}^{{tree}}").strip()

    for ours, theirs in ((third, third), (third, first), (first, third), (third, second), (second, third)):
        assert merger.merge(ours, theirs).tree == tree


def test_a_conflict_names_its_path_and_three_versions(repo: Repo, merger: Merger) -> None:
    repo.commit({"sp\nace": LINES})
    ours = branch(repo, "a", {"sp\nace": LINES + "ours\n"})
    theirs = branch(repo, "b", {"sp\nace": LINES + "theirs\n"})

    (conflict,) = merger.merge(ours, theirs).conflicts

    versions = [repo("rev-parse", f"{name}:sp\nace").strip() for name in ("main", "a", "b")]
    assert (conflict.path, conflict.kind) == (b"sp\nace", "content")
    assert [conflict.base, conflict.ours, conflict.theirs] == [Entry(0o100644, oid) for oid in versions]


def _make(repo: Repo, name: str, action: str) -> str:
    repo("checkout", "-q", "-B", name, "main")
    file = repo.path / "f"
    match action.split():
        case ["write", text]:
            file.write_text(LINES + text + "\n")
        case ["binary", text]:
            file.write_bytes(b"\0" + text.encode())
        case ["delete"]:
            file.unlink()
        case ["move", to]:
            file.rename(repo.path / to)
        case ["link", to]:
            file.unlink()
            file.symlink_to(to)
        case ["new", text]:
            (repo.path / "new").write_text(text)
        case ["folder"]:
            file.unlink()
            repo.write({"f/inside": "x"})
    commit = repo.commit()
    repo("checkout", "-q", "main")
    return commit


@pytest.mark.parametrize(
    ("ours", "theirs", "kinds"),
    [
        ("write a", "write b", {"content"}),
        ("write a", "delete", {"modify/delete"}),
        ("binary a", "binary b", {"binary"}),
        ("new a", "new b", {"add/add"}),
        ("move g", "move h", {"rename"}),
        ("link a", "link b", {"symlink"}),
        ("write a", "folder", {"file/directory"}),
    ],
)
def test_each_kind_of_conflict_has_a_name(
    repo: Repo, merger: Merger, ours: str, theirs: str, kinds: set[ConflictKind]
) -> None:
    repo.commit({"f": LINES})

    merge = merger.merge(_make(repo, "a", ours), _make(repo, "b", theirs))

    assert {conflict.kind for conflict in merge.conflicts} == kinds


def _union_sides(repo: Repo, attributes_on: str) -> tuple[str, str]:
    """Two sides that both add a line to `log`; `log merge=union` stands in the tree of one of them."""
    repo.commit({"log": "start\n"})
    sides = []
    for name in ("ours", "theirs"):
        extra: dict[str, Content] = {".gitattributes": "log merge=union\n"} if name == attributes_on else {}
        sides.append(branch(repo, name, {"log": f"start\n{name}\n", **extra}))
    return sides[0], sides[1]


def test_union_attributes_of_ours_are_honoured(repo: Repo, merger: Merger) -> None:
    ours, theirs = _union_sides(repo, "ours")

    merge = merger.merge(ours, theirs)

    assert merge.clean
    assert sorted(repo.files(merge.tree)["log"].split()) == ["ours", "start", "theirs"]


def test_attributes_of_theirs_or_of_the_checkout_do_not_count(repo: Repo, merger: Merger) -> None:
    ours, theirs = _union_sides(repo, "theirs")
    repo.write({".gitattributes": "log merge=union\n"})
    (repo.path / ".git/info").mkdir(exist_ok=True)
    (repo.path / ".git/info/attributes").write_text("log merge=union\n")

    assert not merger.merge(ours, theirs).clean


def test_attributes_in_a_folder_count_for_that_folder_only(repo: Repo, merger: Merger) -> None:
    repo.commit({"d/.gitattributes": "* merge=union\n", "d/log": "s\n", "log": "s\n"})
    ours = branch(repo, "a", {"d/log": "s\na\n", "log": "s\na\n"})
    theirs = branch(repo, "b", {"d/log": "s\nb\n", "log": "s\nb\n"})

    assert [conflict.path for conflict in merger.merge(ours, theirs).conflicts] == [b"log"]


def test_changed_attributes_are_seen_by_the_next_merge(repo: Repo, merger: Merger) -> None:
    ours, theirs = _union_sides(repo, "ours")
    without = branch(repo, "plain", {".gitattributes": None}, start="ours")

    results = [merger.merge(one, theirs).clean for one in (ours, without, ours)]

    assert results == [True, False, True]


@pytest.mark.parametrize("place", ["repository", "global"])
def test_a_merge_driver_is_never_run_and_its_files_conflict(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    canary = tmp_path / "canary"
    settings = tmp_path / "gitconfig"
    settings.write_text("")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    file = repo.path / ".git/config" if place == "repository" else settings
    repo("config", "-f", str(file), "merge.evil.driver", f"touch '{canary}'")
    repo.commit({".gitattributes": "log merge=evil\n", "log": LINES})
    ours = branch(repo, "a", {"log": "a\n" + LINES})
    theirs = branch(repo, "b", {"log": LINES + "b\n"})

    merge = merge_commits(find_repository(repo.path), ours, theirs)

    assert not canary.exists()
    assert [conflict.path for conflict in merge.conflicts] == [b"log"]


def test_hostile_attribute_paths_are_not_written_outside(repo: Repo, merger: Merger, tmp_path: Path) -> None:
    blob = repo("hash-object", "-w", "--stdin", stdin=b"* merge=union\n").strip()
    inner = f"100644 blob {blob}\t.gitattributes\0".encode()
    tree = repo("mktree", "-z", stdin=inner).strip()
    raw = b"40000 ..\0" + bytes.fromhex(tree)
    root = repo("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=raw).strip()
    evil = repo("commit-tree", "-m", "evil", "-p", "HEAD", root).strip()

    merger.merge(evil, branch(repo, "b", {"b": "b"}))

    assert list((repo.path / ".git/orchard").rglob(".gitattributes")) == []


def test_without_an_open_process_the_answers_are_the_same(
    repo: Repo, merger: Merger, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.commit({"f": LINES})
    pairs = [
        (branch(repo, "a", {"f": "a\n" + LINES}), branch(repo, "b", {"f": LINES + "b\n"})),
        (branch(repo, "c", {"f": LINES + "c\n"}), branch(repo, "d", {"f": LINES + "d\n"})),
    ]
    open_answers = [merger.merge(*pair) for pair in pairs]

    monkeypatch.setattr(merge_module, "can_stay_open", lambda version: False)
    alone = [merger.merge(*pair) for pair in pairs]

    assert alone == open_answers
    assert [merge.clean for merge in alone] == [True, False]


def test_an_open_process_is_replaced_after_a_while(repo: Repo, merger: Merger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_module, "MERGES_PER_PROCESS", 2)
    ours, theirs = branch(repo, "a", {"a": "a"}), branch(repo, "b", {"b": "b"})

    trees = {merger.merge(ours, theirs).tree for _ in range(7)}

    assert len(trees) == 1


def test_which_gits_can_stay_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert [merge_module.can_stay_open(version) for version in ((2, 38), (2, 39, 5), (2, 49), (3, 0))] == [
        False,
        False,
        True,
        True,
    ]


def test_strangers_are_refused_with_a_reason(repo: Repo, merger: Merger) -> None:
    ours = repo.head()
    repo("checkout", "-q", "--orphan", "other")
    theirs = repo.commit({"other": "x"})

    with pytest.raises(UnrelatedHistories, match="no common ancestor") as caught:
        merger.merge(ours, theirs)

    assert caught.value.hint and "unshallow" not in in_commands(caught.value.hint)


def test_the_same_commit_twice_is_the_same_object_and_the_one_git_makes(repo: Repo, merger: Merger) -> None:
    tree, parent = repo("rev-parse", "HEAD^{tree}").strip(), repo.head()
    message = "A title\n\nBody with ünïcode\n\nOrchard-Job: x\n"

    first, second = (merger.commit(tree, [parent], message, when=1_767_225_600) for _ in range(2))

    assert first == second == repo("commit-tree", "-p", parent, "-F", "-", tree, stdin=message.encode()).strip()


def test_a_commit_on_what_is_no_object_is_not_made(repo: Repo, merger: Merger) -> None:
    tree = repo("rev-parse", "HEAD^{tree}").strip()

    with pytest.raises(ValueError, match="not an object name"):
        merger.commit(tree, ["not-an-oid"], "x", when=1)

    assert repo.exists(merger.commit(tree, [repo.head()], "x", when=1))


def _signing_key(repo: Repo, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
    repo("config", "gpg.format", "ssh")
    repo("config", "user.signingKey", str(key))


def test_a_clock_before_1970_makes_no_commit_that_git_calls_broken(repo: Repo, repository: Repository) -> None:
    commit = commit_tree(repository, repo("rev-parse", "HEAD^{tree}").strip(), [repo.head()], "x", when=-86400)
    repo("update-ref", "refs/heads/old", commit)

    assert repo("fsck", "--no-dangling", "--no-progress") == ""
    assert repo("log", "-1", "--format=%at %ct", "old") == "0 0\n"


def test_a_signed_commit_has_a_signature(repo: Repo, repository: Repository, tmp_path: Path) -> None:
    _signing_key(repo, tmp_path)

    commit = commit_tree(
        repository, repo("rev-parse", "HEAD^{tree}").strip(), [repo.head()], "signed", when=1_767_225_600, sign=True
    )

    assert "gpgsig -----BEGIN SSH SIGNATURE-----" in repo("cat-file", "commit", commit)


def test_a_failed_signature_makes_no_commit(repo: Repo, repository: Repository, tmp_path: Path) -> None:
    repo("config", "gpg.format", "ssh")
    repo("config", "user.signingKey", str(tmp_path / "no-such-key"))
    before = repo("count-objects")

    with pytest.raises(SigningFailed):
        commit_tree(repository, repo("rev-parse", "HEAD^{tree}").strip(), [], "x", when=1, sign=True)

    assert repo("count-objects") == before


def test_a_signing_program_named_by_the_repository_is_not_run(
    repo: Repo, repository: Repository, tmp_path: Path
) -> None:
    _signing_key(repo, tmp_path)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/canary'\nexit 1\n")
    program.chmod(0o755)
    repo("config", "gpg.ssh.program", str(program))

    with pytest.raises(SigningFailed, match="own config"):
        commit_tree(repository, repo("rev-parse", "HEAD^{tree}").strip(), [], "x", when=1, sign=True)

    assert not (tmp_path / "canary").exists()


def test_nothing_is_left_in_our_folder_after_closing(repo: Repo, repository: Repository) -> None:
    dead = repository.state / "merge" / "999999999-old"
    dead.mkdir(parents=True)

    merge_commits(repository, branch(repo, "a", {"a": "a"}), branch(repo, "b", {"b": "b"}))

    assert list((repository.state / "merge").iterdir()) == []
