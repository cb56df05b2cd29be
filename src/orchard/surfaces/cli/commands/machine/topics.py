"""`orchard help`: commands, the guide to planning, and every page of the documentation."""

from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from orchard.errors import UsageError
from orchard.surfaces.cli.group import cli, verb
from orchard.surfaces.cli.render.lines import Line, safe_lines
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.cli.verbs import VERBS

PAGE = ".md"
"""How a page is named where a command or the guide has the same name: `orchard help agents.md`."""


def _planning() -> str:
    from orchard.agents.prompts.plan import planning_guide  # brings pydantic

    return planning_guide()


TOPICS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "planning": ("what makes a plan good, its format, and examples; agents are given it", _planning),
}


def _known(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    taken = [*TOPICS, *VERBS]
    names = [name + PAGE if name in taken else name for name in pages()]
    return [name for name in (*taken, *names) if name.startswith(incomplete)]


@verb("help", examples="orchard help plan-file\norchard help run\norchard help planning\norchard help agents.md")
@click.argument("topic", metavar="[TOPIC]", required=False, shell_complete=_known)
def help_about(terminal: Terminal, topic: str | None) -> None:
    """TOPIC is a command, or a page of the documentation, which comes with Orchard. If a command and a page have the
    same name, name the page by its file: agents.md.
    """
    name = "" if topic is None else topic.removeprefix("docs/")
    stem = name.removesuffix(PAGE)
    if topic is None:
        shown = f"{_of_command(None)}\n\n{_list_of_topics()}"
    elif name in TOPICS:
        shown = TOPICS[name][1]()
    elif name in VERBS:
        more = f"\n\nThe page about it: orchard help {name}{PAGE}" if name in pages() else ""
        shown = _of_command(name) + more
    elif stem in pages():
        shown = pages()[stem].read_text("utf-8")
    else:
        raise UsageError(f"There is no help about '{topic}'{_guess(name)}", "orchard help")
    if terminal.json:
        terminal.data({"topic": topic, "text": shown})
    elif (stem in pages() and name not in VERBS) and terminal.live:
        terminal.page(_drawn(shown, terminal))
    else:
        lines: list[Line] = [[(row, "")] for row in safe_lines(shown, 10_000)]
        terminal.show(*lines)


def pages() -> Mapping[str, Traversable]:
    """The pages by name, as they were installed; in a clone, those of the clone."""
    for folder in (files("orchard").joinpath("docs"), Path(__file__).parents[6] / "docs"):
        found = {one.name.removesuffix(PAGE): one for one in _in(folder) if one.name.endswith(PAGE)}
        if found:
            return dict(sorted(found.items()))
    return {}


def _in(folder: Traversable) -> Iterator[Traversable]:
    return folder.iterdir() if folder.is_dir() else iter(())


def _list_of_topics() -> str:
    rows = [(name, about) for name, (about, _) in TOPICS.items()]
    taken = [*TOPICS, *VERBS]
    for name, page in pages().items():
        title = page.read_text("utf-8").split("\n", 1)[0].removeprefix("# ")
        rows.append((name + PAGE if name in taken else name, title))
    width = max(len(name) for name, _ in rows)
    return "\n".join(["Topics ('orchard help TOPIC'):", *(f"  {name.ljust(width)}  {about}" for name, about in rows)])


def _drawn(page: str, terminal: Terminal) -> str:
    """A page as a terminal shows it: headings, tables and code."""
    from rich.console import Console
    from rich.markdown import Markdown  # with its parser: 60 ms

    console = Console(no_color=not terminal.colors_wanted, width=min(Console().width, 110), force_terminal=True)
    with console.capture() as shown:
        console.print(Markdown(page, hyperlinks=False))
    return shown.get()


def _of_command(name: str | None) -> str:
    whole = click.Context(cli, info_name="orchard", obj=Terminal(), **cli.context_settings)
    command = cli if name is None else cli.get_command(whole, name)
    assert command is not None
    return command.get_help(whole if name is None else click.Context(command, whole, info_name=name))


def _guess(topic: str) -> str:
    from orchard.text import did_you_mean

    return did_you_mean(topic, [*TOPICS, *VERBS, *pages()]) or "."
