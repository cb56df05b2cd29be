"""Which git folder a folder belongs to, where a stranger may have written either of them."""

import os
import re
import shlex
from pathlib import Path

from orchard.errors import RUN_DOCTOR, OrchardError, UsageError
from orchard.files import read_plain
from orchard.git.command import Output, run_git

_BARE = ("HEAD", "objects", "refs")
"""What a git folder holds at least."""
PATH_BYTES = 8192


def naming(start: Path, env: dict[str, str]) -> dict[str, str]:
    """The environment in which git finds the repository of a folder, be it one without a checkout that is named."""
    if start == Path() or (start / ".git").exists() or not all((start / name).exists() for name in _BARE):
        return env
    place = start.resolve()
    outer = path_in(run_git(("rev-parse", "--show-toplevel"), cwd=place.parent, env=env))
    if outer is not None and place.is_relative_to(outer):
        inside = f":(literal){place.relative_to(outer)}"
        if run_git(("ls-files", "-z", "--", inside), cwd=outer, env=env).stdout:
            raise UsageError(
                f"{start} looks like a repository, but its files are tracked by the one in {outer}.",
                hint="Settings in such a folder would run programs of whoever wrote it; clone it to use it.",
            )
    return {**env, "GIT_DIR": str(place)}


def points_elsewhere(top: Path, git_dir: Path) -> bool:
    """Whether a checkout says itself that it belongs to another git folder than this, which may say what it likes."""
    link = top / ".git"
    try:
        if link.is_dir():
            return link.resolve() != git_dir
        told = read_plain(os.path.realpath(link), PATH_BYTES).removeprefix(b"gitdir:").strip()
    except OSError:
        return False  # nobody else's
    return (top / os.fsdecode(told)).resolve() != git_dir


def path_in(done: Output) -> Path | None:
    said = os.fsdecode(done.stdout.removesuffix(b"\n"))
    return Path(said).resolve() if done.status == 0 and said else None


def not_found(start: Path, done: Output) -> OrchardError:
    start = start.absolute()
    said = done.stderr.decode(errors="replace").strip()
    if "dubious ownership" in said:
        # Git names the folder that it looks for in its settings; a subfolder of it would not do.
        named = re.search(r"dubious ownership in repository at '(.+)'", said)
        top = named[1] if named else str(start)
        return UsageError(
            f"The repository at {top} belongs to another user, so git does not trust it.",
            hint=f"If you do, run: git config --global --add safe.directory {shlex.quote(top)}",
        )
    if "safe.bareRepository" in said:
        return UsageError(
            f"{start} is in a git folder or in a repository without a checkout, which counts only where you name it.",
            hint="Name its top: orchard -C DIR list",
        )
    if "not a git repository" in said:
        return UsageError(f"{start} is not in a git repository.", hint="Run 'git init' there, or go to one.")
    return UsageError(f"Git cannot use the repository at {start}: {said}", hint=RUN_DOCTOR)
