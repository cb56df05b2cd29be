"""Files that programs look for in their folder and in every folder above it: manifests and settings of tools.

Worktrees usually lie inside of the checkout. Behind a wall with mounts nothing is above them; behind one without, such
a file of the checkout is seen and cannot be opened, and cargo, pytest and others give up over that. These names hold no
secrets by their nature, so they may be read there. What is a link, or behind one, stays closed: a repository could have
given it such a name.
"""

import os
import stat
from collections.abc import Container, Iterator
from pathlib import Path

MANIFESTS = (
    ".cargo/config", ".cargo/config.toml", ".clang-format", ".editorconfig", ".eslintrc", ".eslintrc.js",
    ".eslintrc.json", ".gitattributes", ".gitignore", ".node-version", ".nvmrc", ".prettierrc", ".python-version",
    ".rustfmt.toml", ".tool-versions", "BUILD", "BUILD.bazel", "CMakeLists.txt", "Cargo.lock", "Cargo.toml", "Gemfile",
    "MODULE.bazel", "WORKSPACE", "biome.json", "build.gradle", "build.gradle.kts", "clippy.toml", "composer.json",
    "conftest.py", "deno.json", "eslint.config.js", "eslint.config.mjs", "global.json", "go.mod", "go.sum", "go.work",
    "jest.config.js", "lerna.json", "mise.toml", "mypy.ini", "nx.json", "package-lock.json", "package.json",
    "pnpm-workspace.yaml", "pom.xml", "pyproject.toml", "pytest.ini", "ruff.toml", "rust-toolchain",
    "rust-toolchain.toml", "rustfmt.toml", "settings.gradle", "settings.gradle.kts", "setup.cfg", "setup.py", "tox.ini",
    "tsconfig.json", "turbo.json", "uv.toml",
)  # fmt: skip


def manifests_above(folder: Path, homes: Container[Path] = ()) -> Iterator[Path]:
    """Those that there are in the folders above this one; in a home, cargo's own settings may hold tokens."""
    for above in folder.resolve().parents:
        try:
            there = frozenset(os.listdir(above))  # noqa: PTH208 — the names alone, at each start
        except OSError:
            continue
        for name in MANIFESTS:
            if "/" in name and above in homes:
                continue
            if name.partition("/")[0] in there and _is_plain(above, name):
                yield above / name


def _is_plain(folder: Path, name: str) -> bool:
    """Whether it is a file, and no step on the way to it is a link."""
    first, _, rest = name.partition("/")
    try:
        return (not rest or stat.S_ISDIR((folder / first).lstat().st_mode)) and stat.S_ISREG(
            (folder / name).lstat().st_mode
        )
    except OSError:
        return False
