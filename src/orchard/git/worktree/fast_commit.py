"""Small work in plain files, committed without starting a process.

Most of what a job leaves is a few files whose bytes are what git stores: no attribute, filter or line
ending rule stands between the two. Then blobs and trees can be written outright, and what a folder
holds can be compared with a commit by reading it. The cost is that of what changed, whatever the size
of the repository. Everything else (links, submodules, many or large files, an index that somebody
wrote to) is git's to look at: these functions answer None.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from orchard.git.objects.loose import LooseObjects
from orchard.git.objects.reader import EXECUTABLE, FILE, TREE, Change, Entry, Objects
from orchard.git.repository import Repository, stamp_of
from orchard.git.worktree.status import Contents

MOST_FILES = 100
LARGEST_FILE = 4 * 1024 * 1024
DEEPEST = 100

Files = Mapping[bytes, tuple[int, bytes] | None]
"""Path to mode and content; None where nothing is."""

_PLAIN = {"core.autocrlf": "false", "core.filemode": "true", "core.symlinks": "true", "core.ignorecase": "false"}
"""Settings that decide how files are stored, and what they have to say for files to be stored as they are."""
_SYSTEM_CONFIG, _SYSTEM_ATTRIBUTES = Path("/etc/gitconfig"), Path("/etc/gitattributes")


class Storage:
    """How files are stored. Git is asked, and asked again when a file that decides it has changed."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._fixed = (*_settings_files(repo), *_attribute_files(repo))
        self._known: tuple[tuple[Path, ...], tuple[int, ...] | None, bool] = (self._fixed, None, False)

    def is_plain(self) -> bool:
        """Whether no setting of the user's comes between a file's bytes and what git stores.

        Attribute files inside the repository are another matter, see `Census`.
        """
        places, seen, plain = self._known
        now = stamp_of(*places)
        if now != seen:
            values, named = _said(self._repo)
            plain = "core.attributesfile" not in values and not any(map(Path.exists, _attribute_files(self._repo)))
            plain = plain and all(values.get(key, wanted).lower() == wanted for key, wanted in _PLAIN.items())
            found = (*self._fixed, *sorted(named - {*self._fixed}))
            # How a file stood before git read it is known only if it was looked at before: if not, git is asked anew.
            self._known = (found, now if found == places else None, plain)
        return plain


def _said(repo: Repository) -> tuple[dict[str, str], set[Path]]:
    git = repo.git.with_environment(GIT_CONFIG_COUNT="0")
    rows = git("config", "--list", "--show-origin", "-z").fields
    pairs = (os.fsdecode(row).partition("\n") for row in rows[1::2])
    origins = (os.fsdecode(row).removeprefix("file:") for row in rows[::2])
    # A key without "=" has no value and means true.
    values = {key: value if equals else "true" for key, equals, value in pairs}
    return values, {repo.common_dir / origin for origin in origins}


def _settings_files(repo: Repository) -> tuple[Path, ...]:
    """The files that git takes settings from, but for those that these include."""
    env = os.environ
    users = [env["GIT_CONFIG_GLOBAL"]] if env.get("GIT_CONFIG_GLOBAL") else [f"{env.get('HOME', '')}/.gitconfig"]
    system = Path(env.get("GIT_CONFIG_SYSTEM") or _SYSTEM_CONFIG)
    own = (repo.common_dir / "config", repo.common_dir / "config.worktree")
    return (*own, *map(Path, users), _xdg() / "config", system)


def _attribute_files(repo: Repository) -> tuple[Path, ...]:
    return (_xdg() / "attributes", repo.common_dir / "info" / "attributes", _SYSTEM_ATTRIBUTES)


def _xdg() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or f"{os.environ.get('HOME', '')}/.config") / "git"


def read_files(top: Path, contents: Contents) -> Files | None:
    """What stands at every path that differs; None where that is more than plain files."""
    names = {*contents.changed, *contents.untracked}
    if contents.staged or contents.unmerged or contents.nested or contents.hidden or len(names) > MOST_FILES:
        return None
    found: dict[bytes, tuple[int, bytes] | None] = {}
    folders: dict[bytes, bool] = {b"": True}
    for name in names:
        if name.rpartition(b"/")[2] == b".gitattributes" or name.count(b"/") > DEEPEST:
            return None
        try:
            found[name] = _read_file(os.fsencode(top), name, folders)
        except _NotPlain:
            return None
    return found


