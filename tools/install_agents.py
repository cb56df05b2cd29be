"""Install the real programs that our backends are tested with, each into a folder of its own.

    python tools/install_agents.py              every program of tests/agents/programs.toml
    python tools/install_agents.py claude codex these
    python tools/install_agents.py --list       what there is, and whether it is installed

They come from npm, which finds its registry by its own configuration, into the user's cache folder, and are used by
tests only: nothing is put on anybody's PATH. A folder has its final name when all of it is there, so a folder that
is there is not made again, and one program that cannot be installed does not stop the others.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

TABLE = Path(__file__).resolve().parent.parent / "tests" / "agents" / "programs.toml"
NODE = "node"
AT_ONCE = 3
INSTALL_LIMIT, CHECK_LIMIT = 900.0, 120.0
TOLD_LINES = 8


class NotInstalled(Exception):
    """Why a program is not there."""


@dataclass(frozen=True)
class Pin:
    """A program in one version."""

    name: str
    package: str
    version: str
    program: str
    """The command that the package brings."""
    check: tuple[str, ...] = ("--version",)

    @property
    def folder(self) -> Path:
        """Where it is, or would be, installed."""
        return prefix() / f"{self.package.replace('/', '+')}@{self.version}"

    @property
    def commands(self) -> Path:
        """The folder that has its command."""
        return self.folder / "node_modules" / ".bin"

    @property
    def executable(self) -> Path:
        """What is started."""
        return self.commands / self.program

    @property
    def installed(self) -> bool:
        """Whether it is there."""
        return self.executable.exists()


def prefix() -> Path:
    """The folder of all these programs, by the user's cache folder of the moment."""
    return user_cache_path("orchard") / "agents"


def pins() -> dict[str, Pin]:
    """Every program that is named in the table."""
    rows = tomllib.loads(TABLE.read_text("utf-8"))
    return {
        name: Pin(name, row["package"], row["version"], row.get("program", name), tuple(row.get("check", Pin.check)))
        for name, row in rows.items()
    }


def install(pin: Pin) -> str:
    """Install a program unless it is there, and say what was done."""
    if pin.installed:
        return "is there"
    prefix().mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(f"{pin.folder}.lock"):
        if pin.installed:
            return "is there"
        part = Path(tempfile.mkdtemp(prefix=f".{pin.folder.name}.", dir=prefix()))
        try:
            _npm_install(pin, part)
            _put(part, pin)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return "installed"


def _npm_install(pin: Pin, folder: Path) -> None:
    # Scripts are what fetches the native half of some programs, so a user's habit of ignoring them is overruled here.
    argv = ("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--no-update-notifier",
            "--ignore-scripts=false", "--loglevel=error", f"{pin.package}@{pin.version}")  # fmt: skip
    _run(argv, folder, INSTALL_LIMIT)
    found = folder / "node_modules" / ".bin" / pin.program
    if not found.exists():
        raise NotInstalled(f"the package {pin.package}@{pin.version} brings no command '{pin.program}'")
    if pin.check:
        _run((str(found), *pin.check), folder, CHECK_LIMIT, own_home=True)


def _put(part: Path, pin: Pin) -> None:
    """Give the finished folder its name; what lies there is half of an install of old."""
    shutil.rmtree(pin.folder, ignore_errors=True)
    part.rename(pin.folder)


def _run(argv: tuple[str, ...], folder: Path, limit: float, own_home: bool = False) -> None:
    """Run a step of an install; what it says is told only when it fails. npm needs the user's home: its settings."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = {"CI": "1", "TMPDIR": scratch, "PATH": search_path(()), **({"HOME": scratch} if own_home else {})}
        try:
            ended = subprocess.run(
                argv, cwd=folder, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", timeout=limit, check=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise NotInstalled(f"there is no '{argv[0]}' on the PATH; install Node.js, which brings npm") from error
        except subprocess.TimeoutExpired as error:
            raise NotInstalled(f"'{Path(argv[0]).name}' took longer than {limit:.0f} s") from error
    if ended.returncode != 0:
        last = "\n".join(f"      {line}" for line in ended.stdout.strip().splitlines()[-TOLD_LINES:])
        raise NotInstalled(f"'{Path(argv[0]).name}' ended with status {ended.returncode}:\n{last}")


def search_path(programs: tuple[Pin, ...]) -> str:
    """A PATH on which these programs come first, then our Node, then the host's own."""
    folders = [str(pin.commands) for pin in (*programs, pins()[NODE])]
    return os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])


def install_all(wanted: list[Pin]) -> list[str]:
    """Install all of them, Node first, telling what happens; the names of those that could not be."""
    failed: list[str] = []

    def one(pin: Pin) -> None:
        try:
            done = install(pin)
        except (NotInstalled, OSError) as error:
            failed.append(pin.name)
            done = f"FAILED: {error}"
        print(f"  {pin.name} {pin.version}: {done}", flush=True)

    one(pins()[NODE])
    if failed:
        return failed
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, (pin for pin in wanted if pin.name != NODE)))
    return failed


def main(arguments: list[str]) -> int:
    """The command line."""
    known = pins()
    parser = argparse.ArgumentParser(description="Install the real programs that our backends are tested with.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(known)}; none: all of them")
    parser.add_argument("--list", action="store_true", help="show them, and install nothing")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"there is no program {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = [known[name] for name in given.names or known]
    if given.list:
        for pin in wanted:
            print(f"{pin.name:18} {pin.version:12} {'installed' if pin.installed else '-'}")
        return 0
    print(f"Programs for tests, in {prefix()}:", flush=True)
    failed = install_all(wanted)
    if failed:
        print(f"\n{len(failed)} not installed: {', '.join(sorted(failed))}. The others can be used.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
