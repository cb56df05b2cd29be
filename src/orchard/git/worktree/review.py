"""What a job may not put into a commit, and how it is found.

The rules look at raw differences (modes, ids and bytes), because names are the job's to choose:

    a new submodule, or a repository disguised as files: a later git would obey its settings
    a link that leaves the folder: a program that writes through it writes elsewhere
    a path that some file system takes for `.git`
    two paths that a case-insensitive file system takes for one
"""

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from orchard.git.repository import Repository
from orchard.git.worktree.status import display
from orchard.patterns import later

GITLINK = "160000"
LINK = "120000"
LISTED = 20
INSTALLED = frozenset({b".venv", b"venv", b".virtualenv", b"virtualenv", b"node_modules", b".tox", b".nox"})
"""Names of folders that package managers fill."""
NOTHING_MOVED: Mapping[bytes, str] = {}
BINARY_LOOK = 8000
"""A file with a NUL in this many bytes is binary to git."""

_BARE = frozenset({b"head", b"objects", b"refs", b"config"})

# Code points that HFS+ ignores in names, so that `.g\u200cit` opens `.git`.
_IGNORED = later("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


class Difference(Struct, frozen=True):
    path: bytes
    old_mode: str
    new_mode: str
    oid: str
    status: str

    @property
    def present(self) -> bool:
        return self.status != "D"


class Finding(Struct, frozen=True):
    message: str
    hint: str
    paths: tuple[str, ...]


class Reviewed(Struct, frozen=True):
    added: int
    modified: int
    deleted: int
    lines_added: int = 0
    lines_deleted: int = 0

    @property
    def total(self) -> int:
        return self.added + self.modified + self.deleted


def review(repo: Repository, base: str, tree: str, moved: Mapping[bytes, str] = NOTHING_MOVED) -> Reviewed | Finding:
    """`moved`: the submodules that the job may have moved, each to this commit only."""
    return judge(repo, tree, *differences(repo, base, tree), moved)


def judge(
    repo: Repository,
    tree: str,
    differences: list[Difference],
    lines: tuple[int, int],
    moved: Mapping[bytes, str] = NOTHING_MOVED,
) -> Reviewed | Finding:
    """Hold the differences that led to `tree` against the rules; `lines` came and went."""
    present = [one for one in differences if one.present and not _may_move(one, moved)]
    for rule in _RULES:
        found = sorted(set(rule.find(repo, tree, present)))
        if found:
            names = tuple(display(path) for path in found)
            hint = rule.better_hint(found, present) or rule.hint
            return Finding(f"{rule.message}: {', '.join(names[:5])}", hint, names[:LISTED])
    counts = [one.status for one in differences]
    modified = len(counts) - counts.count("A") - counts.count("D")
    return Reviewed(counts.count("A"), modified, counts.count("D"), *lines)


def count_lines(content: bytes) -> int:
    """How many lines git says a new file has; a binary file has none."""
    if b"\0" in content[:BINARY_LOOK]:
        return 0
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def differences(repo: Repository, base: str, tree: str) -> tuple[list[Difference], tuple[int, int]]:
    """Every path that differs, and how many lines came and went; a binary file has none."""
    flags = ("-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
    fields = iter(repo.git("diff-tree", *flags, base, tree, "--", timeout=300).fields)
    found: list[Difference] = []
    came = went = 0
    for field in fields:
        if field.startswith(b":"):
            old_mode, new_mode, _, oid, status = field.decode()[1:].split(" ")
            found.append(Difference(next(fields), old_mode, new_mode, oid, status[0]))
        else:
            plus, minus = field.split(b"\t", 2)[:2]
            came += int(plus) if plus != b"-" else 0
            went += int(minus) if minus != b"-" else 0
    return found, (came, went)


def _may_move(one: Difference, moved: Mapping[bytes, str]) -> bool:
    return one.old_mode == one.new_mode == GITLINK and moved.get(one.path) == one.oid


def _new_gitlinks(_: Repository, __: str, present: list[Difference]) -> list[bytes]:
    return [one.path for one in present if one.new_mode == GITLINK and one.old_mode != GITLINK]


def _moved_gitlinks(_: Repository, __: str, present: list[Difference]) -> list[bytes]:
    return [one.path for one in present if one.new_mode == GITLINK and one.old_mode == GITLINK]


def _git_names(_: Repository, __: str, present: list[Difference]) -> list[bytes]:
    links = (one.path for one in present if one.new_mode == LINK and _is_modules_name(one.path))
    return [*(one.path for one in present if _is_git_name(one.path)), *links]


def _is_git_name(path: bytes) -> bool:
    """Whether a part of the path is `.git` to macOS or Windows, if not here."""
    # A backslash separates folders on Windows.
    return any(_plain_name(part) in (".git", "git~1") for part in re.split(rb"[/\\]", path))


def _is_modules_name(path: bytes) -> bool:
    """Whether a path is `.gitmodules` somewhere: git writes no link of that name."""
    name = _plain_name(path.rpartition(b"/")[2])
    return name == ".gitmodules" or re.fullmatch(r"gitmod~[1-4]|gi7eba~[1-9]", name) is not None


def _plain_name(part: bytes) -> str:
    return _IGNORED.sub("", part.decode(errors="surrogateescape")).casefold().split(":")[0].rstrip(" .")


def _links_out(repo: Repository, _: str, present: list[Difference]) -> list[bytes]:
    links = [one for one in present if one.new_mode == LINK]
    if not links:
        return []
    targets = _read_blobs(repo, [one.oid for one in links])
    return [one.path for one, target in zip(links, targets, strict=True) if _leaves(one.path, target)]


def _leaves(path: bytes, target: bytes) -> bool:
    """Whether a link leads out. A `..` after a name is refused too: that name may itself be a link."""
    parts = [part for part in target.split(b"/") if part not in (b"", b".")]
    ups = next((number for number, part in enumerate(parts) if part != b".."), len(parts))
    absolute = target.startswith(b"/") or not target
    return absolute or ups > path.count(b"/") or b".." in parts[ups:] or _is_git_name(target)


def _planted(repo: Repository, tree: str, present: list[Difference]) -> list[bytes]:
    """Folders that now hold what git looks for in a bare repository: HEAD, objects, and refs or a config."""
    folders: set[bytes] = set()
    for one in present:
        parts = one.path.split(b"/")
        folders.update(b"/".join(parts[:number]) for number, part in enumerate(parts) if part.lower() in _BARE)
    if not folders:
        return []
    holds: dict[bytes, set[bytes]] = {folder: set() for folder in folders}
    for row in repo.git("ls-tree", "-r", "-z", "--name-only", tree).fields:
        parts = row.split(b"/")
        for number, part in enumerate(parts):
            folder = b"/".join(parts[:number])
            if part.lower() in _BARE and folder in holds:
                holds[folder].add(part.lower())
    bare = ({b"head", b"objects", b"refs"}, {b"head", b"objects", b"config"})
    return [folder or b"." for folder, kinds in holds.items() if any(kinds >= needed for needed in bare)]


def _case_collisions(repo: Repository, tree: str, present: list[Difference]) -> list[bytes]:
    """Paths that are new here and would overwrite another one."""
    if not repo.ignores_case:
        return []
    added = {one.path for one in present if one.status == "A"}
    if not added:
        return []
    names: dict[str, set[bytes]] = {}
    for row in repo.git("ls-tree", "-r", "-t", "-z", "--name-only", tree).fields:
        names.setdefault(row.decode(errors="surrogateescape").casefold(), set()).add(row)
    return [path for same in names.values() if len(same) > 1 for path in same]


def _read_blobs(repo: Repository, oids: list[str]) -> list[bytes]:
    out = repo.git("cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in oids).encode()).stdout
    blobs, place = [], 0
    for _ in oids:
        end = out.index(b"\n", place)
        size = int(out[place:end].split(b" ")[2])
        blobs.append(out[end + 1 : end + 1 + size])
        place = end + 2 + size
    return blobs


def _ignore_hint(found: list[bytes], present: list[Difference]) -> str | None:
    """What to do about links in folders of installed packages, which somebody forgot to have git ignore."""
    environments = {one.path.rpartition(b"/")[0] for one in present if one.path.endswith(b"/pyvenv.cfg")}
    folders: set[str] = set()
    for path in found:
        parts = path.split(b"/")
        above = [b"/".join(parts[: number + 1]) for number in range(len(parts))]
        installed = (one for one in above if one in environments or one.rpartition(b"/")[2] in INSTALLED)
        if (folder := next(installed, None)) is None:
            return None  # there are other links as well
        folders.add(display(folder))
    names = " and ".join(f"'{name}'" for name in sorted(folders)[:3])
    holds = "looks like a folder" if len(folders) == 1 else "look like folders"
    return f"{names} {holds} of installed packages: add {names} to .gitignore, and commit that."


def _no_better_hint(_: list[bytes], __: list[Difference]) -> None:
    return None


class _Rule(Struct, frozen=True):
    find: Callable[[Repository, str, list[Difference]], list[bytes]]
    message: str
    hint: str
    better_hint: Callable[[list[bytes], list[Difference]], str | None] = _no_better_hint


_RULES = (
    _Rule(
        _new_gitlinks,
        "The job added submodules or git repositories",
        "Have the job add the files instead, without their '.git'.",
    ),
    _Rule(
        _moved_gitlinks,
        "The job moved submodules to other commits",
        "With 'submodules: true' in the plan a job may: it checks the commit out in the submodule's folder. Or update "
        "submodules in a commit of your own, before the plan.",
    ),
    _Rule(_git_names, "The job added paths that pass for '.git' on some systems", "Have the job choose other names."),
    _Rule(
        _links_out,
        "The job added links that point outside of the repository",
        "Have the job use relative links to files inside the repository.",
        _ignore_hint,
    ),
    _Rule(
        _planted,
        "The job added folders that git would take for repositories",
        "Have the job remove them, or store them as an archive.",
    ),
    _Rule(
        _case_collisions,
        "The job added paths that differ from others only in upper and lower case",
        "Have the job choose names that differ otherwise.",
    ),
)
