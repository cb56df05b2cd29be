"""The screen: which plan and which job are looked at, when it is drawn, and what keys do."""

import asyncio
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

from textual.app import App as TextualApp
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.css.query import NoMatches

from orchard.app import App
from orchard.core.views.documents import JobView, PlanSummary
from orchard.errors import NotFound, OrchardError
from orchard.model.plan import JobId, PlanId
from orchard.operations.operation import Operation
from orchard.store.log_follower import Changes
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, Meaning, safe, wrapped
from orchard.surfaces.cli.render.progress import FRAME_SECONDS, SHARE, TICK_SECONDS
from orchard.surfaces.cli.render.tree import Look, Row, tree_rows
from orchard.surfaces.cli.terminal import Terminal, speaks_utf8
from orchard.surfaces.cli.watch.actions import ACTIONS, ENDED, Action, Wish
from orchard.surfaces.cli.watch.dialogs import Keys, Question
from orchard.surfaces.cli.watch.pages import Log, PageState, Tab, details_lines, diff_lines, group_lines, tab_line
from orchard.surfaces.cli.watch.picture import Picture, Seen, TreeLines, head_lines, row_name
from orchard.surfaces.cli.watch.place import Place
from orchard.surfaces.cli.watch.rows import Rows
from orchard.surfaces.next_steps import in_commands

FOOT_LINES = 3
KEYS_FOOT: Line = [
    ("? ", "strong"), ("keys  ", "dim"), ("tab ", "strong"), ("next part  ", "dim"),
    ("l d i ", "strong"), ("log, diff, details  ", "dim"),
]  # fmt: skip

Chosen = tuple[Place, PlanId]


