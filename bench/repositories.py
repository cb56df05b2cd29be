"""Real repositories, made by `git fast-import` so that even a large one takes a moment."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchard.bench.place import Bench, git

FILES_PER_FOLDER = 50
WHEN = "Bench <bench@example.com> 1767225600 +0000"


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a repository is."""

    files: int
    bytes_per_file: int

    @property
    def shown(self) -> str:
        return f"{self.files:,} files"


SMALL = Shape(100, 400)
MEDIUM = Shape(5_000, 10_000)
LARGE = Shape(50_000, 100)
QUICK = Shape(20, 100)


def make_repository(bench: Bench, shape: Shape, leaves: int = 0) -> Path:
    """A packed repository with one commit on `main`, and one-file commits on `leaf/N` beside it."""
    path = bench.fresh("repo")
    git(bench.folder, "init", "-q", "--initial-branch=main", str(path))
    for key, value in (("gc.auto", "0"), ("maintenance.auto", "false")):
        git(path, "config", key, value)
    stream = b"".join((*_first_commit(shape), *_leaf_commits(leaves)))
    git(path, "fast-import", "--quiet", stdin=stream)
    git(path, "repack", "-adq")
    return path


def copy_repository(bench: Bench, template: Path) -> Path:
    """A repository of its own for one side of one round; what is in the pack is shared by hard links."""
    path = bench.fresh("copy")
    git(bench.folder, "clone", "-q", "--local", "--no-checkout", str(template), str(path))
    for key, value in (("gc.auto", "0"), ("maintenance.auto", "false")):
        git(path, "config", key, value)
    return path


def _first_commit(shape: Shape) -> Iterator[bytes]:
    yield f"commit refs/heads/main\nmark :1\ncommitter {WHEN}\ndata 5\nfirst\n".encode()
    dice = random.Random(shape.files)
    for number in range(shape.files):
        content = _text(dice, shape.bytes_per_file)
        path = f"src/part{number // FILES_PER_FOLDER:04}/file{number:05}.txt"
        yield f"M 100644 inline {path}\ndata {len(content)}\n".encode() + content + b"\n"
    yield b"\n"


def _text(dice: random.Random, size: int) -> bytes:
    """Lines that a compressor finds about as dense as source code."""
    lines = []
    while size > 0:
        word = dice.randbytes(8).hex()
        lines.append(f"    value_{word} = compute(value_{word}, other)  # the same again\n")
        size -= len(lines[-1])
    return "".join(lines).encode()


def _leaf_commits(leaves: int) -> Iterator[bytes]:
    for number in range(leaves):
        head = f"commit refs/heads/leaf/{number}\ncommitter {WHEN}\ndata 4\nleaf\nfrom :1\n"
        yield f"{head}M 100644 inline leaf{number}.txt\ndata 5\nleaf\n\n".encode()
