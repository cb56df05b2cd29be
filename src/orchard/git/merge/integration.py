"""A plan's own lines of commits, where its leaves come together before anything lands.

The **integration** line holds true merges: each leaf is a second parent, so git finds the right merge base when two
leaves share an ancestor. The **snapshot** line is what lands. Both always hold the same tree; they differ in ancestry:

    mode "squash"   the snapshot gets one commit with one parent for each leaf that changes something
    mode "merge"    the snapshot is the integration line

The rule for a leaf is always the same: if the integration line already has it, nothing is made; otherwise it becomes
a merge with two parents, even where git could have fast-forwarded, so that messages and ancestry are uniform.

`prepare` only writes objects, and the same arguments make the same commits (dates come with them; a signature is the
one thing that differs each time). `publish` moves both refs in one transaction. A crash between the two is repaired
by doing both again.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from msgspec import Struct, field

from orchard.errors import Next, OrchardError
from orchard.git.history import Ancestry, is_ancestor
from orchard.git.merge.account import Trees, check
from orchard.git.merge.conflicts import Conflict, Merge, Resolution
from orchard.git.objects.processes import Live
from orchard.git.objects.reader import ObjectMissing
from orchard.git.refs import RefMoved, Update, confirm, integration_ref, list_refs, snapshot_ref, update_refs
from orchard.git.repository import Repository

Mode = Literal["squash", "merge"]

Resolver = Callable[[Merge], Resolution | None]
"""Turns a conflicted merge into a tree, or gives up with None."""


class LeafMerge(Struct, frozen=True):
    plan: str
    job: str
    commit: str
    integration: str
    snapshot: str
    title: str
    when: int
    """Seconds since 1970; part of the commits' identity, so a repetition must use the same."""
    mode: Mode = "squash"
    body: str = ""
    trailers: Mapping[str, str] = field(default_factory=dict)
    resolver: Resolver | None = None
    sign: bool = False


class Prepared(Struct, frozen=True):
    """Commits that exist but that no ref holds yet; equal old and new tips mean that nothing changes."""

    old_integration: str
    old_snapshot: str
    integration: str
    snapshot: str
    tree: str
    resolution: Resolution | None = None


class Conflicted(Struct, frozen=True):
    merge: Merge

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        return self.merge.conflicts


