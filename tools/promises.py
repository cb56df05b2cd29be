"""Write the table "what we promise, and the test that holds it" into the README, from docs/promises.md.

python tools/promises.py            write it
python tools/promises.py --check    exit 1 if the README shows another one, or a test that is named is not there
"""

import ast
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs" / "promises.md"
PAGE = ROOT / "README.md"
BEGIN = "<!-- promises -->"
END = "<!-- /promises -->"
SHOWN = 2
"""How many tests of a promise the README names; the page has them all."""


@dataclass(frozen=True)
class Promise:
    """One section of the page: its heading, its sentence in short, and the tests that hold it."""

    title: str
    sentence: str
    tests: tuple[str, ...]


def promises(text: str) -> list[Promise]:
    """Every promise of the page, in its order."""
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        sentence = re.search(r"^> (.+(?:\n> .+)*)", section, re.MULTILINE)
        held = section.partition("\nHeld by ")[2]
        tests = tuple(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", held))
        found.append(Promise(section.partition("\n")[0], re.sub(r"\n> ", " ", sentence[1]) if sentence else "", tests))
    return found


def problems(found: list[Promise]) -> list[str]:
    """What is not true: a promise without its sentence or its tests, or a test that does not exist."""
    said = [f"promise P{number} is not there" for number in range(1, 12) if not _has(found, number)]
    said += [f"{one.title}: no sentence in short" for one in found if not one.sentence]
    said += [f"{one.title}: no test" for one in found if not one.tests]
    for one in found:
        said += [f"{one.title}: there is no {test}" for test in one.tests if not exists(test)]
    return said


def _has(found: list[Promise], number: int) -> bool:
    return any(one.title.startswith(f"P{number} ") for one in found)


def exists(test: str) -> bool:
    """Whether this file, or this test in it, is there."""
    path, _, name = test.partition("::")
    names = functions(ROOT / path)
    return name in names if name else any(one.startswith("test_") for one in names)


@cache
def functions(path: Path) -> frozenset[str]:
    """What a file defines; nothing where there is none."""
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def table(found: list[Promise]) -> str:
    """One row for each promise, with the first tests that hold it."""
    rows = ["| what we promise | held by, among others |", "| --- | --- |"]
    for one in found:
        shown = " ".join(f"[{name_of(test)}]({test.partition('::')[0]})" for test in one.tests[:SHOWN])
        rows.append(f"| **{one.title}**: {one.sentence} | {shown} |")
    return "\n".join(rows)


def name_of(test: str) -> str:
    """A test as a person would say it: the file's name without the folder and the ending."""
    return test.partition("::")[0].rpartition("/")[2].removesuffix(".py").removeprefix("test_")


def written(page: str, found: list[Promise]) -> str:
    """The page with today's table between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE.name} has no place for the table: {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table(found)}\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Write the README, or only say whether it and the page are true."""
    found = promises(SOURCE.read_text("utf-8"))
    page = PAGE.read_text("utf-8")
    wrong = problems(found)
    if "--check" not in arguments:
        PAGE.write_text(written(page, found), "utf-8")
    elif page != written(page, found):
        wrong.append(f"{PAGE.name} is out of date: run 'python tools/promises.py'.")
    for one in wrong:
        sys.stderr.write(f"{one}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
