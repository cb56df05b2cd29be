"""Branches on remotes: handing ours on, with the user's own git settings and credentials.

    push          a branch that landed, to the same name; never forced
    push_commit   a commit, to a branch that is there for a pull request

Nothing here asks for a password, and no hook runs. Settings of remotes name addresses and programs; if they are not as
they were when the repository was opened, a job may have written them, and nothing is pushed.

A branch for a pull request may have to be replaced, since the result of a plan is built again where the target moved.
It is replaced only if the remote holds a commit that we have put there, and by compare-and-swap: what others have
pushed stays.
"""

from collections.abc import Collection

from msgspec import Struct

from orchard.errors import NeedsPerson, OrchardError
from orchard.git.history import is_ancestor
from orchard.git.repository import Repository
from orchard.text import one_line, without_credentials

PUSH_TIMEOUT = 120.0


def push(repo: Repository, branch: str, remote: str | None = None) -> tuple[bool, str]:
    """Push a branch to the same name on a remote (None: where git would push it); never forced, never asks."""
    if remote is None:
        remote = push_remote(repo, branch)
    if remote == ".":
        said = f"Branch '{branch}' follows a branch of this repository, so git knows no remote to push it to."
        return False, f"{said} Name one: git config branch.{branch}.pushRemote REMOTE"
    if changed := changed_meanwhile(repo):
        return False, f"{changed} Look at 'git config --list --show-origin', then run: git push {remote} {branch}"
    ref = f"refs/heads/{branch}"
    try:
        done = repo.remote_git("push", "--", remote, f"{ref}:{ref}", ok=range(256), timeout=PUSH_TIMEOUT)
    except OrchardError as error:
        return False, without_credentials(error.message)
    said_text = without_credentials(done.stderr.decode(errors="replace")).strip()
    return done.status == 0, said_text or ("pushed" if done.status == 0 else f"git ended with status {done.status}")


def push_remote(repo: Repository, branch: str) -> str:
    said = repo.config(r"^(branch\..*\.(push)?remote|remote\.pushdefault)$")
    keys = (f"branch.{branch}.pushremote", "remote.pushdefault", f"branch.{branch}.remote")
    return next((said[key] for key in keys if said.get(key)), "origin")


def changed_meanwhile(repo: Repository) -> str | None:
    changed = repo.changed_remotes()
    if not changed:
        return None
    return f"{', '.join(changed[:3])} changed while Orchard was at work, perhaps by a job, so nothing is pushed."


def refuse_changed(repo: Repository) -> None:
    """NeedsPerson where settings of remotes are not as they were: whom they name now gets neither code nor token."""
    if said := changed_meanwhile(repo):
        raise NeedsPerson(said, hint="Look at 'git config --list --show-origin'.")


class Remote(Struct, frozen=True):
    """A remote, and the addresses by which git reads from it and writes to it."""

    name: str
    address: str
    push_address: str


def remote_named(repo: Repository, name: str) -> Remote:
    """A remote with its addresses, as git itself understands them."""
    found = [repo.remote_git("remote", "get-url", *way, "--", name, ok=range(256)) for way in ((), ("--push",))]
    if any(one.status for one in found):
        raise OrchardError(
            f"There is no remote '{one_line(name)}' to push to.",
            hint="Add one: git remote add origin ADDRESS",
        )
    addresses = [one.stdout.decode(errors="replace").splitlines()[0] for one in found]
    return Remote(name, *addresses)


def push_commit(repo: Repository, remote: str, commit: str, branch: str, ours: Collection[str]) -> None:
    """See that a branch of a remote is at a commit; `ours`: the commits that we have put there before.

    A branch that holds something else is replaced only where the commit builds on that.
    """
    refuse_changed(repo)
    ref = f"refs/heads/{branch}"
    tip = _tip(repo, remote, ref)
    if tip == commit:
        return
    if tip is not None and tip not in ours and not _builds_on(repo, tip, commit):
        raise NeedsPerson(
            f"Branch '{branch}' of '{one_line(remote)}' is at {tip:.12}, which Orchard did not push; it is left alone.",
            hint="Merge what others pushed there, or remove that branch from the remote.",
        )
    lease = f"--force-with-lease={ref}:{tip or ''}"
    done = repo.remote_git("push", lease, "--", remote, f"{commit}:{ref}", ok=range(256), timeout=PUSH_TIMEOUT)
    if done.status != 0:
        raise NeedsPerson(
            f"Branch '{branch}' could not be pushed to '{one_line(remote)}': {_said(done.stderr)}",
            hint="Try what git needs for it by hand: git push --dry-run",
        )


def _tip(repo: Repository, remote: str, ref: str) -> str | None:
    """Where a branch of a remote is now; None: it does not exist."""
    done = repo.remote_git("ls-remote", "--", remote, ref, ok=range(256), timeout=PUSH_TIMEOUT)
    if done.status != 0:
        raise NeedsPerson(
            f"The remote '{one_line(remote)}' could not be asked: {_said(done.stderr)}",
            hint=f"Try it by hand: git ls-remote {one_line(remote)}",
        )
    rows = (line.split("\t") for line in done.stdout.decode(errors="replace").splitlines())
    return next((row[0] for row in rows if row[1:] == [ref]), None)


def _builds_on(repo: Repository, tip: str, commit: str) -> bool:
    if repo.git("cat-file", "-e", f"{tip}^{{commit}}", ok=range(256)).status:
        return False
    return is_ancestor(repo, tip, commit)


def _said(stderr: bytes) -> str:
    """What git said last, which is what went wrong; in one line, and without the password of an address."""
    return one_line(without_credentials(stderr.decode(errors="replace")).strip()[-800:], 800) or "git gave no reason"
