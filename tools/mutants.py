"""Take each protection out, one at a time, and see that the tests which hold it fail.

    python tools/mutants.py              every mutant of tests/mutants.toml
    python tools/mutants.py --only NAME  one of them (may be repeated)
    python tools/mutants.py --list       their names

A mutant is a text of the source that stands there exactly once, what to put in its place, and the
tests that must then fail. The source is never touched: it is copied, and the tests import the copy.
First the tests have to pass with the copy as it is. A mutant is `caught` when a test fails with it,
or when the tests take so long that only a hang can explain it; anything else is an error.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "mutants.toml"
LIMIT = 300.0
CAUGHT, MISSED, UNFIT, BROKEN = "caught", "NOT CAUGHT", "DOES NOT FIT", "BROKEN"
FAILED, PASSED = 1, 0
"""The exit codes of pytest that mean something here; all others say that nothing was tested."""


@dataclass(frozen=True)
class Mutant:
    """A protection that is taken out."""

    name: str
    why: str
    """What the user would lose."""
    file: str
    """Below src/orchard."""
    old: str
    new: str
    tests: list[str]
    limit: float = LIMIT
    also: list[dict[str, str]] = field(default_factory=list)
    """More texts of the same file, `old` and `new`: where one protection stands behind another, both are taken out."""


@dataclass(frozen=True)
class Run:
    """What a run of tests came to; no code means that it took too long."""

    code: int | None
    seconds: float
    output: str = field(repr=False, default="")


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    word: str
    detail: str
    seconds: float = 0.0


def load(path: Path) -> list[Mutant]:
    """The table; names are unique."""
    mutants = [Mutant(**row) for row in tomllib.loads(path.read_text("utf-8"))["mutant"]]
    names = [mutant.name for mutant in mutants]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SystemExit(f"{path} names {', '.join(sorted(twice))} more than once")
    return mutants


def mutate(source: Path, mutant: Mutant) -> str | None:
    """Change a copy of the source; returns what is wrong if the mutant does not fit it."""
    file = source / "orchard" / mutant.file
    if not file.is_file():
        return f"there is no {mutant.file}"
    changed = file.read_text("utf-8")
    for old, new in [(mutant.old, mutant.new), *((one["old"], one["new"]) for one in mutant.also)]:
        times = changed.count(old)
        if times != 1:
            return f"the mutant no longer fits: its text stands {times} times in {mutant.file}"
        changed = changed.replace(old, new)
    try:
        compile(changed, str(file), "exec")
    except SyntaxError as error:
        return f"the mutant is no Python: {error}"
    file.write_text(changed, "utf-8")
    return None


def run_tests(source: Path, tests: list[str], limit: float) -> Run:
    """Run tests against a copy of the source, each of their processes too."""
    env = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("PYTEST_NURSERY", None)  # its commands have the real source
    with tempfile.TemporaryDirectory(prefix="mutant-tests-") as scratch:
        words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={scratch}/t", *tests]
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *words], cwd=ROOT, env=env, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            code = None
        return Run(code, time.monotonic() - began, output)


def imports_the_copy(source: Path) -> bool:
    """Whether a Python that is started as the tests are finds the copy, not what is installed."""
    asked = subprocess.run(
        [sys.executable, "-c", "import orchard; print(orchard.__file__)"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(source)}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return Path(asked.stdout.strip()).is_relative_to(source)


def copied(original: Path, place: Path) -> Path:
    shutil.copytree(original, place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return place / "src"


def judge(original: Path, mutant: Mutant) -> Verdict:
    """Whether the tests pass without the mutant and fail with it."""
    source = copied(original, original.parent / mutant.name)
    try:
        calm = run_tests(source, mutant.tests, mutant.limit)
        if calm.code != PASSED:
            return Verdict(mutant, BROKEN, f"without the mutant the tests do not pass:\n{_end(calm.output)}")
        wrong = mutate(source, mutant)
        if wrong is not None:
            return Verdict(mutant, UNFIT, wrong)
        ran = run_tests(source, mutant.tests, mutant.limit)
    finally:
        shutil.rmtree(source.parent, ignore_errors=True)
    if ran.code is None:
        if calm.seconds < mutant.limit / 3:
            return Verdict(mutant, CAUGHT, "the tests hang", ran.seconds)
        return Verdict(mutant, BROKEN, f"the limit of {mutant.limit:g} s is too short for these tests")
    if ran.code == FAILED:
        return Verdict(mutant, CAUGHT, _failure(ran.output), ran.seconds)
    if ran.code == PASSED:
        return Verdict(mutant, MISSED, f"no test fails without this: {mutant.why}", ran.seconds)
    return Verdict(mutant, BROKEN, f"pytest ended with {ran.code}:\n{_end(ran.output)}")


def _failure(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0][:160] if lines else ""


def _end(output: str) -> str:
    return "\n".join(output.splitlines()[-25:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="this mutant only; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many to try at once")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--list", action="store_true", help="name them all and stop")
    options = parser.parse_args()
    mutants = load(options.table)
    unknown = set(options.only or ()) - {mutant.name for mutant in mutants}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    if options.list:
        print("\n".join(f"{mutant.name:28} {mutant.why}" for mutant in mutants))
        return 0
    return report([mutant for mutant in mutants if not options.only or mutant.name in options.only], options.jobs)


def report(chosen: list[Mutant], jobs: int) -> int:
    """Judge these, say so one by one, and end with how many were caught."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        Path(name).chmod(0o755)  # some tests start it as another user
        # All are made of one copy, so that who edits meanwhile disturbs nothing.
        source = copied(ROOT / "src", Path(name))
        if not imports_the_copy(source):
            print(f"The tests would not import the copy {source} but something else.")
            return 2
        verdicts = []
        with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
            for verdict in pool.map(lambda mutant: judge(source, mutant), chosen):
                verdicts.append(verdict)
                print(
                    f"{verdict.word:12} {verdict.mutant.name:28} {verdict.seconds:6.1f} s  {verdict.detail}", flush=True
                )
    bad = [verdict for verdict in verdicts if verdict.word != CAUGHT]
    print(f"{len(verdicts) - len(bad)} of {len(verdicts)} mutants were caught.")
    if bad:
        print("Not caught: " + ", ".join(verdict.mutant.name for verdict in bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