def write_tree(objects: Objects, loose: LooseObjects, tree: str, files: Files) -> str:
    """The tree with these files put in and taken out; what is written is not durable yet."""
    entries = {
        name: Entry(file[0], loose.write("blob", file[1], durable=False)) if file is not None else None
        for name, file in files.items()
    }
    return _edit(objects, loose, tree, entries) or loose.write("tree", b"", durable=False)


def holds(objects: Objects, loose: LooseObjects, files: Files, trees: tuple[str, str]) -> bool:
    """Whether a folder that stands at the first tree, but for these files, holds the second tree and nothing else."""
    changes = {change.path: change for change in objects.diff_trees(*trees)}
    return changes.keys() == files.keys() and all(_is(loose, changes[name], file) for name, file in files.items())


def changes_of(objects: Objects, trees: tuple[str, str]) -> list[Change]:
    return sorted(objects.diff_trees(*trees), key=lambda change: change.path)


class _NotPlain(Exception):
    """Something that is git's to look at."""


def _read_file(top: bytes, name: bytes, folders: dict[bytes, bool]) -> tuple[int, bytes] | None:
    if not _is_folder(top, name.rpartition(b"/")[0], folders):
        return None
    try:
        descriptor = os.open(top + b"/" + name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _NotPlain from error
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            return None  # what is in it is listed by itself
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
            raise _NotPlain
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(LARGEST_FILE + 1)
    finally:
        os.close(descriptor)
    if len(content) > LARGEST_FILE:
        raise _NotPlain
    return (EXECUTABLE if status.st_mode & 0o100 else FILE, content)


def _is_folder(top: bytes, folder: bytes, known: dict[bytes, bool]) -> bool:
    """Whether this is a folder, reached through folders only; a link on the way is git's to judge."""
    if folder not in known:
        known[folder] = False
        if _is_folder(top, folder.rpartition(b"/")[0], known):
            try:
                mode = os.lstat(top + b"/" + folder).st_mode
            except FileNotFoundError:
                return False
            if stat.S_ISLNK(mode):
                raise _NotPlain
            known[folder] = stat.S_ISDIR(mode)
    return known[folder]


def _edit(objects: Objects, loose: LooseObjects, tree: str | None, edits: Mapping[bytes, Entry | None]) -> str | None:
    """The tree with these entries put in and taken out; None if nothing is left."""
    entries = dict(objects.tree_entries(tree)) if tree is not None else {}
    below: dict[bytes, dict[bytes, Entry | None]] = {}
    here: dict[bytes, Entry | None] = {}
    for path, entry in edits.items():
        name, slash, rest = path.partition(b"/")
        if slash:
            below.setdefault(name, {})[rest] = entry
        else:
            here[name] = entry
    for name, inner in below.items():
        old = entries.get(name)
        made = _edit(objects, loose, old.oid if old is not None and old.mode == TREE else None, inner)
        if made is not None:
            entries[name] = Entry(TREE, made)
        elif old is not None and old.mode == TREE:
            del entries[name]
    for name, entry in here.items():
        if entry is not None:
            entries[name] = entry
        elif (old := entries.get(name)) is not None and old.mode != TREE:
            del entries[name]
    if not entries:
        return None
    rows = sorted(entries.items(), key=lambda row: row[0] + b"/" if row[1].mode == TREE else row[0])
    data = b"".join(b"%o %s\0%s" % (entry.mode, name, bytes.fromhex(entry.oid)) for name, entry in rows)
    return loose.write("tree", data, durable=False)


def _is(loose: LooseObjects, change: Change, file: tuple[int, bytes] | None) -> bool:
    if file is None or change.new is None:
        return file is None and change.new is None
    return change.new == Entry(file[0], loose.name("blob", file[1]))
