"""The plan's own lines: leaves come together without false conflicts, and repeating a step changes nothing."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from orchard.git.history import Ancestry, merge_bases
from orchard.git.merge.account import LostInMerge
from orchard.git.merge.conflicts import Merge, Resolution, resolve_by_side
from orchard.git.merge.integration import Conflicted, Integration, LeafMerge, Mode, Prepared, compose_message
from orchard.git.objects.reader import ObjectMissing
from orchard.git.refs import RefMoved, integration_ref, snapshot_ref
from orchard.git.repository import Repository
from orchard.testing import Content, Repo

LINES = [f"line {number}\n" for number in range(30)]
WHEN = 1_767_225_600


@pytest.fixture
def line(repository: Repository) -> Iterator[Integration]:
    with Integration(repository) as integration:
        yield integration


def leaf_commit(repo: Repo, files: dict[str, Content], start: str = "main") -> str:
    """A commit as a job leaves it: on no branch."""
    repo("checkout", "-q", "--detach", start)
    commit = repo.commit(files)
    repo("checkout", "-q", "main")
    return commit


def bring(line: Integration, commit: str, *, mode: Mode = "squash", **more: object) -> Prepared | Conflicted:
    tips = line.tips("p1")
    assert tips is not None
    leaf = LeafMerge("p1", "job", commit, *tips, title="Job: do it", when=WHEN, mode=mode)
    return line.prepare(replace(leaf, **more))


def merge_in(line: Integration, commit: str, *, mode: Mode = "squash") -> Prepared:
    prepared = bring(line, commit, mode=mode)
    assert isinstance(prepared, Prepared)
    line.publish("p1", prepared)
    return prepared


@pytest.mark.parametrize("mode", ["squash", "merge"])
def test_two_leaves_that_edit_their_common_ancestors_file_do_not_conflict(
    repo: Repo, line: Integration, mode: Mode
) -> None:
    start = repo.head()
    shared = leaf_commit(repo, {"shared.txt": "".join(LINES)})
    top = leaf_commit(repo, {"shared.txt": "".join(["top\n", *LINES[1:]])}, shared)
    bottom = leaf_commit(repo, {"shared.txt": "".join([*LINES[:-1], "bottom\n"])}, shared)
    line.start("p1", start)

    for commit in (top, bottom):
        merge_in(line, commit, mode=mode)

    assert repo.files(snapshot_ref("p1"))["shared.txt"] == "".join(["top\n", *LINES[1:-1], "bottom\n"])
    assert repo("rev-parse", f"{snapshot_ref('p1')}^{{tree}}") == repo("rev-parse", f"{integration_ref('p1')}^{{tree}}")


def test_squash_makes_one_commit_with_one_parent_for_each_leaf(repo: Repo, line: Integration) -> None:
    start = repo.head()
    line.start("p1", start)
    for number in range(3):
        merge_in(line, leaf_commit(repo, {f"f{number}": "x"}))

    parents = repo("rev-list", "--parents", f"{start}..{snapshot_ref('p1')}").splitlines()
    assert [len(row.split()) for row in parents] == [2, 2, 2]
    merges = repo("rev-list", "--first-parent", "--parents", f"{start}..{integration_ref('p1')}").splitlines()
    assert [len(row.split()) for row in merges] == [3, 3, 3]


def test_merge_mode_keeps_the_ancestry_of_the_jobs_in_the_snapshot(repo: Repo, line: Integration) -> None:
    line.start("p1", repo.head())
    commit = leaf_commit(repo, {"a": "a"})

    prepared = merge_in(line, commit, mode="merge")

    assert prepared.snapshot == prepared.integration
    assert repo.run("merge-base", "--is-ancestor", commit, snapshot_ref("p1")).status == 0


def test_many_leaves_give_the_tree_that_plain_merges_give(repo: Repo, line: Integration) -> None:
    repo.commit({"f": "".join(LINES), "d/g": "g\n"})
    leaves = [
        leaf_commit(repo, {"f": "".join([*LINES[:at], f"edit {at}\n", *LINES[at + 1 :]]), f"new{at}": "n"})
        for at in range(0, 30, 4)
    ]
    line.start("p1", repo.head())
    for commit in leaves:
        merge_in(line, commit)

    repo("checkout", "-q", "-b", "plain")
    for commit in leaves:
        repo("merge", "-q", "--no-ff", "-m", "m", commit)

    assert repo("rev-parse", "plain^{tree}") == repo("rev-parse", f"{snapshot_ref('p1')}^{{tree}}")


def test_all_leaves_merge_again_onto_a_target_that_moved(repo: Repo, line: Integration) -> None:
    leaves = [leaf_commit(repo, {name: name}) for name in ("a", "b")]
    line.start("p1", repo.head())
    for commit in leaves:
        merge_in(line, commit)
    moved = repo.commit({"c": "by the user"})

    line.start("p1", moved)
    for commit in leaves:
        merge_in(line, commit)

    assert set(repo.files(snapshot_ref("p1"))) == {"README.md", "a", "b", "c"}
    assert repo.run("merge-base", "--is-ancestor", moved, snapshot_ref("p1")).status == 0


def test_the_same_step_twice_makes_the_same_commits_and_publishing_twice_is_fine(
    repo: Repo, repository: Repository, line: Integration
) -> None:
    line.start("p1", repo.head())
    commit = leaf_commit(repo, {"a": "a"})
    first = bring(line, commit)
    with Integration(repository) as restarted:
        second = bring(restarted, commit)

        assert isinstance(first, Prepared)
        assert first == second
        line.publish("p1", first)
        restarted.publish("p1", first)
    assert line.tips("p1") == (first.integration, first.snapshot)


def test_a_leaf_that_is_already_in_changes_nothing(repo: Repo, line: Integration) -> None:
    line.start("p1", repo.head())
    commit = leaf_commit(repo, {"a": "a"})
    done = merge_in(line, commit)

    again = bring(line, commit)

    assert again == Prepared(done.integration, done.snapshot, done.integration, done.snapshot, done.tree)


def test_a_leaf_without_changes_adds_no_commit_to_the_snapshot(repo: Repo, line: Integration) -> None:
    start = repo.head()
    line.start("p1", start)

    prepared = merge_in(line, leaf_commit(repo, {}))

    assert prepared.snapshot == start
    assert prepared.integration != start


def test_publishing_over_a_ref_that_someone_moved_moves_neither(repo: Repo, line: Integration) -> None:
    start = repo.head()
    line.start("p1", start)
    prepared = bring(line, leaf_commit(repo, {"a": "a"}))
    other = leaf_commit(repo, {"x": "x"})
    repo("update-ref", snapshot_ref("p1"), other)

    assert isinstance(prepared, Prepared)
    with pytest.raises(RefMoved):
        line.publish("p1", prepared)

    assert line.tips("p1") == (start, other)


def test_after_a_refused_step_the_next_one_works_and_sees_packed_refs(repo: Repo, line: Integration) -> None:
    line.start("p1", repo.head())
    merge_in(line, leaf_commit(repo, {"a": "a"}))
    stale = bring(line, leaf_commit(repo, {"b": "b"}))
    merge_in(line, leaf_commit(repo, {"c": "c"}))
    repo("pack-refs", "--all", "--prune")

    assert isinstance(stale, Prepared)
    with pytest.raises(RefMoved):
        line.publish("p1", stale)
    merge_in(line, leaf_commit(repo, {"d": "d"}))

    assert set(repo.files(snapshot_ref("p1"))) == {"README.md", "a", "c", "d"}


def test_commits_that_gc_took_are_noticed_before_a_ref_moves(repo: Repo, line: Integration) -> None:
    line.start("p1", repo.head())
    prepared = bring(line, leaf_commit(repo, {"a": "a"}))
    repo("reflog", "expire", "--expire=now", "--all")
    repo("gc", "-q", "--prune=now")

    assert isinstance(prepared, Prepared)
    with pytest.raises(ObjectMissing):
        line.publish("p1", prepared)


def test_a_conflict_is_a_value_and_a_resolver_can_settle_it(repo: Repo, line: Integration) -> None:
    repo.commit({"f": "".join(LINES)})
    line.start("p1", repo.head())
    merge_in(line, leaf_commit(repo, {"f": "".join([*LINES, "one\n"])}))
    other = leaf_commit(repo, {"f": "".join([*LINES, "two\n"]), "new": "kept"})

    def prefer_theirs(merge: Merge) -> Resolution:
        return resolve_by_side(line.repo, line.objects, merge, "theirs")

    refused = bring(line, other)
    settled = bring(line, other, resolver=prefer_theirs)

    assert isinstance(refused, Conflicted)
    assert [conflict.path for conflict in refused.conflicts] == [b"f"]
    assert isinstance(settled, Prepared)
    assert settled.resolution is not None and settled.resolution.paths == (b"f",)
    assert repo.files(settled.snapshot)["f"].endswith("two\n")


def test_a_merge_that_lost_a_side_is_refused(repo: Repo, line: Integration, monkeypatch: pytest.MonkeyPatch) -> None:
    line.start("p1", repo.head())
    merge_in(line, leaf_commit(repo, {"a": "a"}))
    commit = leaf_commit(repo, {"b": "b"})
    tips = line.tips("p1")
    assert tips is not None
    ours = line.objects.tree_of(tips[0])
    # A merge-tree with a bug: it answers with one side's tree.
    monkeypatch.setattr(line.merger, "merge", lambda one, other: Merge(one, other, ours))

    with pytest.raises(LostInMerge) as caught:
        bring(line, commit)

    assert caught.value.paths == (b"b",)


def test_the_merge_base_of_a_growing_line_is_the_one_git_finds(repo: Repo, repository: Repository) -> None:
    start = repo.commit({"s": "s"})
    middle = leaf_commit(repo, {"m": "m"})
    leaves = [leaf_commit(repo, {f"l{number}": "x"}, middle if number % 2 else start) for number in range(6)]
    crossed = leaf_commit(repo, {"late": "x"}, leaves[1])
    older = leaf_commit(repo, {"old": "x"}, f"{start}~1")
    with Integration(repository) as line:
        ancestry = Ancestry(repository, line.objects)
        ancestry.begin(start)
        line.start("p1", start)
        for commit in [*leaves, crossed, older]:
            tips = line.tips("p1")
            assert tips is not None

            assert ancestry.bases(tips[0], commit) == merge_bases(repository, tips[0], commit)

            prepared = merge_in(line, commit)
            ancestry.advance(tips[0], commit, prepared.integration)


def test_text_from_a_plan_cannot_forge_a_trailer_or_a_second_title() -> None:
    message = compose_message(
        "a\nb\x1b[31m", "Body\nOrchard-Landing: forged\n", {"Orchard-Job": "x\nOrchard-Landing: y"}
    )

    assert message.splitlines() == [
        "a b [31m",
        "",
        "Body",
        "  Orchard-Landing: forged",
        "",
        "Orchard-Job: x Orchard-Landing: y",
    ]
