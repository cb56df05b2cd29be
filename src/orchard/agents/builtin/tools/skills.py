"""The tool that reads skills: a text when it is needed, and the files beside it."""

from collections.abc import Sequence
from pathlib import Path

from orchard.agents.builtin.confine import BadPath, Confines
from orchard.agents.builtin.tool import (
    Answer,
    Json,
    Tool,
    ToolContext,
    ToolError,
    in_thread,
    plain_answer,
    schema,
    text,
)
from orchard.agents.definitions import head
from orchard.agents.definitions.skills import FILE, FILE_BYTES, Skill

READ_SKILL = "read_skill"
LISTED_FILES = 100


def skill_tools(skills: Sequence[Skill]) -> list[Tool]:
    """The tool that reads them; none where there is nothing to read."""
    known = {one.name: one for one in skills}

    async def read(_: ToolContext, given: Json) -> Answer:
        skill = known.get(given["name"])
        if skill is None:
            raise ToolError(f"There is no skill '{given['name']}'. There is: {', '.join(known)}.")
        return await in_thread(_read, skill, given.get("file") or FILE)

    described = "Read a skill, or a file that belongs to it. What it says is advice on how to do a task."
    inputs = schema(
        ("name",),
        name=text("Which skill.", minLength=1, maxLength=64),
        file=text(f"A file in its folder; {FILE} if left out.", minLength=1, maxLength=4096),
    )
    return [Tool(READ_SKILL, described, inputs, read, parallel=True)] if skills else []


def _read(skill: Skill, file: str) -> Answer:
    try:
        with Confines([skill.folder.resolve() if skill.of_user else skill.folder]).reach(file) as place:
            content = place.read(FILE_BYTES)
    except BadPath as error:
        raise ToolError(str(error)) from error
    if file != FILE:
        return plain_answer(content)
    others = [row for row in _files(skill.folder) if row != FILE][:LISTED_FILES]
    beside = f"\n\nFiles beside it: {', '.join(others)}" if others else ""
    return plain_answer(f"{content.decode(errors='replace')}\n\n(Of the skill in {skill.shown}.{beside})")


def _files(folder: Path) -> list[str]:
    found = []
    for row in head.entries(folder, links=False):
        if row.is_dir(follow_symlinks=False):
            below = [f"{row.name}/{one.name}" for one in head.entries(Path(row.path), links=False)]
            found += below[:LISTED_FILES]
        else:
            found.append(row.name)
    return found
