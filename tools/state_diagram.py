"""Draw the life of a job into docs/states.md, from the table that decides it.

python tools/state_diagram.py            write the diagram
python tools/state_diagram.py --check    exit 1 if the page shows another one
"""

import sys
from pathlib import Path

from orchard.core.states import ENDED, TRANSITIONS, JobState

PAGE = Path(__file__).resolve().parent.parent / "docs" / "states.md"
BEGIN = "<!-- drawn by tools/state_diagram.py: begin -->"
END = "<!-- drawn by tools/state_diagram.py: end -->"


def diagram() -> str:
    """The table as a mermaid state diagram, one arrow per pair of states."""
    arrows: dict[tuple[JobState, JobState], list[str]] = {}
    for (state, event), target in TRANSITIONS.items():
        arrows.setdefault((state, target), []).append(event.__name__)
    lines = ["stateDiagram-v2", f"    [*] --> {JobState.PENDING}"]
    lines += [f"    {state} --> {target}: {', '.join(events)}" for (state, target), events in arrows.items()]
    lines += [f"    {state} --> [*]" for state in JobState if state in ENDED]
    return "\n".join(lines)


def drawn(page: str) -> str:
    """The page with today's diagram between its two marks."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n```mermaid\n{diagram()}\n```\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Write the page, or only say whether it is up to date."""
    page = PAGE.read_text()
    if "--check" not in arguments:
        PAGE.write_text(drawn(page))
        return 0
    if page == drawn(page):
        return 0
    sys.stderr.write("docs/states.md is out of date: run 'python tools/state_diagram.py'.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
