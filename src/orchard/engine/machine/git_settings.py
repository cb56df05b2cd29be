"""The user's own git, for programs behind a wall: a copy of what is harmless among his settings.

A job's git reads `~/.gitconfig` in the job's home. What is copied there is named here key by key, since what is not
known may be a secret: credential helpers, headers with tokens, addresses with passwords, keys to sign with. Copied are
names, aliases, filters, drivers and how merges and diffs are made, from all files that git itself reads for the user.
A value that holds what looks like a token or is one of the user's secrets is left out. A secret need not look like one,
so of commands only those are copied in which none has room: no alias that runs a program or sets something, and
a filter or driver only with words that are known. One whose program is not there behind the wall is left out as well:
without it git takes a file as it is, with it git would fail.

Patterns of files to ignore, and attributes, are copied to where git looks for them by itself.
"""

import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from orchard.engine.machine.own_home import put
from orchard.files import read_plain
from orchard.git.repository import Repository
from orchard.model.secrets import secrets_of
from orchard.patterns import later
from orchard.store.redact import redact_text

Row = tuple[str, str]

HARMLESS = later(
    r"(author|committer)\.(name|email)|user\.useconfigonly|alias\..+|init\.defaultbranch|pretty\..+"
    r"|core\.(autocrlf|eol|safecrlf|whitespace|quotepath|abbrev|precomposeunicode|checkroundtripencoding|commentchar)"
    r"|filter\..+\.(clean|smudge|process|required)"
    r"|merge\.(conflictstyle|renames|directoryrenames|renamelimit|stat|ff|default|verbosity)"
    r"|merge\..+\.(name|driver|recursive)"
    r"|diff\.(algorithm|context|interhunkcontext|renames|renamelimit|mnemonicprefix|noprefix|indentheuristic"
    r"|colormoved|colormovedws|wserrorhighlight|ignoresubmodules|submodule|suppressblankempty|wordregex)"
    r"|diff\..+\.(xfuncname|funcname|binary|wordregex|algorithm|textconv)"
    r"|pull\.(rebase|ff)|protocol\.file\.allow"
)
PROGRAMS = later(r"(filter\..+)\.(?:clean|smudge|process)|(merge\..+)\.driver|(diff\..+)\.textconv")
_WORD = later(
    r"%[A-Za-z]|--|-[A-Za-z]|--[a-z]{2,16}(?:-[a-z]{2,16}){0,2}"
    r"|clean|smudge|process|filter-process|merge|diff|textconv|nbstripout"
)
"""What may follow the program of a filter or driver: none of it can be a secret, and any other word could."""
_PROGRAM = later(r"[\w./+~-]+")
_ASSIGNS = later(r"[A-Za-z][\w-]*\..*=")
_MOST_BYTES = 1 << 20
_OURS: tuple[Row, ...] = (("gc.auto", "0"), ("maintenance.auto", "false"))
"""A job's git cleans up nothing."""


class GitSettings(Struct, frozen=True):
    """What a home gets."""

    rows: tuple[Row, ...]
    files: Mapping[str, bytes]
    """By their path below the home."""

    def lay(self, home: Path, *, without: str | None = None) -> None:
        """Put it there, where nothing of that name is; `without` is a driver that does not work there."""
        rows = (row for row in self.rows if without is None or not row[0].startswith(f"{without}."))
        put(home, ".gitconfig", _written(rows))
        for name, content in self.files.items():
            put(home, name, content)


def git_settings(
    repo: Repository, identity: Row, env: Mapping[str, str], visible: Callable[[Path], bool]
) -> GitSettings:
    """What may be copied; `visible` says of a program whether it is there behind the wall."""
    home = Path(env.get("HOME") or Path.home())
    said = list(_of_user(repo))
    secrets = secrets_of(env)
    harmless = [row for row in said if _is_harmless(*row) and redact_text(row[1], secrets) == row[1]]
    missing = {
        next(filter(None, found.groups()))
        for key, value in said
        if (found := PROGRAMS.fullmatch(key))
        and ((key, value) not in harmless or not _starts(value, home, env, visible))
    }
    kept = (row for row in harmless if row[0].rpartition(".")[0] not in missing)
    names = zip(("user.name", "user.email"), identity, strict=True)
    return GitSettings((*names, *kept, *_OURS), dict(_files(said, home, env)))


def _is_harmless(key: str, value: str) -> bool:
    if HARMLESS.fullmatch(key) is None:
        return False
    words = _words(value)
    if key.startswith("alias."):
        plain = not value.lstrip().startswith(("!", "-")) and "://" not in value
        return plain and words is not None and not any(map(_ASSIGNS.search, words))
    if PROGRAMS.fullmatch(key):
        fits = words is not None and all(map(_WORD.fullmatch, words[1:]))
        return fits and (not words or _PROGRAM.fullmatch(words[0]) is not None)
    return True


def _words(command: str) -> list[str] | None:
    try:
        return shlex.split(command)
    except ValueError:
        return None


def _of_user(repo: Repository) -> Iterator[Row]:
    """All settings of the user's own files, in their order, with what these include."""
    git = repo.git.with_environment(GIT_CONFIG_COUNT="0")
    fields = git("config", "-z", "--list", "--show-scope", ok=(0, 1)).fields
    for scope, row in zip(fields[::2], fields[1::2], strict=False):
        if scope == b"global":
            key, equals, value = os.fsdecode(row).partition("\n")
            yield key, value if equals else "true"


def _starts(command: str, home: Path, env: Mapping[str, str], visible: Callable[[Path], bool]) -> bool:
    """Whether the program of a command is there; an empty one says that there is none."""
    words = _words(command)
    if not words:
        return words is not None
    first = f"{home}/{words[0][2:]}" if words[0].startswith("~/") else words[0]
    found = shutil.which(first, path=env.get("PATH", ""))
    return found is not None and visible(Path(found)) and visible(Path(os.path.realpath(found)))


def _files(said: Iterable[Row], home: Path, env: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """What git ignores, and attributes of files, for all repositories of the user's."""
    named = dict(said)
    usual = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    for key, name in (("core.excludesfile", "ignore"), ("core.attributesfile", "attributes")):
        text = named.get(key)
        place = usual / name if text is None else home / text[2:] if text.startswith("~/") else Path(text)
        if place.is_absolute():
            try:
                yield f".config/git/{name}", read_plain(Path(os.path.realpath(place)), _MOST_BYTES)
            except OSError:
                continue


def _written(rows: Iterable[Row]) -> bytes:
    """As a file of git's."""
    lines: list[str] = []
    for key, value in rows:
        section, _, rest = key.partition(".")
        inner, _, name = rest.rpartition(".")
        shown = f' "{_escaped(inner)}"' if inner else ""
        lines.append(f'[{section}{shown}]\n\t{name} = "{_escaped(value)}"\n')
    return "".join(lines).encode(errors="surrogateescape")


def _escaped(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return plain.replace("\n", "\\n").replace("\t", "\\t")
