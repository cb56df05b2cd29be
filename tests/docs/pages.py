"""The blocks of the pages: what language each is in, and why one is not run."""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)$")
MARK = re.compile(r"^<!-- not run: (.+) -->$")
HERE_DOCUMENT = re.compile(r"<<-?\s*'?(\w+)'?")
COMMANDS = ("sh", "console")
DATA = ("yaml", "toml", "json")
WORDS = ("text", "yml", "markdown", "mermaid", "python")
"""What a reader looks at and does not type: output, files of other programs, pictures."""


@dataclass(frozen=True)
class Block:
    """A block of a page, with the number of its first line."""

    page: str
    line: int
    language: str
    text: str
    not_run: str | None = None

    @property
    def is_commands(self) -> bool:
        return self.language in COMMANDS

    def commands(self) -> list[str]:
        """What a reader types, command by command."""
        if self.language == "console":
            return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]
        return _split(self.text)


@dataclass
class _Reading:
    """Where the reader of a page is."""

    blocks: list[Block] = field(default_factory=list)
    mark: str | None = None
    start: int = 0
    language: str | None = None
    lines: list[str] = field(default_factory=list)


def blocks(page: Path) -> list[Block]:
    """Every block between fences, in the order of the page."""
    at = _Reading()
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        fence = FENCE.match(line)
        if at.language is not None:
            if line == "```":
                text = "".join(f"{one}\n" for one in at.lines)
                at.blocks.append(Block(page_name(page), at.start, at.language, text, at.mark))
                at.language, at.mark, at.lines = None, None, []
            else:
                at.lines.append(line)
        elif fence:
            at.language, at.start = fence[1], number
        else:
            mark = MARK.match(line)
            at.mark = mark[1] if mark else at.mark if not line.strip() else None
    assert at.language is None, f"{page} ends within a block"
    return at.blocks


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _split(text: str) -> list[str]:
    """Commands of a shell: a line each, but for lines that go on and for documents that follow a command."""
    found: list[str] = []
    end = ""
    going = False
    for line in text.splitlines():
        if end:
            found[-1] += f"\n{line}"
            end = "" if line == end else end
        elif going:
            found[-1] += f"\n{line}"
        elif line.strip() and not line.startswith("#"):
            found.append(line)
        going = not end and line.endswith("\\")
        if not end and found and (here := HERE_DOCUMENT.search(line)):
            end = here[1]
    return found
