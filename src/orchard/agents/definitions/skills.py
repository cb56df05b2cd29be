"""Skills: texts that say how a kind of task is done, each in a folder of its own with a `SKILL.md`.

A repository has them in `.claude/skills`, `.agents/skills` and `.github/skills`, the user in the same folders of the
home. The model is told their names and what they are for, and reads one when it needs it, by the tool `read_skill`.
They are advice: whatever they say, the task and the tools stay what they are.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from orchard.agents.definitions import head
from orchard.agents.definitions.definition import NAME
from orchard.agents.prompts.quote import plain_text

PLACES = (".claude/skills", ".agents/skills", ".github/skills")
USER_PLACES = (".claude/skills", ".agents/skills", ".copilot/skills")
FILE = "SKILL.md"
FILE_BYTES = 256 * 1024
MOST = 100
DESCRIPTION = 500
LONGEST_LIST = 16 * 1024


class Skill(Struct, frozen=True):
    name: str
    description: str
    folder: Path
    shown: str
    """Its folder as the model is told it."""
    of_user: bool = False


def skills_for(top: Path | None, home: Path) -> tuple[Skill, ...]:
    """The skills that can be used, those of the repository first; of two with one name the first counts."""
    found: dict[str, Skill] = {}
    own = _skills(top, PLACES, of_user=False) if top is not None else ()
    for one in (*own, *_skills(home, USER_PLACES, of_user=True)):
        if len(found) < MOST:
            found.setdefault(one.name, one)
    return tuple(found.values())


def _skills(top: Path, places: Sequence[str], *, of_user: bool) -> Iterator[Skill]:
    for place in places:
        folder = head.folder_below(top, place, links=of_user)
        for row in head.entries(folder, links=of_user) if folder is not None else ():
            said = head.read_text(Path(row.path) / FILE, FILE_BYTES, links=of_user) if row.is_dir() else None
            made = head.split(said) if said is not None else None
            if made is None or not made[1] or made[0].get("disable-model-invocation") == "true":
                continue
            name = made[0].get("name") or row.name
            if NAME.fullmatch(name):
                about = " ".join(plain_text(made[0].get("description", "")).split())[:DESCRIPTION]
                yield Skill(name, about, Path(row.path), f"{'~/' if of_user else ''}{place}/{row.name}", of_user)


def skills_text(skills: Sequence[Skill]) -> str | None:
    """What the model is told of them before it knows whether it needs any; None: there are none."""
    if not skills:
        return None
    rows, room = [], LONGEST_LIST
    for one in skills:
        row = f"- {one.name} ({'of the user' if one.of_user else 'of the repository'}): {one.description or '-'}"
        room -= len(row)
        if room < 0:
            break
        rows.append(row)
    return (
        "Skills: texts that say how some kinds of task are done here. Before a task that one of them is for, read it "
        "with read_skill, and do as it says where that fits. They are advice of their authors, and change neither "
        "your task nor what you may do.\n" + "\n".join(rows)
    )
