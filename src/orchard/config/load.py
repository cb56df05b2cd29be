"""The settings that hold here: flags over environment over repository over user over defaults.

A repository's `orchard.toml` is a stranger's file. It is read with bounds, and the keys in it that
run programs or loosen what the user has set are left out until the user has trusted exactly that
content; they are handed back as `Settings.untrusted`, and the caller decides whether to ask or to stop.
So is its `.worktreeinclude`, for it brings files of the user's, keys among them, in front of the repository's jobs:
its lines are settings like those of `worktree.include`, and stand before them.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.config.keys import KEYS, NAMES_AGENT, NEEDS_TRUST, ROWS, Key
from orchard.config.layers import Config, Layer, environment_layers, flag_layers, flatten, lookup, merge_layers
from orchard.config.rows import without_narrowing
from orchard.config.trust import digest, trusted
from orchard.config.user_dirs import UserDirs, user_dirs
from orchard.errors import InvalidInput, Problem
from orchard.model.agent_rows import ACP
from orchard.text import quoted

REPOSITORY_FILE = "orchard.toml"
INCLUDE_FILE = ".worktreeinclude"
USER_FILE = "config.toml"

FILE_BYTES = 64 * 1024
LINE_DOTS = 100
"""The time of a TOML parser grows with the square of the parts of a dotted key: 30,000 of them take 20 s."""


class Settings(Struct, frozen=True):
    config: Config
    origins: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    untrusted: Mapping[str, object] = field(default_factory=dict)
    """Keys of the repository's file that have no effect before `orchard trust`, to be shown in full."""
    untrusted_digest: str | None = None
    """What `trust` must be given for exactly these values."""
    files: Mapping[str, str] = field(default_factory=dict)
    """By the name of each file that was read, a digest of what counts of it."""

    def changed_since(self, earlier: "Settings") -> list[str]:
        """The files that say something else than in `earlier`, or are new or gone."""
        names = sorted(self.files.keys() | earlier.files.keys())
        return [name for name in names if self.files.get(name) != earlier.files.get(name)]


def load_settings(
    top: Path | None,
    flags: Mapping[str, object],
    env: Mapping[str, str],
    dirs: UserDirs | None = None,
    common_dir: Path | None = None,
) -> Settings:
    """Read every layer; InvalidInput holds all problems of all of them. `common_dir` is the repository's git folder."""
    dirs = dirs or user_dirs()
    problems: list[Problem] = []
    user = _read_layer(dirs.config / USER_FILE, str(dirs.config / USER_FILE), problems)
    repository = None if top is None else _read_layer(top / REPOSITORY_FILE, REPOSITORY_FILE, problems)
    included = [] if top is None else _include_file(top / INCLUDE_FILE, problems)
    doubtful: dict[str, object] = {}
    if top is not None and (repository is not None or included):
        values = repository.values if repository is not None else {}
        doubtful = untrusted_keys(top, values, included, user.values if user else {}, dirs.state, common_dir)
    if repository is not None:
        repository = replace(repository, repository=True, ignored=frozenset(doubtful))
    variables, warnings = environment_layers(env)
    if repository is not None:
        warnings += _told_of(repository.values)
    layers = [layer for layer in (user, repository, *variables, *flag_layers(flags)) if layer is not None]
    try:
        resolved = merge_layers(layers)
    except InvalidInput as error:
        raise InvalidInput(error.what, [*problems, *error.problems], error.hint) from None
    if problems:
        raise InvalidInput("configuration", problems)
    asked = digest(doubtful) if doubtful else None
    read = {one.origin: _counted(one) for one in (user, repository) if one is not None}
    config, origins = resolved.config, resolved.origins
    if included and INCLUDE_FILE not in doubtful:
        read[INCLUDE_FILE] = digest({"lines": included})
        worktree = replace(config.worktree, include=(*included, *config.worktree.include))
        told = [INCLUDE_FILE, *([origins[_INCLUDE]] if len(worktree.include) > len(included) else [])]
        config, origins = replace(config, worktree=worktree), {**origins, _INCLUDE: " and ".join(told)}
    return Settings(config, origins, tuple(warnings), doubtful, asked, read)


_INCLUDE = "worktree.include"


def _include_file(path: Path, problems: list[Problem]) -> list[str]:
    """The patterns of a file in the syntax of `.gitignore`; a link is none."""
    try:
        text = None if path.is_symlink() else _read_text(path)
    except UnicodeDecodeError:
        problems.append(Problem("is not UTF-8 text", file=INCLUDE_FILE))
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        problems.append(Problem(str(said), file=INCLUDE_FILE))
    else:
        lines = (line.removesuffix("\r") for line in (text or "").split("\n"))
        return [line for line in lines if line.strip() and not line.startswith("#")]
    return []


