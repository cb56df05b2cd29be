"""What is put over the picture: a question, and the list of keys."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Key
from textual.screen import ModalScreen

from orchard.surfaces.cli.render.lines import Line, cells, plain, wrapped
from orchard.surfaces.cli.watch.actions import ACTIONS, OTHER_KEYS
from orchard.surfaces.cli.watch.rows import Rows

WIDEST = 76


class Box(ModalScreen[bool]):
    """Lines in a box over the picture."""

    def __init__(self, lines: Sequence[Line], *, colored: bool) -> None:
        super().__init__()
        self.lines, self.colored = lines, colored

    def compose(self) -> ComposeResult:
        width = max(20, min(WIDEST, self.app.size.width - 6))
        rows = [row for line in self.lines for row in wrapped(line, width)]
        with Container(id="box") as box:
            shown = Rows("said", colored=self.colored)
            yield shown
        box.styles.width = min(width, max(cells(plain(row)) for row in rows)) + 4
        box.styles.height = min(len(rows) + 2, self.app.size.height)
        shown.show_lines(rows)


class Question(Box):
    """A yes is a yes; every other key is a no."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "answer(True)", priority=True)]

    def __init__(self, question: str, *, colored: bool) -> None:
        super().__init__(
            [[(question, "strong")], [], [("y", "strong"), (" yes    any other key: no", "dim")]], colored=colored
        )

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)

    def on_key(self, event: Key) -> None:
        event.stop()
        if event.key != "y":
            self.dismiss(False)


class Keys(Box):
    """The keys; any of them closes it."""

    def __init__(self, *, colored: bool) -> None:
        rows = [*((action.key, action.does) for action in ACTIONS), *OTHER_KEYS]
        super().__init__([[(f"{key:<11}", "strong"), (does, "")] for key, does in rows], colored=colored)

    def on_key(self, event: Key) -> None:
        event.stop()
        self.dismiss(False)
