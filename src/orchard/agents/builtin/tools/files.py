"""Tools for files: reading, writing, editing, listing and searching, confined to the folders of the task."""

import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TypeVar

import orchard
from orchard.agents.builtin.confine import BadPath, Confines, Place
from orchard.agents.builtin.tool import (
    LONGEST_ANSWER,
    Answer,
    Json,
    Tool,
    ToolContext,
    ToolError,
    flag,
    in_thread,
    plain_text,
    schema,
    scratch_file,
    text,
    whole,
)
from orchard.agents.builtin.tools.git import Checkout, ask, still
from orchard.model.limits import Limits
from orchard.process.pipes import Pipes

T = TypeVar("T")

LARGEST_WRITTEN = 4 * 1024 * 1024
LONGEST_LINE = 2000
LINES = 2000
MOST_LISTED = 1000
MOST_WALKED = 50_000
WALK_SECONDS = 10.0
SEARCH_SECONDS = 20.0
SEARCH = """\
import sys
sys.path.insert(0, sys.argv[1])
from orchard.agents.builtin.tools.search import main
main()
"""
LIST_BYTES = 16 * 1024 * 1024


def file_tools(context: ToolContext, checkout: Checkout, search_seconds: float = SEARCH_SECONDS) -> list[Tool]:
    made = _FileTools(context, checkout, search_seconds)
    path = text("Relative to the work folder.", minLength=1, maxLength=4096)
    folder = text("A folder; the work folder if left out.", minLength=1, maxLength=4096)
    glob = text("Only files whose path matches, such as '*.py' or 'src/**/test_*.ts'.", minLength=1, maxLength=500)
    return [
        Tool(
            "read_file",
            "Read a text file. Lines are shown with their numbers, which are not part of the file.",
            schema(
                ("path",),
                path=path,
                offset=whole("The first line to show; 1 if left out.", 1, 10**9),
                limit=whole(f"How many lines; {LINES} if left out.", 1, LINES),
            ),
            made.read_file,
            parallel=True,
        ),
        Tool(
            "write_file",
            "Write a whole file, and the folders it is in. What it held before is replaced; for a part, use edit_file.",
            schema(("path", "content"), path=path, content=text("All of it.")),
            made.write_file,
        ),
        Tool(
            "edit_file",
            "Replace a piece of text in a file. `old_text` has to be in the file exactly once, spaces and line ends "
            "included: take in enough lines around it, or set `replace_all`.",
            schema(
                ("path", "old_text", "new_text"),
                path=path,
                old_text=text("What is there now.", minLength=1),
                new_text=text("What is to be there."),
                replace_all=flag("Replace it wherever it is."),
            ),
            made.edit_file,
        ),
        Tool(
            "list_files",
            "The files below a folder, without those that git ignores.",
            schema(path=folder, glob=glob),
            made.list_files,
            parallel=True,
        ),
        Tool(
            "search_files",
            "Search the lines of text files with a regular expression (as in Python), without files that git ignores.",
            schema(
                ("pattern",),
                pattern=text("The regular expression.", minLength=1, maxLength=1000),
                path=text("A folder or file; the work folder if left out.", minLength=1, maxLength=4096),
                glob=glob,
                ignore_case=flag("Take upper and lower case for the same."),
                limit=whole("Matches; 100 if left out.", 1, 1000),
            ),
            made.search_files,
            parallel=True,
        ),
    ]


