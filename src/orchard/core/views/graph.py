"""A plan as a picture: text for mermaid and graphviz, or an SVG that needs neither.

The SVG has a layered layout of its own. A job's column is the length of the longest chain that leads
to it, so every arrow points to the right and the validation job stands last. Within a column jobs
stand near what they are connected to (their *barycentre*), which keeps crossings few. A group is
laid out by itself and then placed as one block, so that its frame never runs through another job.

Names come from strangers: they are made printable first, then escaped for the format they go into.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from msgspec import Struct, field

from orchard.model.plan import JobId, Plan
from orchard.text import escaped

Statuses = Mapping[JobId, str]
"""What each job shows; a job that is not in it is drawn without a status."""

# Status -> fill and line; a job without a status is drawn as `pending` is.
COLOURS: Mapping[str, tuple[str, str]] = {
    "pending": ("#f3f4f6", "#9ca3af"),
    "ready": ("#e0f2fe", "#0284c7"),
    "scheduled": ("#e0f2fe", "#0284c7"),
    "running": ("#fef3c7", "#d97706"),
    "succeeded": ("#dcfce7", "#16a34a"),
    "failed": ("#fee2e2", "#dc2626"),
    "blocked": ("#ede9fe", "#7c3aed"),
    "canceled": ("#e5e7eb", "#4b5563"),
}

LABEL_COLUMNS = 25
SWEEPS = 4

BOX_WIDTH, BOX_HEIGHT = 190, 40
COLUMN_WIDTH = 280
GAP = 14
MARGIN = 50
FRAME_TITLE = 20
FRAME_PAD = 10
NEST_PAD = 4
"""How much wider a frame is than one inside it; eight frames and their padding fit between two columns."""


def mermaid(plan: Plan, statuses: Statuses | None = None) -> str:
    """The plan as a mermaid flowchart, which code hosts draw inside Markdown."""
    names = {job: f"j{number}" for number, job in enumerate(plan.jobs)}
    lines = ["flowchart LR"]
    lines += _nested(plan, lambda job: f'{names[job]}["{_mermaid(_label(plan, job))}"]', _mermaid_group)
    lines += [f"  {names[need]} --> {names[job]}" for need, job in edges(plan)]
    for status, members in _by_status(plan, statuses).items():
        fill, line = COLOURS[status]
        lines.append(f"  classDef {status} fill:{fill},stroke:{line},color:#111827")
        lines.append(f"  class {','.join(names[job] for job in members)} {status}")
    return "\n".join(lines) + "\n"


def dot(plan: Plan, statuses: Statuses | None = None) -> str:
    names = {job: f"j{number}" for number, job in enumerate(plan.jobs)}
    look = {job: COLOURS[status] for status, members in _by_status(plan, statuses).items() for job in members}
    fill, line = COLOURS["pending"]

    def node(job: JobId) -> str:
        own_fill, own_line = look.get(job, (fill, line))
        return f'{names[job]} [label={_quoted(_label(plan, job))} fillcolor="{own_fill}" color="{own_line}"];'

    lines = [f"digraph {_quoted(plan.name)} {{", "  rankdir=LR;"]
    lines.append('  node [shape=box style="rounded,filled" fontname="sans-serif"];')
    lines += _nested(plan, node, _dot_group)
    lines += [f"  {names[need]} -> {names[job]};" for need, job in edges(plan)]
    return "\n".join([*lines, "}"]) + "\n"


def svg(plan: Plan, statuses: Statuses | None = None) -> str:
    place = _Layout(plan)
    width = (max(place.column.values(), default=0) + 1) * COLUMN_WIDTH - (COLUMN_WIDTH - BOX_WIDTH) + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {place.height + 2 * MARGIN}"'
        f' width="{width}" height="{place.height + 2 * MARGIN}" role="img">',
        f"<title>{_xml(plan.name)}</title>",
        _style(),
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" class="tip"/></marker></defs>',
        f'<g transform="translate({MARGIN} {MARGIN})">',
        *(_frame(frame) for frame in place.frames),
        *(_arrow(place, need, job) for need, job in edges(plan)),
        *(_box(plan, place, job, (statuses or {}).get(job)) for job in plan.jobs),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def edges(plan: Plan) -> Iterator[tuple[JobId, JobId]]:
    return ((need, job.id) for job in plan.jobs.values() for need in job.needs)


# -------------------------------------------------------------------------------------- the groups


class _Group(Struct):
    """What a frame holds; the plan itself is the outermost one."""

    name: str
    groups: dict[str, "_Group"] = field(default_factory=dict)
    jobs: list[JobId] = field(default_factory=list)

    @property
    def nesting(self) -> int:
        return 1 + max((group.nesting for group in self.groups.values()), default=-1)


def _groups(plan: Plan) -> _Group:
    """The jobs by group, the validation job outside of all and last."""
    top = _Group("")
    for job in plan.jobs.values():
        inside = top
        for part in job.group.split("/") if job.group else ():
            inside = inside.groups.setdefault(part, _Group(part))
        inside.jobs.append(job.id)
    return top


def _nested(plan: Plan, node: Callable[[JobId], str], group: Callable[[int, str], tuple[str, str]]) -> list[str]:
    """Nodes inside their groups, indented; `group` gives the lines that open and close one."""
    lines: list[str] = []
    opened = 0

    def walk(inside: _Group, depth: int) -> None:
        nonlocal opened
        for inner in inside.groups.values():
            first, last = group(opened, inner.name)
            opened += 1
            lines.append("  " * depth + first)
            walk(inner, depth + 1)
            lines.append("  " * depth + last)
        lines.extend("  " * depth + node(job) for job in inside.jobs)

    walk(_groups(plan), 1)
    return lines


def _mermaid_group(number: int, name: str) -> tuple[str, str]:
    return f'subgraph g{number}["{_mermaid(_plain(name))}"]', "end"


def _dot_group(number: int, name: str) -> tuple[str, str]:
    return f"subgraph cluster_{number} {{ label={_quoted(name)}; color=gray;", "}"


def _by_status(plan: Plan, statuses: Statuses | None) -> dict[str, list[JobId]]:
    found: dict[str, list[JobId]] = {}
    for job in plan.jobs:
        status = str((statuses or {}).get(job, ""))
        if status in COLOURS:
            found.setdefault(status, []).append(job)
    return found


# -------------------------------------------------------------------------------------- the layout


class _Frame(Struct, frozen=True):
    name: str
    x: int
    y: int
    width: int
    height: int


class _Block(Struct):
    """Something placed as a whole: a job or a laid-out group, over the columns `first` to `last`."""

    first: int
    last: int
    height: int
    rank: float
    jobs: dict[JobId, int] = field(default_factory=dict)
    """The top of each job, counted from the top of the block."""
    frames: list[_Frame] = field(default_factory=list)
    y: int = 0


class _Layout:
    """Where everything stands: `column` and `top` of each job, and the frames, outermost first."""

    def __init__(self, plan: Plan) -> None:
        self.column = columns(plan)
        self._rank = _ranks(plan, self.column)
        whole = self._stack(_groups(plan))
        self.top = whole.jobs
        self.frames = whole.frames
        self.height = whole.height

    def _stack(self, group: _Group) -> _Block:
        """Place what a group holds, best rank first, each as high as its columns have room."""
        blocks = [self._framed(inner) for inner in group.groups.values()]
        for job in group.jobs:
            column = self.column[job]
            blocks.append(_Block(column, column, BOX_HEIGHT, self._rank[job], {job: 0}))
        blocks.sort(key=lambda block: block.rank)
        first, last = min(block.first for block in blocks), max(block.last for block in blocks)
        used = [0] * (last - first + 1)
        for block in blocks:
            span = slice(block.first - first, block.last - first + 1)
            block.y = max(used[span])
            used[span] = [block.y + block.height + GAP] * (block.last - block.first + 1)
        height = max(used) - GAP
        _centre(blocks, used, first, height)
        return _joined(blocks, first, last, height)

    def _framed(self, group: _Group) -> _Block:
        inner = self._stack(group)
        pad = FRAME_PAD + NEST_PAD * group.nesting
        height = inner.height + FRAME_TITLE + FRAME_PAD
        width = (inner.last - inner.first) * COLUMN_WIDTH + BOX_WIDTH + 2 * pad
        frame = _Frame(group.name, inner.first * COLUMN_WIDTH - pad, 0, width, height)
        frames = [frame, *(_lowered(one, FRAME_TITLE) for one in inner.frames)]
        jobs = {job: top + FRAME_TITLE for job, top in inner.jobs.items()}
        return _Block(inner.first, inner.last, height, inner.rank, jobs, frames)


def columns(plan: Plan) -> dict[JobId, int]:
    """How many jobs the longest chain before each job holds."""
    found: dict[JobId, int] = {}
    for job in plan.in_order:
        found[job] = 1 + max((found[need] for need in plan.jobs[job].needs), default=-1)
    return found


def _ranks(plan: Plan, column: Mapping[JobId, int]) -> dict[JobId, float]:
    """Where each job wants to stand in its column, from 0 (top) to 1, after sweeping both ways."""
    rows: list[list[JobId]] = [[] for _ in range(max(column.values(), default=0) + 1)]
    for job in plan.jobs:
        rows[column[job]].append(job)
    rank = {job: (number + 0.5) / len(row) for row in rows for number, job in enumerate(row)}
    needs = {job.id: job.needs for job in plan.jobs.values()}
    for sweep in range(SWEEPS):
        near: Mapping[JobId, Sequence[JobId]] = plan.needed_by if sweep % 2 else needs
        for row in reversed(rows) if sweep % 2 else rows:
            wish = {job: sum(rank[one] for one in near[job]) / len(near[job]) for job in row if near[job]}
            row.sort(key=lambda job: wish.get(job, rank[job]))
            rank.update((job, (number + 0.5) / len(row)) for number, job in enumerate(row))
    return rank


def _centre(blocks: list[_Block], used: list[int], first: int, height: int) -> None:
    """Move columns that are not full to the middle; columns that share a block move together."""
    runs: list[tuple[list[_Block], int]] = []
    for block in sorted(blocks, key=lambda block: block.first):
        if runs and block.first <= runs[-1][1]:
            together, last = runs[-1]
            together.append(block)
            runs[-1] = (together, max(last, block.last))
        else:
            runs.append(([block], block.last))
    for together, last in runs:
        shift = (height - max(used[together[0].first - first : last - first + 1]) + GAP) // 2
        for block in together:
            block.y += shift


def _joined(blocks: list[_Block], first: int, last: int, height: int) -> _Block:
    jobs = {job: block.y + top for block in blocks for job, top in block.jobs.items()}
    frames = [_lowered(frame, block.y) for block in blocks for frame in block.frames]
    rank = sum(block.rank for block in blocks) / len(blocks)
    return _Block(first, last, height, rank, jobs, frames)


def _lowered(frame: _Frame, by: int) -> _Frame:
    return _Frame(frame.name, frame.x, frame.y + by, frame.width, frame.height)


# ----------------------------------------------------------------------------------------- the ink


def _style() -> str:
    rules = [
        "text{font:13px ui-sans-serif,system-ui,sans-serif;fill:#111827}",
        ".small{font-size:11px;fill:#4b5563}.title{font-size:12px;fill:#6b7280}",
        ".frame{fill:#6b7280;fill-opacity:.06;stroke:#9ca3af;stroke-dasharray:4 3}",
        ".edge{fill:none;stroke:#9ca3af;stroke-width:1.4}.tip{fill:#9ca3af}",
        *(f".{status}{{fill:{fill};stroke:{line}}}" for status, (fill, line) in COLOURS.items()),
    ]
    return f"<style>{''.join(rules)}</style>"


def _frame(frame: _Frame) -> str:
    return (
        f'<g><rect class="frame" x="{frame.x}" y="{frame.y}" width="{frame.width}" height="{frame.height}" rx="8"/>'
        f'<text class="title" x="{frame.x + 8}" y="{frame.y + 15}">{_xml(frame.name)}</text></g>'
    )


def _box(plan: Plan, place: _Layout, job: JobId, status: str | None) -> str:
    x, y = place.column[job] * COLUMN_WIDTH, place.top[job]
    look = str(status) if status in COLOURS else "pending"
    told = f"{job}: {_label(plan, job)}" + (f" ({status})" if status else "")
    lower = f'<text class="small" x="{x + 10}" y="{y + 32}">{_xml(str(status))}</text>' if status else ""
    return (
        f'<g data-job="{_xml(job)}"><title>{_xml(told)}</title>'
        f'<rect class="{look}" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
        f'<text x="{x + 10}" y="{y + (17 if status else 25)}">{_xml(_cut(_label(plan, job)))}</text>{lower}</g>'
    )


def _arrow(place: _Layout, need: JobId, job: JobId) -> str:
    x1, y1 = place.column[need] * COLUMN_WIDTH + BOX_WIDTH, place.top[need] + BOX_HEIGHT // 2
    x2, y2 = place.column[job] * COLUMN_WIDTH, place.top[job] + BOX_HEIGHT // 2
    bend = (COLUMN_WIDTH - BOX_WIDTH) // 2
    curve = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    return f'<path class="edge" data-from="{_xml(need)}" data-to="{_xml(job)}" d="{curve}" marker-end="url(#tip)"/>'


# --------------------------------------------------------------------------------------- the words


def _label(plan: Plan, job: JobId) -> str:
    return _plain(plan.jobs[job].name or job)


def _plain(text: str) -> str:
    """Text on one line with nothing in it that acts: control characters are shown as escapes."""
    return escaped(re.sub(r"\s+", " ", text).strip())


def _cut(text: str) -> str:
    """What fits into a box, counting a wide character as two."""
    width = 0
    for number, mark in enumerate(text):
        width += 1 if ord(mark) < 0x1100 else 2
        if width > LABEL_COLUMNS:
            return text[: max(1, number - 1)] + "…"
    return text


def _xml(text: str) -> str:
    return escape(_plain(text), quote=True)


def _mermaid(text: str) -> str:
    """Anything that mermaid could take for its own syntax becomes a numbered character."""
    return re.sub(r"[^\w /.,:()-]|[.-](?= )|^[.-]", lambda found: f"#{ord(found.group())};", text)


def _quoted(text: str) -> str:
    """A graphviz string: backslash, quote and entities lose their meaning."""
    plain = _plain(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return f'"{plain}"'
