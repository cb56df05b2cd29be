"""`orchard help`: commands, and topics that no single command is about."""

from collections.abc import Callable, Mapping

import click

from orchard.errors import UsageError
from orchard.surfaces.cli.group import cli, verb
from orchard.surfaces.cli.render.lines import Line, safe_lines
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.cli.verbs import VERBS


def _planning() -> str:
    from orchard.agents.prompts.plan import planning_guide  # brings pydantic

    return planning_guide()


TOPICS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "planning": ("what makes a plan good, its format, and examples", _planning),
}


def _known(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in (*TOPICS, *VERBS) if name.startswith(incomplete)]


@verb("help", examples="orchard help planning\norchard help run")
@click.argument("topic", metavar="[TOPIC]", required=False, shell_complete=_known)
def help_about(terminal: Terminal, topic: str | None) -> None:
    if topic is None:
        rows = "\n".join(f"  {name}  {about}" for name, (about, _) in TOPICS.items())
        explained = f"{_of_command(None)}\n\nTopics ('orchard help TOPIC'):\n{rows}"
    elif topic in TOPICS:
        explained = TOPICS[topic][1]()
    elif topic in VERBS:
        explained = _of_command(topic)
    else:
        raise UsageError(f"There is no help about '{topic}'{_guess(topic)}", f"Topics: {', '.join(TOPICS)}")
    lines: list[Line] = [[(row, "")] for row in safe_lines(explained, 10_000)]
    terminal.answer({"topic": topic, "text": explained}, *lines)


def _of_command(name: str | None) -> str:
    whole = click.Context(cli, info_name="orchard", obj=Terminal(), **cli.context_settings)
    command = cli if name is None else cli.get_command(whole, name)
    assert command is not None
    return command.get_help(whole if name is None else click.Context(command, whole, info_name=name))


def _guess(topic: str) -> str:
    from orchard.text import did_you_mean

    return did_you_mean(topic, [*TOPICS, *VERBS]) or "."
