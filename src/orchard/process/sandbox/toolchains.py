"""Toolchains that people install into their home: a hidden home shows them again, to be read only.

A row says where a toolchain is below the home, which variable moves it elsewhere, and which variable tells it where it
is when `HOME` is another folder: behind a wall it always is. Rows name folders of programs, never folders that
keep credentials beside them: `.cargo/bin` and not `.cargo`, `.gem/ruby` and not `.gem`. Caches are not here: a tool
that finds a cache which it may not write to fails where one without a cache works.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct


class Toolchain(Struct, frozen=True):
    """One that is installed: what to expose, and what its programs must be told."""

    name: str
    paths: tuple[Path, ...]
    variables: Mapping[str, str] = {}
    grows: int = 0
    """Tools add to it, at the bottom of so many levels of folders: in a home of its own a job has to be able to."""


class Row(Struct, frozen=True):
    """One that may be installed: `root` is below the home unless `variable` says otherwise, `parts` below `root`."""

    name: str
    root: str
    parts: tuple[str, ...] = (".",)
    variable: str | None = None
    told: bool = False
    """Its programs look below HOME unless the variable is set."""
    grows: int = 0


ROWS = (
    Row("programs", "bin", grows=1),
    Row("programs", ".local/bin", grows=1),
    Row("python user packages", ".local/lib", grows=3),
    Row("pyenv", ".pyenv", variable="PYENV_ROOT", told=True),
    Row("uv", ".local/share/uv", ("python", "tools")),
    Row("pipx", ".local/share/pipx"),
    Row("pipx", ".local/pipx"),
    Row("poetry", ".local/share/pypoetry"),
    Row("rye", ".rye", ("shims", "self", "py", "tools"), variable="RYE_HOME", told=True),
    Row("pixi", ".pixi", ("bin", "envs"), variable="PIXI_HOME"),
    *(Row("conda", name) for name in ("miniconda3", "anaconda3", "miniforge3", "mambaforge", ".conda/envs")),
    Row("micromamba", "micromamba", variable="MAMBA_ROOT_PREFIX", told=True),
    Row("nvm", ".nvm", variable="NVM_DIR", told=True),
    Row("fnm", ".local/share/fnm", variable="FNM_DIR", told=True),
    Row("n", "n", variable="N_PREFIX"),
    Row("nodenv", ".nodenv", variable="NODENV_ROOT", told=True),
    Row("volta", ".volta", variable="VOLTA_HOME", told=True),
    Row("npm", ".npm-global", grows=3),
    Row("npm", ".npm-packages", grows=3),
    Row("pnpm", ".local/share/pnpm", variable="PNPM_HOME"),
    Row("yarn", ".yarn", ("bin",)),
    Row("yarn", ".config/yarn/global/node_modules"),
    Row("deno", ".deno", ("bin",), variable="DENO_INSTALL", grows=1),
    Row("bun", ".bun", ("bin", "install/global"), variable="BUN_INSTALL", grows=1),
    Row("cargo", ".cargo", ("bin", "env"), grows=1),
    Row("rustup", ".rustup", variable="RUSTUP_HOME", told=True),
    Row("go", "go", ("bin",), variable="GOPATH", grows=1),
    Row("go", "sdk"),
    Row("go", ".go"),
    Row("goenv", ".goenv", variable="GOENV_ROOT", told=True),
    Row("gvm", ".gvm"),
    Row("sdkman", ".sdkman", ("bin", "candidates", "src", "etc"), variable="SDKMAN_DIR", told=True),
    Row("jenv", ".jenv", variable="JENV_ROOT", told=True),
    Row("maven", ".m2", ("wrapper",)),
    Row("gradle", ".gradle", ("wrapper", "jdks")),
    Row("coursier", ".local/share/coursier", ("bin",)),
    Row("asdf", ".asdf", variable="ASDF_DATA_DIR", told=True),
    Row("mise", ".local/share/mise", variable="MISE_DATA_DIR", told=True),
    Row("proto", ".proto", ("bin", "shims", "tools", "plugins"), variable="PROTO_HOME", told=True),
    Row("aqua", ".local/share/aquaproj-aqua", variable="AQUA_ROOT_DIR", told=True),
    Row("rbenv", ".rbenv", variable="RBENV_ROOT", told=True),
    Row("rvm", ".rvm"),
    Row("ruby gems", ".gem/ruby"),
    Row("ruby gems", ".local/share/gem/ruby"),
    Row("dotnet", ".dotnet", variable="DOTNET_ROOT", told=True),
    Row("ghcup", ".ghcup", ("bin", "ghc", "env")),
    Row("cabal", ".cabal", ("bin",), grows=1),
    Row("stack", ".stack", ("programs",)),
    Row("opam", ".opam", variable="OPAMROOT", told=True),
    Row("elan", ".elan", variable="ELAN_HOME", told=True),
    Row("juliaup", ".juliaup"),
    Row("julia", ".julia", ("juliaup",)),
    Row("swiftly", ".local/share/swiftly"),
    Row("foundry", ".foundry", ("bin",)),
    Row("zig", ".zvm", ("bin", "self")),
    Row("perl", "perl5"),
    Row("plenv", ".plenv", variable="PLENV_ROOT", told=True),
    Row("phpenv", ".phpenv"),
    Row("luarocks", ".luarocks", ("bin", "lib", "share")),
    Row("dart", ".pub-cache", ("bin",), grows=1),
    Row("flutter", "flutter"),
    Row("flutter", "fvm"),
    Row("krew", ".krew", ("bin", "store")),
    Row("tfenv", ".tfenv"),
    Row("nix", ".nix-profile"),
    Row("nix", ".local/state/nix/profile"),
    Row("homebrew", ".linuxbrew"),
)


def toolchains(home: Path, env: Mapping[str, str]) -> tuple[Toolchain, ...]:
    """Those that exist, and folders of `PATH` below the home that belong to none of them."""
    known = tuple(_found(home, env))
    shown = {path for chain in known for path in chain.paths}
    others = dict.fromkeys(
        path
        for path in (Path(part) for part in env.get("PATH", "").split(":") if part.startswith("/"))
        if ".." not in path.parts and path.is_relative_to(home) and path != home and _there(path)
        if not any(path.is_relative_to(place) for place in shown)
    )
    return (*known, Toolchain("PATH", tuple(others))) if others else known


def _found(home: Path, env: Mapping[str, str]) -> Iterator[Toolchain]:
    for row in ROWS:
        moved = env.get(row.variable, "") if row.variable else ""
        root = Path(moved) if moved.startswith("/") and ".." not in Path(moved).parts else home / row.root
        if root in (home, *home.parents):
            continue  # whatever it is, it would show the whole home
        paths = tuple(root / part for part in row.parts if _there(root / part))
        if paths:
            told = {row.variable: str(root)} if row.told and row.variable else {}
            yield Toolchain(row.name, paths, told, row.grows)


def _there(path: Path) -> bool:
    """Whether we may see it: a variable may lead into the home of another user."""
    try:
        path.stat()
    except OSError:
        return False
    return True
