"""Opening the pull request of a branch, or updating the one that is open.

The text that is ours stands between two marks. An update replaces what is between them: what people have written around
it stays, and so does a title that they have changed. Where they have removed the marks, the whole text is theirs.
"""

import re
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from orchard.forge.channel import Channel, ForgeProblem
from orchard.forge.servers import Project

BEGIN, END = "<!-- orchard: begin -->", "<!-- orchard: end -->"
TITLE_LONGEST = 200
CUT = "\n\n(The rest did not fit.)"


class Wanted(Struct, frozen=True):
    project: Project
    """Where the request is made."""
    source: Project
    """Where its branch was pushed to; another one for a fork."""
    branch: str
    target: str
    title: str
    body: str
    draft: bool = False


class Opened(Struct, frozen=True):
    number: int
    url: str
    created: bool


def open_or_update(channel: Channel, wanted: Wanted) -> Opened:
    """The open request from this branch into that one; there is never a second one. It blocks."""
    path = _path(wanted)
    known = _found(channel, wanted, path)
    if known is not None:
        return _updated(channel, wanted, path, known)
    kind = channel.server.kind
    title = wanted.title[:TITLE_LONGEST]
    fields: dict[str, object] = {
        "title": f"{kind.draft}{title}" if wanted.draft else title,
        kind.head: _head(wanted),
        kind.base: wanted.target,
        kind.body: marked(wanted.body, kind.longest),
    }
    if wanted.draft and not kind.draft:
        fields["draft"] = True
    number = _number(channel, channel.ask("POST", path, fields))
    return Opened(number, wanted.project.page(number), created=True)


def check_access(channel: Channel, wanted: Wanted) -> None:
    """ForgeProblem where the forge would not even show the requests of this branch; nothing is changed. It blocks."""
    _found(channel, wanted, _path(wanted))


def _path(wanted: Wanted) -> str:
    kind = wanted.project.server.kind
    if kind.quoted and wanted.project != wanted.source:
        raise ForgeProblem(
            f"The branch goes to {wanted.source.name} and the {kind.request} to {wanted.project.name}; Orchard opens "
            f"none between two projects of {kind.title}.",
            hint="Push to the project itself: git config remote.pushDefault REMOTE",
        )
    return kind.project.format(project=quote(wanted.project.name, safe="" if kind.quoted else "/"))


def _head(wanted: Wanted) -> str:
    return wanted.branch if wanted.project == wanted.source else f"{wanted.source.owner}:{wanted.branch}"


def _found(channel: Channel, wanted: Wanted, path: str) -> dict[str, Any] | None:
    parts = {"owner": wanted.source.owner, "branch": wanted.branch, "target": wanted.target}
    query = channel.server.kind.found.format(**{name: quote(text, safe="") for name, text in parts.items()})
    rows = channel.ask("GET", f"{path}?{query}")
    return next((row for row in rows if isinstance(row, dict)), None) if isinstance(rows, list) else None


def _updated(channel: Channel, wanted: Wanted, path: str, known: dict[str, Any]) -> Opened:
    kind, number = channel.server.kind, _number(channel, known)
    before = known.get(kind.body)
    body = renewed(before if isinstance(before, str) else "", wanted.body, kind.longest)
    if body is not None and body != before:
        channel.ask(kind.update, f"{path}/{number}", {kind.body: body})
    return Opened(number, wanted.project.page(number), created=False)


def _number(channel: Channel, row: Any) -> int:
    number = row.get(channel.server.kind.number) if isinstance(row, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number <= 0:
        raise ForgeProblem(f"{channel.server.kind.title} gave an answer without the number of the request.")
    return number


def marked(text: str, longest: int) -> str:
    """Our text between its marks, cut where it is too long; marks within it mean nothing."""
    plain = text.replace(BEGIN, "").replace(END, "").strip()
    room = longest - len(BEGIN) - len(END) - 2
    if len(plain) > room:
        plain = plain[: room - len(CUT)].rsplit("\n", 1)[0] + CUT
    return f"{BEGIN}\n{plain}\n{END}"


def renewed(before: str, text: str, longest: int) -> str | None:
    """The text of a request with our part in it renewed; None: it has no part of ours."""
    if not before.strip():
        return marked(text, longest)
    found = re.search(f"{re.escape(BEGIN)}.*?{re.escape(END)}", before, re.DOTALL)
    if found is None:
        return None
    around = len(before) - (found.end() - found.start())
    return before[: found.start()] + marked(text, max(longest - around, 1000)) + before[found.end() :]