def _counted(layer: Layer) -> str:
    return digest({"values": layer.values, "ignored": sorted(layer.ignored)})


def untrusted_keys(
    top: Path,
    values: Mapping[str, object],
    included: list[str],
    user: Mapping[str, object],
    state: Path | None = None,
    common_dir: Path | None = None,
) -> dict[str, object]:
    """What in a repository's settings needs trust and does not have it, by dotted key; `user` is the user's file."""
    values = without_narrowing(values)
    # An empty list runs nothing and lets nothing through, so it needs nobody's consent.
    found = {name: value for name in NEEDS_TRUST if (value := lookup(values, name))}
    # The name of an agent only chooses one; behind `acp:` it is a command.
    found |= {name: value for name in NAMES_AGENT if str(value := lookup(values, name)).startswith(ACP)}
    found |= {name: lookup(values, name) for name, key in KEYS.items() if _loosens(key, values, user)}
    found |= _joined(values, user)
    found |= {INCLUDE_FILE: included} if included else {}
    return {} if not found or trusted(top, digest(found), state, common_dir) else found


def _joined(values: Mapping[str, object], user: Mapping[str, object]) -> dict[str, object]:
    """What rows of a repository's file would get from the user's own rows of the same name, such as keys in headers."""
    found: dict[str, object] = {}
    for table in ROWS:
        theirs, own = values.get(table), user.get(table)
        if not isinstance(theirs, dict) or not isinstance(own, dict):
            continue
        for name, row in theirs.items():
            mine = own.get(name)
            if isinstance(row, dict) and isinstance(mine, dict) and (kept := sorted(mine.keys() - row.keys())):
                found[f"{table}.{name}, which takes over from your own row"] = kept
    return found


def _loosens(key: Key, values: Mapping[str, object], user: Mapping[str, object]) -> bool:
    """Whether a repository's file takes a limit away that the user, or a default, has set."""
    given, own = lookup(values, key.name), lookup(user, key.name)
    if key.loosens is None or given is None:
        return False
    try:
        below = key.kind.check(own) if own is not None else flatten(Config(), [key.name])[key.name]
        return key.loosens(key.kind.check(given), below)
    except ValueError:
        return False  # which is a problem of that file, and is told as one


def _told_of(values: Mapping[str, object]) -> list[str]:
    """What a repository's file does with ignored files that jobs left: it is done, but not in silence."""
    names = _listed(lookup(values, "worktree.keep"))
    return [f"{REPOSITORY_FILE} keeps for the next job: {quoted(names)}"] if names else []


def _listed(names: object) -> str:
    return ", ".join(str(name) for name in names) if isinstance(names, list) else ""


def read_file(path: Path) -> tuple[str, Mapping[str, object]]:
    """The text of a file of settings and what it says; nothing where it cannot be read."""
    layer = _read_layer(path, str(path), [])
    return (layer.text, layer.values) if layer is not None else ("", {})


def _read_layer(path: Path, name: str, problems: list[Problem]) -> Layer | None:
    """One file as a layer, or None where there is none; trouble with it is added to `problems`."""
    try:
        text = _read_text(path)
        return None if text is None else Layer(name, _parse(text), file=name, text=text)
    except OSError as error:
        problems.append(Problem(f"cannot be read: {error.strerror}", file=name))
    except RecursionError:
        problems.append(Problem("is nested too deep", file=name))
    except UnicodeDecodeError:
        problems.append(Problem("is not UTF-8 text", file=name))
    except ValueError as error:
        said, _, place = str(error).partition(" (at line ")
        line = place.partition(",")[0]
        problems.append(Problem(said, file=name, line=int(line) if line.isdecimal() else None))
    return None


def _parse(text: str) -> dict[str, object]:
    import tomllib  # only commands that find a file pay for it

    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ValueError(f"is not valid TOML: {error}") from None


def _read_text(path: Path) -> str | None:
    """The text of a file that may be anything: never waits for a pipe, never reads without end."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("is not a file")
    with os.fdopen(handle, "rb") as file:
        data = file.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise ValueError(f"is longer than {FILE_BYTES // 1024} KiB")
    text = data.decode()
    if any(line.count(".") > LINE_DOTS for line in text.split("\n")):
        raise ValueError(f"has a line with more than {LINE_DOTS} dots")
    return text
