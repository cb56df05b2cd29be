"""A repository that others change, lock, damage or move while a plan runs in it."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from orchard.testing import Repo
from tests.proof.faults import Scene, fault

LOCKED = r"\.lock"
BROKEN_REF = r"ref|broken|bad object|unable to resolve|points to|not a valid|does not exist|cannot lock"


def git_folder(scene: Scene) -> Path:
    return scene.repo.path / ".git"


@contextmanager
def stale(path: Path) -> Iterator[None]:
    """A lock that a dead git left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------ stale locks


@fault(LOCKED)
def the_index_of_the_checked_out_target_is_locked(scene: Scene) -> None:
    scene.target = "main"
    scene.look()
    scene.skip_first_failure()
    with stale(git_folder(scene) / "index.lock"):
        scene.ask("run", scene.plan_file)


@fault(LOCKED, slow=True)
def the_head_is_locked(scene: Scene) -> None:
    with stale(git_folder(scene) / "HEAD.lock"):
        scene.ask("run", scene.plan_file)


@fault(LOCKED)
def packed_refs_are_locked(scene: Scene) -> None:
    scene.killed_at("snapshot.before-publish:1")
    with stale(git_folder(scene) / "packed-refs.lock"):
        scene.ask("resume")


@fault(LOCKED)
def the_target_is_locked(scene: Scene) -> None:
    scene.repo("branch", scene.target)
    scene.skip_first_failure()
    with stale(git_folder(scene) / "refs" / "heads" / f"{scene.target}.lock"):
        scene.ask("run", scene.plan_file)


@fault(LOCKED, slow=True)
def the_snapshot_is_locked(scene: Scene) -> None:
    scene.killed_at("snapshot.before-publish:1")
    plan = scene.status()["plan"]["id"]
    with stale(git_folder(scene) / "refs" / "orchard" / "snapshot" / f"{plan}.lock"):
        scene.ask("resume")


@fault(LOCKED, slow=True)
def the_index_of_a_worktree_is_locked(scene: Scene) -> None:
    with scene.at_work():
        lock = git_folder(scene) / "worktrees" / scene.first_folder().name / "index.lock"
        lock.touch()
    lock.unlink(missing_ok=True)


@fault(LOCKED, slow=True)
def the_head_of_a_worktree_is_locked(scene: Scene) -> None:
    with scene.at_work():
        lock = git_folder(scene) / "worktrees" / scene.first_folder().name / "HEAD.lock"
        lock.touch()
    lock.unlink(missing_ok=True)


@fault(LOCKED, slow=True)
def the_settings_are_locked(scene: Scene) -> None:
    with stale(git_folder(scene) / "config.lock"):
        scene.ask("run", scene.plan_file)


@fault("interrupted")
def an_engine_died_and_left_its_locks(scene: Scene) -> None:
    scene.killed_at("landing.before-move:1" if len(scene.shape) == 1 else "snapshot.after-publish:1")
    assert (scene.state / "engine.lock").exists() and (scene.state / "daemon.json").exists()


# ---------------------------------------------------------------------------------- damaged things


@contextmanager
def emptied(path: Path) -> Iterator[None]:
    """A file that a crash of the file system left without content."""
    content = path.read_bytes()
    path.write_bytes(b"")
    try:
        yield
    finally:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def our_ref(scene: Scene, kind: str) -> Path:
    """The file of a ref of ours."""
    found = sorted(path for path in (git_folder(scene) / "refs" / "orchard" / kind).rglob("*") if path.is_file())
    return found[-1]


@fault(BROKEN_REF)
def a_kept_result_has_an_empty_ref(scene: Scene) -> None:
    scene.killed_at("snapshot.before-publish:1")
    with emptied(our_ref(scene, "keep")):
        scene.ask("resume")


@fault(BROKEN_REF)
def the_snapshot_has_an_empty_ref(scene: Scene) -> None:
    scene.killed_at("snapshot.after-publish:1")
    ref = our_ref(scene, "snapshot")
    with emptied(ref):
        scene.ask("resume")


@fault(BROKEN_REF)
def the_target_has_an_empty_ref(scene: Scene) -> None:
    scene.repo("branch", scene.target)
    scene.skip_first_failure()
    with ExitStack() as lifted, scene.at_work():
        lifted.enter_context(emptied(git_folder(scene) / "refs" / "heads" / scene.target))