class Integration:
    """Brings leaves together in one repository; holds git processes open, so `close` it."""

    def __init__(self, repo: Repository) -> None:
        self.repo = repo
        self.live = Live(repo)
        self.objects, self.merger = self.live.objects, self.live.merger
        self._ancestry = Ancestry(repo, self.objects)

    def __enter__(self) -> "Integration":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.live.close()

    def start(self, plan: str, commit: str, integration: str | None = None) -> None:
        """Put both lines at a commit, usually the target's tip; `integration`: that line goes there instead."""
        wanted = {integration_ref(plan): integration or commit, snapshot_ref(plan): commit}
        now = list_refs(self.repo.git, *wanted)
        updates = [Update(ref, to, now.get(ref)) for ref, to in wanted.items() if now.get(ref) != to]
        update_refs(self.repo.git, updates, f"orchard: start of {plan}")
        self._ancestry.begin(integration or commit)

    def supersede(self, commit: str, before: str, when: int) -> str:
        """A commit with the tree of `commit` that builds on `before` as well.

        What was made on `before` is merged with it by what it changed there: what a user took off a branch stays off.
        """
        message = f"orchard: {commit:.12} in place of {before:.12}\n"
        return self.merger.commit(self.objects.tree_of(commit), (commit, before), message, when=when)

    def take_back(self, tip: str, before: str, after: str, message: str, *, when: int, sign: bool) -> str | Conflicted:
        """A commit on top of `tip`, which holds `after`, without what came between `before` and `after`.

        `tip` itself is the answer where nothing of that is left to take back.
        """
        away = self.merger.commit(self.objects.tree_of(before), (after,), "orchard: take back\n", when=when)
        merge = self.merger.merge(tip, away)
        self._account(merge)
        if not merge.clean:
            return Conflicted(merge)
        if merge.tree == self.objects.tree_of(tip):
            return tip
        return self.merger.commit(merge.tree, (tip,), message, when=when, sign=sign)

    def tips(self, plan: str) -> tuple[str, str] | None:
        """Where integration and snapshot are; None before `start`."""
        refs = (integration_ref(plan), snapshot_ref(plan))
        now = list_refs(self.repo.git, *refs)
        return (now[refs[0]], now[refs[1]]) if len(now) == len(refs) else None

    def prepare(self, leaf: LeafMerge) -> Prepared | Conflicted:
        before = self.objects.tree_of(leaf.integration)
        if self.objects.tree_of(leaf.snapshot) != before:
            raise OrchardError(
                f"The lines of plan '{leaf.plan}' hold different trees.",
                hint=("Run '", Next("retry_plan", leaf.plan), "'."),
            )
        merge = self.merger.merge(leaf.integration, leaf.commit)
        self._account(merge)
        tree, resolution = merge.tree, None
        if not merge.clean:
            resolution = leaf.resolver(merge) if leaf.resolver is not None else None
            if resolution is None:
                return Conflicted(merge)
            tree = resolution.tree
        if tree == before and is_ancestor(self.repo, leaf.commit, leaf.integration):
            return Prepared(leaf.integration, leaf.snapshot, leaf.integration, leaf.snapshot, tree)
        return self._commit(leaf, tree, resolution)

    def publish(self, plan: str, prepared: Prepared) -> None:
        """Move both lines at once; RefMoved if someone else moved one. Doing it twice is the same as once."""
        # A `git gc --prune=now` since `prepare` may have taken what no ref held.
        if gone := self.objects.missing((prepared.integration, prepared.snapshot, prepared.tree)):
            raise ObjectMissing(gone)
        updates = [
            Update(integration_ref(plan), prepared.integration, prepared.old_integration),
            Update(snapshot_ref(plan), prepared.snapshot, prepared.old_snapshot),
        ]
        try:
            self.live.lines.move(updates, f"orchard: merge into {plan}")
        except RefMoved:
            if self.tips(plan) != (prepared.integration, prepared.snapshot):
                raise
        if (self.repo.common_dir / "gc.pid").exists():
            # One that began before the refs moved goes on deleting what it saw no ref for.
            for update in updates:
                confirm(self.repo.git, update.ref, str(update.new), str(update.old))

    def _account(self, merge: Merge) -> None:
        bases = self._ancestry.bases(merge.ours, merge.theirs)
        tree = self.objects.tree_of
        trees = Trees(tuple(map(tree, bases)), tree(merge.ours), tree(merge.theirs), merge.tree, merge.conflicts)
        check(self.objects, trees)

    def _commit(self, leaf: LeafMerge, tree: str, resolution: Resolution | None) -> Prepared:
        message = compose_message(leaf.title, leaf.body, leaf.trailers)
        squash = leaf.mode == "squash"
        parents = (leaf.integration, leaf.commit)
        # Both lines can be made again; what lands is hardened before.
        make = partial(self.merger.commit, when=leaf.when, durable=False)
        integration = make(tree, parents, message, sign=leaf.sign and not squash)
        snapshot = integration
        if squash and tree == self.objects.tree_of(leaf.snapshot):
            snapshot = leaf.snapshot
        elif squash:
            snapshot = make(tree, (leaf.snapshot,), message, sign=leaf.sign)
        self._ancestry.advance(leaf.integration, leaf.commit, integration)
        return Prepared(leaf.integration, leaf.snapshot, integration, snapshot, tree, resolution)

    def harden(self, start: str, tip: str) -> None:
        """Make a line outlive a power cut, from the commit it began at to its tip."""
        names, waiting = set[str](), [tip]
        while waiting:
            name = waiting.pop()
            if name not in names and name != start:
                names.add(name)
                # A second parent is a job's result, which was made durable before it was a result.
                waiting += self.objects.parents(name)[:1]
        self.live.loose.harden(names)


def compose_message(title: str, body: str = "", trailers: Mapping[str, str] | None = None) -> str:
    """A commit message: one line, the text, the trailers. What comes from a plan cannot forge a trailer."""
    rows = [f"{key}: {_one_line(value)}" for key, value in (trailers or {}).items()]
    text = "\n".join(line.rstrip() for line in body.replace("\0", "").splitlines()).strip("\n")
    # A line of the body that looks like a trailer of ours is indented, so that nothing reads it as one.
    parts = [_one_line(title) or "Merge", re.sub(r"(?im)^(?=orchard-)", "  ", text), "\n".join(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
