"""Lines on the screen: drawn where they are seen, and sent where they changed."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from orchard.surfaces.cli.render.lines import RICH, Line, Meaning, cells
from orchard.text import safe

Drawing = Callable[[int], Line]
"""The line of a row, by its number."""


class Rows(ScrollView):
    """Rows that have names, so that the one that was chosen is still chosen when others come and go."""

    DEFAULT_CSS = "Rows { scrollbar-size: 0 1; overflow-x: hidden; overflow-y: auto; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f", "page(1)", show=False),
        Binding("home,g", "move(-1000000000)", show=False),
        Binding("end,G", "move(1000000000)", show=False),
        Binding("left,h", "sideways(-1)", show=False),
        Binding("right", "sideways(1)", show=False),
    ]
    SIDE_STEP = 8

    class Chosen(Message):
        """Another row is chosen: `by_person`, or because the rows are others now."""

        def __init__(self, rows: "Rows", *, by_person: bool) -> None:
            super().__init__()
            self.rows, self.by_person = rows, by_person

    class Sideways(Message):
        """The key to the left or to the right, on a row."""

        def __init__(self, rows: "Rows", way: int) -> None:
            super().__init__()
            self.rows, self.way = rows, way

    def __init__(self, name: str, *, picks: bool = False, reads: bool = False, colored: bool = True) -> None:
        """`picks`: a row is chosen with the arrow keys; `reads`: they move the text instead."""
        super().__init__(id=name)
        self.can_focus = picks or reads
        self.picks, self.colored = picks, colored
        self.names: Sequence[str] = ()
        self.at = 0
        self.sticks = False
        """Whether the end stays in sight as the text grows, until a person goes elsewhere."""
        self._draw: Drawing = lambda number: []
        self._seen: dict[int, Line] = {}
        self._fresh: dict[int, Line] = {}
        """Lines that were drawn to see that they changed, until they are on the screen."""

    @property
    def chosen(self) -> str | None:
        return self.names[self.at] if self.picks and self.at < len(self.names) else None

    def show(self, names: Sequence[str], draw: Drawing, width: int = 0) -> None:
        """Show these rows instead; `width`: of the longest, where the text can be moved to the side."""
        before = self.chosen
        self._draw = draw
        self._fresh.clear()
        if names != self.names:
            place = {name: number for number, name in enumerate(names)}
            self.names = names
            self.at = place.get(before or "", min(self.at, max(0, len(names) - 1)))
        size = Size(max(width, 1), len(names))
        if size != self.virtual_size:
            self.virtual_size = size
            self._seen.clear()
            self.refresh()
        else:
            self._refresh_changed()
        if self.sticks:
            self.call_after_refresh(self.to_end)
        if self.picks and before != self.chosen:
            self.post_message(self.Chosen(self, by_person=False))

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Show lines that nobody chooses from."""
        width = max((sum(cells(text) for text, _ in line) for line in lines), default=0)
        self.show(range_names(len(lines)), lines.__getitem__, width)

    def choose(self, name: str, *, by_person: bool) -> None:
        if name in self.names:
            self._go_to(self.names.index(name), by_person=by_person)

    def to_end(self) -> None:
        self.scroll_to(y=self.max_scroll_y, animate=False)

    def to_top(self) -> None:
        self.sticks = False
        self.scroll_to(x=0, y=0, animate=False, force=True)

    def on_resize(self) -> None:
        if self.sticks:
            self.call_after_refresh(self.to_end)

    def on_mouse_scroll_up(self) -> None:
        self.sticks = False

    def _refresh_changed(self) -> None:
        top = self.scroll_offset.y
        for number in range(top, min(top + self.size.height, len(self.names))):
            line = self._draw(number)
            if self._seen.get(number) != line:
                self._fresh[number] = line
                self.refresh_line(number)

    def render_line(self, y: int) -> Strip:
        across, number = self.scroll_offset.x, y + self.scroll_offset.y
        width = self.size.width
        base = self.rich_style
        if number >= len(self.names):
            return Strip.blank(width, base)
        line = self._fresh.pop(number, None) or self._draw(number)
        self._seen[number] = line
        if self.picks and number == self.at:
            base += Style(reverse=True) if self.has_focus else Style(underline=True)
        pieces = [Segment(_printable(text), base + self._style(meaning)) for text, meaning in line]
        return Strip(pieces).crop_extend(across, across + width, base)

    def _style(self, meaning: Meaning) -> Style:
        if not self.colored and meaning not in ("dim", "strong", "name"):
            return Style.null()
        return Style.parse(RICH[meaning]) if meaning else Style.null()

    # ------------------------------------------------------------------------------------------ keys

    def action_move(self, by: int) -> None:
        if self.picks:
            self._go_to(max(0, min(self.at + by, len(self.names) - 1)))
        else:
            to = max(0, min(self.scroll_offset.y + by, self.max_scroll_y))
            self.sticks = to == self.max_scroll_y and by > 0
            self.scroll_to(y=to, animate=False)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1))

    def action_sideways(self, way: int) -> None:
        if self.picks:
            self.post_message(self.Sideways(self, way))
        else:
            x = max(0, min(self.scroll_offset.x + way * self.SIDE_STEP, self.virtual_size.width - self.size.width))
            self.scroll_to(x=max(0, x), animate=False, force=True)

    def on_click(self, event: Click) -> None:
        number = event.y + self.scroll_offset.y
        if self.picks and 0 <= number < len(self.names):
            self._go_to(number)

    def _go_to(self, number: int, *, by_person: bool = True) -> None:
        if number == self.at or not self.names:
            return
        self.refresh_line(self.at)
        self.at = number
        self.refresh_line(number)
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if not top <= number < top + height:
            self.scroll_to(y=number if number < top else number - height + 1, animate=False)
        self.post_message(self.Chosen(self, by_person=by_person))

    def watch_has_focus(self, focused: bool) -> None:
        super().watch_has_focus(focused)
        self.refresh()


def range_names(count: int) -> Sequence[str]:
    """Names for rows that have none."""
    return [str(number) for number in range(count)]


def _printable(text: str) -> str:
    """The text came through `safe`; should it ever not have, the terminal is not told what to do by it."""
    return text if text.isprintable() else safe(text, len(text) * 8)