@fault(r"not in a git repository|HEAD")
def the_head_is_empty(scene: Scene) -> None:
    scene.killed_at("snapshot.before-publish:1")
    scene.codes.add(2)  # git itself does not take it for a repository
    with emptied(git_folder(scene) / "HEAD"):
        scene.ask("resume")


def result_object(scene: Scene, what: str) -> Path:
    """The loose object of the newest job's commit, or of its tree."""
    kept = scene.repo.refs("refs/orchard/keep")
    name = sorted(name for name in kept if "__base__" not in name)[-1]
    oid = scene.repo("rev-parse", f"{name}^{{{what}}}").strip()
    return git_folder(scene) / "objects" / oid[:2] / oid[2:]


@contextmanager
def without(path: Path, content: bytes | None) -> Iterator[None]:
    """A file that holds something else (None: that is gone), until it is mended."""
    good = path.read_bytes()
    path.chmod(0o644)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        path.write_bytes(good)


BAD_OBJECT = (
    r"corrupt|no object|bad object|missing|unable to (read|unpack)|not a valid object|cannot be read|loose object|gone"
)


@fault(BAD_OBJECT)
def the_commit_of_a_result_is_corrupt(scene: Scene) -> None:
    scene.killed_at("snapshot.before-publish:1")
    with without(result_object(scene, "commit"), b"garbage"):
        scene.ask("resume")


@fault(BAD_OBJECT, slow=True)
def the_commit_of_a_result_is_empty(scene: Scene) -> None:
    scene.killed_at("snapshot.before-publish:1")
    with without(result_object(scene, "commit"), b""):
        scene.ask("resume")


@fault(BAD_OBJECT, slow=True)
def the_tree_of_a_result_is_missing(scene: Scene) -> None:
    scene.killed_at("snapshot.before-publish:1")
    with without(result_object(scene, "tree"), None):
        scene.ask("resume")


# ------------------------------------------------------------------------------------- settings


@contextmanager
def settings(scene: Scene, *lines: str) -> Iterator[None]:
    """Settings that somebody adds to the repository, until they are taken out again."""
    config = git_folder(scene) / "config"
    before = config.read_text()
    config.write_text(before + "\n".join(lines) + "\n")
    try:
        yield
    finally:
        config.write_text(before)


def settings_while_jobs_work(scene: Scene, *lines: str) -> None:
    with ExitStack() as lifted, scene.at_work():
        lifted.enter_context(settings(scene, *lines))


@fault(r"bare|work tree|worktree")
def core_bare_is_flipped(scene: Scene) -> None:
    settings_while_jobs_work(scene, "[core]", "\tbare = true")


@fault(r"bare|work tree|worktree", slow=True)
def core_bare_is_set_before_a_plan_is_taken_up_again(scene: Scene) -> None:
    scene.killed_at("snapshot.before-publish:1")
    with settings(scene, "[core]", "\tbare = true"):
        scene.ask("resume")


@fault(r"work tree|worktree|chdir|nowhere", slow=True)
def core_worktree_points_nowhere(scene: Scene) -> None:
    settings_while_jobs_work(scene, "[core]", "\tworktree = /nowhere/at/all")


@fault("hook|monitor")
def hostile_programs_are_put_into_the_settings(scene: Scene) -> None:
    trap = scene.folder / "trap"
    trap.mkdir()
    marker = scene.folder / "sprung"
    for name in ("reference-transaction", "post-checkout", "post-commit", "pre-commit", "post-index-change", "spy"):
        (trap / name).write_text(f"#!/bin/sh\necho {name} >> {marker}\nexit 1\n")
        (trap / name).chmod(0o755)
    lines = ["[core]", f"\thooksPath = {trap}", f"\tfsmonitor = {trap}/spy", f"\tpager = {trap}/spy"]
    lines += [f"\teditor = {trap}/spy", f"\tsshCommand = {trap}/spy", "[diff]", f"\texternal = {trap}/spy"]
    settings_while_jobs_work(scene, *lines, "[credential]", f"\thelper = {trap}/spy")
    assert not marker.exists(), marker.read_text()


@fault("sign|gpg")
def signing_is_asked_for_and_impossible(scene: Scene) -> None:
    settings_while_jobs_work(scene, "[commit]", "\tgpgSign = true", "[gpg]", "\tprogram = false")


@fault("config")
def the_settings_cannot_be_parsed(scene: Scene) -> None:
    settings_while_jobs_work(scene, "[core", "\tnonsense =")


@fault("identity|who you are|author|name", slow=True)
def the_user_loses_their_name(scene: Scene) -> None:
    settings_while_jobs_work(scene, "[user]", "\tname =", "\temail =", "\tuseConfigOnly = true")