class Watcher(TextualApp[None]):
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-middle"), (160, "-wide")]  # noqa: RUF012
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    #body { height: 1fr; }
    #plans { width: 36; border-right: solid ansi_bright_black; }
    .-narrow #plans { display: none; }
    .-narrow #plans.-asked { display: block; }
    #plans.-hidden { display: none; }
    #plan { width: 1fr; }
    #head { height: 2; }
    #split { height: 1fr; layout: vertical; }
    #tree { height: 1fr; }
    #below { height: 1fr; border-top: solid ansi_bright_black; }
    .-wide #split { layout: horizontal; }
    .-wide #tree { width: 1fr; height: 100%; }
    .-wide #below { width: 1fr; height: 100%; border-top: none; border-left: solid ansi_bright_black; }
    #tabs { height: 1; }
    #page { height: 1fr; }
    #foot { height: 1; }
    Box { align: center middle; background: transparent; }
    Box #box { border: round ansi_yellow; background: ansi_default; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit"),
        Binding("ctrl+c,ctrl+q", "quit", priority=True),
        Binding("question_mark", "keys"),
        Binding("l", "tab('log')"),
        Binding("d", "tab('diff')"),
        Binding("i", "tab('details')"),
        Binding("b", "list"),
        Binding("space", "fold"),
        Binding("left_square_bracket", "step(-1)"),
        Binding("right_square_bracket", "step(1)"),
        *(Binding(action.key, f"ask('{action.key}')") for action in ACTIONS),
    ]

    def __init__(self, apps: Sequence[App], plan: PlanId | None, *, colored: bool, marks: Mapping[str, str]) -> None:
        super().__init__(ansi_color=True)
        self.places = [Place(app, self._changed_somewhere) for app in apps]
        self.colored, self.marks = colored, marks
        self.chosen: Chosen | None = (self.places[0], plan) if plan is not None else None
        self.tab: Tab = "log"
        self.seen: Seen | None = None
        self.rows: dict[str, Row] = {}
        self.folded: dict[str, bool] = {}
        """Groups that a person folded or unfolded; the others are as the plan is large."""
        self._picture: Picture | None = None
        self._listed: dict[str, Chosen] = {}
        self._changed = asyncio.Event()
        self._page_state: PageState | None = None
        self._page_news = asyncio.Event()
        self._told: Line | None = None
        self._ends = 0
        """How often it was said that a plan is over."""

    # ------------------------------------------------------------------------------------------ life

    def compose(self) -> ComposeResult:
        with Horizontal(id="body"):
            yield Rows("plans", picks=True, colored=self.colored)
            with Vertical(id="plan"):
                yield Rows("head", colored=self.colored)
                with Container(id="split"):
                    yield Rows("tree", picks=True, colored=self.colored)
                    with Vertical(id="below"):
                        yield Rows("tabs", colored=self.colored)
                        yield Rows("page", reads=True, colored=self.colored)
        yield Rows("foot", colored=self.colored)

    def part(self, name: str) -> Rows:
        return self.screen_stack[0].query_one(f"#{name}", Rows)

    def on_mount(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(ValueError, RuntimeError):  # a test is not in the main thread
                asyncio.get_running_loop().add_signal_handler(number, self.exit)
        self.part("tree").focus()
        for place in self.places:
            self.run_worker(place.follow(), group="places")
        self.run_worker(self._keep_drawing(), group="drawing")
        self._changed.set()

    def on_unmount(self) -> None:
        for place in self.places:
            place.close()

    def on_resize(self) -> None:
        self.call_after_refresh(self._changed.set)

    def _changed_somewhere(self) -> None:
        self._changed.set()

    async def _keep_drawing(self) -> None:
        """Draw after every change, at most eight times a second, and each second while jobs run."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS if self.seen is not None and self.seen.moves else None):
                    await self._changed.wait()
            self._changed.clear()
            began = time.monotonic()
            try:
                await self._look()
            except NoMatches:
                return  # the screen is being taken down
            await asyncio.sleep(max(FRAME_SECONDS, SHARE * (time.monotonic() - began)))

    # --------------------------------------------------------------------------------------- drawing

    async def _look(self) -> None:
        """Read what is looked at, and draw it."""
        self._show_plans()
        if self.chosen is None:
            return
        place, plan = self.chosen
        if self._picture is None or self._picture.plan != plan or self._picture.app is not place.app:
            self._picture = Picture(place.app, plan)
        try:
            seen = await place.served.read(self._picture.read)
        except OrchardError as error:
            self.tell(error)
            if isinstance(error, NotFound):  # it was purged
                self.chosen = None
            return
        if self.chosen == (place, plan):
            self._show(place, seen)

    def _show(self, place: Place, seen: Seen) -> None:
        before, self.seen = self.seen, seen
        if before is not None and before.plan.id == seen.plan.id and seen.ended_since(before):
            self._ends += 1
            self.say(f"Plan {safe(seen.plan.id)} is over: it {ENDED.get(str(seen.plan.status), seen.plan.status)}.")
        look = Look(time.time(), self.marks, said=seen.said)
        head = head_lines(seen, look, safe(place.name, 40) if len(self.places) > 1 else "")
        width = max(20, self.part("head").size.width)
        self._lines("head", [row for line in head for row in wrapped(line, width)][: FOOT_LINES + 1])
        tree = TreeLines(tree_rows(seen.plan, seen.jobs, self._is_folded), look)
        self.rows = {row_name(row): row for row in tree.rows}
        self.part("tree").show(tree.names, tree.line)
        self._show_foot()
        job = self._job
        state = PageState.of(job) if job is not None else None
        if state != self._page_state:
            self._page_state = state
            self._page_news.set()

    def _lines(self, name: str, lines: Sequence[Line]) -> None:
        part = self.part(name)
        part.styles.height = max(1, len(lines))
        part.show_lines(lines)

    def _is_folded(self, group: str, status: object) -> bool:
        return self.folded.get(group, False)

    @property
    def _row(self) -> Row | None:
        return self.rows.get(self.part("tree").chosen or "")

    @property
    def _job(self) -> JobView | None:
        row = self._row
        return row.job if row is not None else None

    def _show_plans(self) -> None:
        listed: dict[str, tuple[Chosen | None, Line]] = {}
        for number, place in enumerate(self.places):
            if len(self.places) > 1 and (place.plans or place.problem is not None):
                listed[f"{number}"] = (None, [(safe(place.name, 40), "dim")])
            for plan in reversed(place.plans):
                listed[f"{number}/{plan.id}"] = ((place, PlanId(plan.id)), self._plan_line(plan))
        self._listed = {name: chosen for name, (chosen, _) in listed.items() if chosen is not None}
        if self.chosen is None and self._listed:
            self.chosen = next(iter(self._listed.values()))
            self._restart_page()
        names, lines = list(listed), [line for _, line in listed.values()]
        part, first = self.part("plans"), not self.part("plans").names
        part.show(names, lines.__getitem__)
        if first:
            name = next((name for name, chosen in self._listed.items() if chosen == self.chosen), "")
            part.choose(name, by_person=False)

    def _plan_line(self, plan: PlanSummary) -> Line:
        status = str(plan.status)
        meaning: Meaning = text.MEANING.get(status, "")
        # The id comes first: a name may be as long as it likes, and ids tell plans apart.
        return [(f"{self.marks.get(status, ' ')} ", meaning), (safe(plan.id), ""), (f"  {safe(plan.name, 60)}", "dim")]

    # ------------------------------------------------------------------------------------------ foot

    def say(self, sentence: str, meaning: Meaning = "") -> None:
        self._told = [(safe(sentence, 1000), meaning)]
        self._show_foot()

    def tell(self, error: OrchardError) -> None:
        hint = f" ({in_commands(error.hint)})" if error.hint else ""
        self.say(f"{error.message}{hint}", "bad")

    def _show_foot(self) -> None:
        over = self.seen is not None and self.seen.settled
        line = self._told or [*KEYS_FOOT, (text.LEAVE_ENDED if over else text.LEAVE_WATCH, "dim")]
        self._lines("foot", wrapped(line, max(20, self.size.width))[:FOOT_LINES])

    # ------------------------------------------------------------------------------------------ page

    def _restart_page(self) -> None:
        self._page_news.clear()
        self.run_worker(self._keep_page(), group="page", exclusive=True)

    async def _keep_page(self) -> None:
        """Show the page of the chosen job, and show it again when it is another."""
        row, tab = self._row, self.tab
        self.part("page").to_top()
        self._lines_of_tabs(tab, row)
        if self.chosen is None or row is None:
            self.part("page").show_lines([])
            return
        if row.job is None:
            self.part("page").show_lines(group_lines(tab, row.path))
            return
        place, plan = self.chosen
        job = JobId(row.job.id)
        try:
            if tab == "log":
                await self._follow_log(place, Log(place.pages.app, plan, job))
            while True:
                self.part("page").show_lines(await self._read_page(place, plan, job, tab))
                await self._page_news.wait()
                self._page_news.clear()
        except OrchardError as error:
            self.tell(error)

    def _lines_of_tabs(self, tab: Tab, row: Row | None) -> None:
        self.part("tabs").show_lines([tab_line(tab, row.job if row is not None else None)])

    async def _read_page(self, place: Place, plan: PlanId, job: JobId, tab: Tab) -> list[Line]:
        if tab == "diff":
            return await place.pages.read(diff_lines, place.pages.app, plan, job)
        look, width = Look(time.time(), self.marks), self.part("page").size.width
        return await place.pages.read(details_lines, place.pages.app, plan, job, look, width)

    async def _follow_log(self, place: Place, log: Log) -> None:
        page = self.part("page")
        page.sticks = True
        while True:
            page.show_lines(await place.pages.read(log.read))
            await self._grown(log)
            await asyncio.sleep(FRAME_SECONDS)

    async def _grown(self, log: Log) -> None:
        """Wait until the log may have grown, or the job is in another phase."""
        if log.growing is None:
            await self._page_news.wait()
            self._page_news.clear()
            return
        changes = Changes(log.growing)
        news = asyncio.ensure_future(self._page_news.wait())
        grown = asyncio.ensure_future(changes.wait())
        try:
            await asyncio.wait({news, grown}, return_when=asyncio.FIRST_COMPLETED)
            self._page_news.clear()
        finally:
            news.cancel()
            grown.cancel()
            changes.close()

    # ------------------------------------------------------------------------------------------ keys

    def on_rows_chosen(self, message: Rows.Chosen) -> None:
        if message.by_person:
            self._told = None
        if message.rows.id == "plans":
            self._choose_plan(message.rows.chosen or "")
        elif message.rows.id == "tree":
            job = self._job
            self._page_state = PageState.of(job) if job is not None else None
            self._restart_page()
        self._show_foot()

    def _choose_plan(self, name: str) -> None:
        chosen = self._listed.get(name)
        if chosen is not None and chosen != self.chosen:
            self.chosen, self.seen, self.folded = chosen, None, {}
            self._changed.set()

    def on_rows_sideways(self, message: Rows.Sideways) -> None:
        if message.rows.id == "tree" and (row := self._row) is not None and row.job is None:
            self._fold(row, folded=message.way < 0)

    def action_fold(self) -> None:
        row = self._row
        if row is not None and row.job is None:
            self._fold(row, folded=not self.folded.get(row.path, False))

    def _fold(self, row: Row, *, folded: bool) -> None:
        self.folded[row.path] = folded
        self._changed.set()

    def action_keys(self) -> None:
        self.push_screen(Keys(colored=self.colored))

    def action_tab(self, tab: Tab) -> None:
        self.tab = tab
        self._told = None
        self._restart_page()

    def action_list(self) -> None:
        plans = self.part("plans")
        if plans.display:
            plans.add_class("-hidden")
            plans.remove_class("-asked")
            self.part("tree").focus()
        else:
            plans.remove_class("-hidden")
            plans.add_class("-asked")
            plans.focus()

    def action_step(self, by: int) -> None:
        names = list(self._listed)
        now = next((number for number, name in enumerate(names) if self._listed[name] == self.chosen), 0)
        if 0 <= now + by < len(names):
            self.part("plans").choose(names[now + by], by_person=True)

    def action_ask(self, key: str) -> None:
        action = next(one for one in ACTIONS if one.key == key)
        if self.chosen is not None and self.seen is not None:
            self.run_worker(self._ask(*self.chosen, action, self._row), group="asking")

    async def _ask(self, place: Place, plan: PlanId, action: Action, row: Row | None) -> None:
        try:
            seen = await place.served.read(Picture(place.app, plan).read)  # what is on the screen may be older
            wish = action.wish(seen, row)
            operation = await place.served.read(_possible, place.app, plan, wish)
            if wish.question and not await self.push_screen_wait(Question(wish.question, colored=self.colored)):
                self.say(text.NOTHING_CHANGED)
                return
            self.say(f"{action.word.capitalize()} ...", "dim")
            ends = self._ends
            await place.ask(operation, plan, dict(wish.values))
            if ends == self._ends:  # that the plan is over by now is newer
                self.say(wish.done)
        except OrchardError as error:
            self.tell(error)


def _possible(app: App, plan: PlanId, wish: Wish) -> Operation:
    """The operation that is wished for; what can be seen to be impossible is refused before a person is asked."""
    from orchard.operations.table import OPERATIONS  # who only looks needs none

    operation = OPERATIONS[wish.operation]
    if wish.person:
        from orchard.surfaces.cli.consent import refuse_in_job  # brings what only few need

        refuse_in_job(app, "answer what a person is asked", f"orchard approve {plan}:{wish.job}")
    if operation.refuses is not None:
        operation.refuses(app.run_of(plan), wish.job)
    return operation


def watch_plans(terminal: Terminal, app: App, plan: PlanId | None, *, everywhere: bool) -> None:
    apps = [app, *(app.others() if everywhere else ())]
    marks = text.MARKS if speaks_utf8(sys.stdout) else text.ASCII_MARKS
    watcher = Watcher(apps, plan, colored=terminal.colors(sys.stdout), marks=marks)
    watcher.run()
