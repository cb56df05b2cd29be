"""Write into docs/sandbox.md what each wall stops, from a run of all attacks; as root, for both kinds of users.

python tools/sandbox_table.py            attack, and write the tables (about half a minute)
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchard.process.sandbox.policy import Level

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "sandbox.md"
BEGIN = "<!-- written by tools/sandbox_table.py: begin -->"
END = "<!-- written by tools/sandbox_table.py: end -->"

COLUMNS: tuple[tuple[Level, str], ...] = (
    ("off", "root"),
    ("off", "user"),
    ("landlock", "root"),
    ("landlock", "user"),
    ("bwrap", "root"),
    ("bwrap", "user"),
)
"""Level and user; the first two show that an attack is one."""

Results = Mapping[tuple[str, str], frozenset[str]]
"""The names of the attacks that succeeded, by level and user."""


def tables(topics: Mapping[str, list[str]], results: Results) -> Iterator[str]:
    """How many, by topic, and then each."""
    header = " | ".join(f"{'no wall' if level == 'off' else level}, {user}" for level, user in COLUMNS)
    yield f"Attacks that succeed, of {sum(map(len, topics.values()))}:\n"
    yield f"| topic | attacks | {header} |"
    yield "| --- " * (2 + len(COLUMNS)) + "|"
    for topic, names in topics.items():
        counts = " | ".join(str(len(results[column] & set(names))) for column in COLUMNS)
        yield f"| {topic} | {len(names)} | {counts} |"
    yield "\nEach of them; `-`: does not succeed without a wall, either, for this user or on the machine of the run:\n"
    yield f"| attack | {' | '.join(f'{level}, {user}' for level, user in COLUMNS[2:])} |"
    yield "| --- " * (1 + len(COLUMNS[2:])) + "|"
    for topic, names in topics.items():
        yield f"| **{topic}** | | | | |"
        yield from (
            f"| {name} | {' | '.join(_cell(name, column, results) for column in COLUMNS[2:])} |" for name in names
        )


def _cell(name: str, column: tuple[str, str], results: Results) -> str:
    if name in results[column]:
        return "open"
    return "stopped" if name in results["off", column[1]] else "-"


def cells(page: str) -> dict[tuple[str, str, str], str]:
    """What the page says: attack, level and user to `open`, `stopped` or `-`."""
    rows = [line.strip("| ").split(" | ") for line in page.partition(BEGIN)[2].partition(END)[0].splitlines()]
    return {
        (row[0], *column): cell
        for row in rows
        if len(row) == 1 + len(COLUMNS[2:])
        for column, cell in zip(COLUMNS[2:], row[1:], strict=True)
    }


def main() -> int:
    sys.path.insert(0, str(ROOT))
    from tests.process.sandbox.corpus.run import ATTACKS, succeeded
    from tests.process.sandbox.walled import ORDINARY

    results: dict[tuple[str, str], frozenset[str]] = {}  # by level and user
    for level, user in COLUMNS:
        results[level, user] = succeeded(level, None if user == "root" else ORDINARY)[0]
        print(f"{level}, {user}: {len(results[level, user])} of {len(ATTACKS)} succeed", file=sys.stderr)
    topics: dict[str, list[str]] = {}
    for attack in ATTACKS:
        topics.setdefault(attack.topic, []).append(attack.name)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(tables(topics, results)) + f"\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