# ------------------------------------------------------------------------------------- worktrees


GONE = r"gone|removed|exist|no such file|cannot be saved|worktree"


@fault(GONE)
def a_worktree_is_removed_by_hand(scene: Scene) -> None:
    scene.lost = {row.name for row in scene.shape}
    with scene.at_work():
        shutil.rmtree(scene.first_folder())


@fault(GONE, slow=True)
def all_worktrees_are_removed_after_a_crash(scene: Scene) -> None:
    scene.lost = {row.name for row in scene.shape}
    # The sleep lets the journal take in that the work has ended: what is left is to commit it.
    scene.killed_at("commit.before:1:sleep=0.3,commit.after:1")
    shutil.rmtree(scene.repo.path / ".worktrees")
    scene.ask("resume")


@fault(GONE)
def a_worktree_entry_is_removed(scene: Scene) -> None:
    with scene.at_work():
        shutil.rmtree(git_folder(scene) / "worktrees" / scene.first_folder().name)


@fault(GONE)
def worktrees_are_pruned_beside(scene: Scene) -> None:
    with scene.at_work():
        for entry in (git_folder(scene) / "worktrees").iterdir():
            (entry / "locked").unlink(missing_ok=True)
        scene.repo("worktree", "prune", "--expire=now")
        scene.repo("worktree", "repair")


@fault(GONE, slow=True)
def the_worktree_root_becomes_a_file(scene: Scene) -> None:
    scene.killed_at("worktree.before-take:1")
    root = scene.repo.path / ".worktrees"
    shutil.rmtree(root, ignore_errors=True)
    root.write_text("")
    scene.ask("resume")
    root.unlink()


# ------------------------------------------------------------------------------------- the target


@fault("does not exist any more")
def the_target_is_deleted(scene: Scene) -> None:
    tip = scene.repo.head()
    scene.repo("branch", scene.target)
    scene.skip_first_failure()
    with scene.at_work():
        scene.repo("branch", "-D", scene.target)
    if not scene.repo.exists(f"refs/heads/{scene.target}"):
        scene.repo("branch", scene.target, tip)


@fault("does not exist any more", slow=True)
def the_target_is_renamed(scene: Scene) -> None:
    scene.repo("branch", scene.target)
    scene.skip_first_failure()
    with scene.at_work():
        scene.repo("branch", "-m", scene.target, "elsewhere")
    scene.repo("branch", "-m", "elsewhere", scene.target)


def foreign_commit(scene: Scene, parent: str) -> str:
    """A commit by somebody else, made without any checkout."""
    blob = scene.repo("hash-object", "-w", "--stdin", stdin=b"theirs\n").strip()
    listed = f"{scene.repo('ls-tree', parent)}100644 blob {blob}\ttheirs.txt\n"
    tree = scene.repo("mktree", stdin=listed.encode()).strip()
    return scene.repo("commit-tree", tree, "-p", parent, "-m", "theirs").strip()


@fault("moved|target")
def the_target_is_moved(scene: Scene) -> None:
    scene.repo("branch", scene.target)
    scene.skip_first_failure()
    with scene.at_work():
        scene.repo("update-ref", f"refs/heads/{scene.target}", foreign_commit(scene, scene.target))
        scene.extra["theirs.txt"] = "theirs\n"


@fault("amended or reset")
def the_target_is_rewound(scene: Scene) -> None:
    """Somebody takes a commit off the target by force: a person is asked, and what lands stands on what is left."""
    scene.repo("branch", scene.target, foreign_commit(scene, scene.repo.head()))
    scene.skip_first_failure()
    with scene.at_work():
        scene.repo("branch", "-f", scene.target, f"{scene.target}^")
    scene.ask("land", "--yes")


@fault("moved|target|interrupted", slow=True)
def the_target_is_moved_after_a_crash(scene: Scene) -> None:
    scene.repo("branch", scene.target)
    scene.killed_at("snapshot.after-publish:1")
    scene.repo("update-ref", f"refs/heads/{scene.target}", foreign_commit(scene, scene.target))
    scene.extra["theirs.txt"] = "theirs\n"
    scene.ask("resume")


@fault("interrupted|gone|moved")
def the_repository_is_moved_after_a_crash(scene: Scene) -> None:
    scene.killed_at("snapshot.before-publish:1")
    there = scene.folder / "moved"
    scene.repo.path.rename(there)
    scene.repo = Repo(there)
    scene.look()
    scene.ask("resume")