class _FileTools:
    def __init__(self, context: ToolContext, checkout: Checkout, search_seconds: float) -> None:
        wall = context.launcher.wall
        protected = wall.policy.protected if wall is not None else ()
        real = [Path(os.path.realpath(path.parent)) / path.name for path in protected]
        self._confines = Confines((context.folder, *context.allowed_folders), real)
        self._checkout, self._search_seconds = checkout, search_seconds

    async def read_file(self, _: ToolContext, arguments: Json) -> Answer:
        path = arguments["path"]
        content = await self._at(path, lambda place: place.read())
        if b"\0" in content[:8192]:
            return Answer(f"{path} is a binary file of {len(content):,} bytes.")
        return Answer(_numbered(content, int(arguments.get("offset", 1)), int(arguments.get("limit", LINES))))

    async def write_file(self, _: ToolContext, arguments: Json) -> Answer:
        path, content = arguments["path"], _encoded(arguments["content"])

        def put(place: Place) -> bool:
            existed = place.status() is not None
            place.write(content)
            return existed

        existed = await self._at(path, put, writing=True)
        return Answer(f"{'Replaced' if existed else 'Made'} {path}: {len(content):,} bytes.")

    async def edit_file(self, _: ToolContext, arguments: Json) -> Answer:
        path, old, new = arguments["path"], _encoded(arguments["old_text"]), _encoded(arguments["new_text"])
        if old == new:
            raise ToolError("old_text and new_text are the same: there is nothing to do.")

        def replace(place: Place) -> list[int]:
            content = place.read(LARGEST_WRITTEN)
            found = _edited(path, content, (old, new), everywhere=bool(arguments.get("replace_all")))
            if len(found[0]) > LARGEST_WRITTEN:
                raise BadPath(f"{path} would grow past {LARGEST_WRITTEN:,} bytes.")
            place.write(found[0])
            return found[1]

        lines = await self._at(path, replace, writing=True, existing=True)
        where = ", ".join(map(str, lines[:20]))
        return Answer(f"Edited {path}: {len(lines)} replacement{'s' * (len(lines) != 1)}, at line {where}.")

    async def list_files(self, context: ToolContext, arguments: Json) -> Answer:
        found, cut = await self._files(context, arguments.get("path", "."), arguments.get("glob"))
        lines = [plain_text(name.replace("\n", "?")) for name in found[:MOST_LISTED]]
        while sum(map(len, lines)) + len(lines) > LONGEST_ANSWER - 200:
            del lines[len(lines) * 3 // 4 :]
        if len(lines) < len(found) or cut:
            at_least = "at least " if cut else ""
            lines.append(f"[... {at_least}{len(found) - len(lines):,} more: narrow it by a path or a glob ...]")
        return Answer("\n".join(lines) or "No files.")

    async def search_files(self, context: ToolContext, arguments: Json) -> Answer:
        path = arguments.get("path", ".")
        is_file = await self._at(path, lambda place: (found := place.status()) and stat.S_ISREG(found.st_mode))
        files, cut = ([path], False) if is_file else await self._files(context, path, arguments.get("glob"))
        question = {
            "pattern": arguments["pattern"],
            "ignore_case": bool(arguments.get("ignore_case")),
            "limit": int(arguments.get("limit", 100)),
            "roots": [str(root) for root in self._confines.roots],
            "files": files,
        }
        return await self._searched(context, question, cut)

    async def _searched(self, context: ToolContext, question: Json, cut: bool) -> Answer:
        lines: list[str] = []
        notes = ["not all files were searched"] if cut else []
        end: Json = {}

        async def converse(pipes: Pipes) -> None:
            await pipes.write(json.dumps(question).encode())
            pipes.close_input()
            async for line in pipes.lines():
                said = json.loads(line)
                if "end" in said:
                    end.update(said)
                else:
                    name = question["files"][said["file"]].replace("\n", "?")
                    lines.append(plain_text(f"{name}:{said['line']}: {said['text']}"))

        with scratch_file(context) as log:
            argv = (sys.executable, "-I", "-S", "-c", SEARCH, str(Path(orchard.__file__).parent.parent))
            limits = Limits(wall=self._search_seconds, log_bytes=LIST_BYTES, grace=0.0)
            ended = await context.run(argv, context.for_commands, log, limits, converse)
        if "error" in end:
            raise ToolError(f"This is not a regular expression: {plain_text(end['error'])}.")
        if ended.reason == "timeout":
            notes.append(f"stopped after {self._search_seconds:g} s: make the expression or the folder smaller")
        elif not ended.ok:
            raise ToolError(f"The search failed: {ended.message}")
        if end.get("more"):
            notes.append("there is more: narrow it")
        while sum(map(len, lines)) + len(lines) > LONGEST_ANSWER - 400:
            del lines[len(lines) * 3 // 4 :]
            notes = [*notes[:2], "cut to what fits"]
        shown = "\n".join(lines) or "No matches."
        return Answer(shown + (f"\n[{'; '.join(notes)}]" if notes else ""), failed=ended.reason == "timeout")

    async def _at(self, path: str, do: Callable[[Place], T], *, writing: bool = False, existing: bool = False) -> T:
        def walk() -> T:
            if existing:
                with self._confines.reach(path) as place:
                    place.read(LARGEST_WRITTEN)
            with self._confines.reach(path, writing=writing) as place:
                return do(place)

        try:
            return await in_thread(walk)
        except BadPath as error:
            raise ToolError(plain_text(str(error))) from error

    async def _files(self, context: ToolContext, path: str, glob: str | None) -> tuple[list[str], bool]:
        """Files below a folder, relative to the work folder or else absolute, and whether there are more."""
        real = await self._at(path, _folder)
        work = self._confines.roots[0]
        here = Path(real).is_relative_to(work)
        prefix = f"{os.path.relpath(real, work) if here else real}/".removeprefix("./")
        listed = await self._listed_by_git(context, real) if here else None
        names, cut = (listed, False) if listed is not None else await self._at(path, _walk)
        if glob is not None:
            names = [name for name in names if glob_matches(glob, name) or glob_matches(glob, prefix + name)]
        return sorted(prefix + name for name in names), cut

    async def _listed_by_git(self, context: ToolContext, folder: str) -> list[str] | None:
        """What git knows or would know below a folder; None where it knows nothing of it."""
        if self._checkout.repo is None or self._checkout.repo.top is None:
            return None
        words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
        where = os.path.relpath(folder, os.path.realpath(context.folder))
        async with still(context):
            git = await in_thread(self._checkout.git, context)
            told = await ask(git, *words, "--", where, most=LIST_BYTES, ok=(0, 128))
        if told.status != 0 or told.cut:
            return None
        base = os.path.realpath(context.folder)
        names = [os.fsdecode(name) for name in told.stdout.split(b"\0") if name]
        below = [os.path.relpath(f"{base}/{name}", folder) for name in names]
        if not below and where != ".":
            return None  # all of it is ignored, and it is asked for all the same
        return await in_thread(lambda: [name for name in below if os.path.lexists(f"{folder}/{name}")])


def _folder(place: Place) -> str:
    os.close(place.open_folder())
    return str(place.path)


def _walk(place: Place) -> tuple[list[str], bool]:
    """Every file below an open folder; links are named, not followed."""
    found: list[str] = []
    seen, until = 0, time.monotonic() + WALK_SECONDS
    top = place.open_folder()
    try:
        for base, folders, files, _ in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            seen += len(files) + len(folders)
            folders[:] = sorted(name for name in folders if name != ".git")
            if seen > MOST_WALKED or time.monotonic() > until or base.count("/") > 60:
                return found, True
            found += [f"{base}/{name}".removeprefix("./") for name in sorted(files)]
    finally:
        os.close(top)
    return found, False


def glob_matches(glob: str, path: str) -> bool:
    """Whether a path fits: `*` stays within a name, `**` does not, and a glob of one name fits in any folder."""
    wanted = glob.strip("/").split("/")
    names = path.split("/")
    if len(wanted) == 1 and wanted[0] != "**":
        return fnmatchcase(names[-1], wanted[0])
    # Which parts of the glob may stand for what comes next, one name after the other: no path takes long.
    states = _open_states({0}, wanted)
    for name in names:
        after = {state for state in states if state < len(wanted) and wanted[state] == "**"}
        after |= {s + 1 for s in states if s < len(wanted) and wanted[s] != "**" and fnmatchcase(name, wanted[s])}
        states = _open_states(after, wanted)
    return len(wanted) in states


def _open_states(states: set[int], wanted: list[str]) -> set[int]:
    """With those that follow when a `**` stands for no name at all."""
    opened = set(states)
    for state in range(len(wanted)):
        if state in opened and wanted[state] == "**":
            opened.add(state + 1)
    return opened


def _encoded(content: str) -> bytes:
    try:
        encoded = content.encode()
    except UnicodeEncodeError as error:
        raise ToolError("The text holds half of a character (a lone surrogate): send it whole.") from error
    if len(encoded) > LARGEST_WRITTEN:
        raise ToolError(f"The text has {len(encoded):,} bytes: at most {LARGEST_WRITTEN:,} are written.")
    return encoded


def _edited(path: str, content: bytes, change: tuple[bytes, bytes], *, everywhere: bool) -> tuple[bytes, list[int]]:
    old, new = change
    if old not in content and b"\r\n" in content and b"\r" not in old:
        # The file has the line ends of Windows, which were not shown: the new text gets them too.
        old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\n", b"\r\n")
    count = content.count(old)
    if count == 0:
        loose = b"".join(old.split()) in b"".join(content.split())
        hint = " It is there with other spaces or line ends." if loose else " Read the file again."
        raise BadPath(f"old_text was found 0 times in {path}.{hint}")
    places = islice(re.finditer(re.escape(old), content), 20 if everywhere else 5)
    lines = [content.count(b"\n", 0, place.start()) + 1 for place in places]
    if count > 1 and not everywhere:
        where = ", ".join(map(str, lines)) + (", ..." if count > len(lines) else "")
        raise BadPath(
            f"old_text was found {count} times in {path} (lines {where}): take in more lines around the one you mean, "
            "or set replace_all."
        )
    return content.replace(old, new), lines + [0] * (count - len(lines))


def _numbered(content: bytes, first: int, limit: int) -> str:
    lines = [line.removesuffix("\r") for line in content.decode(errors="replace").split("\n")]
    if not lines[-1]:
        lines.pop()
    if not lines:
        return "The file is empty."
    if first > len(lines):
        raise ToolError(f"The file has {len(lines)} lines: there is no line {first}.")
    shown: list[str] = []
    size = 0
    for number, line in enumerate(lines[first - 1 : first - 1 + limit], first):
        cut = line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} [... {len(line) - LONGEST_LINE:,} more]"
        size += len(cut) + 8
        if size > LONGEST_ANSWER - 200:
            break
        shown.append(f"{number:>6}\t{cut}")
    last = first + len(shown) - 1
    if last < len(lines):
        shown.append(f"[... {len(lines) - last:,} more lines: go on with offset {last + 1} ...]")
    return "\n".join(shown)
