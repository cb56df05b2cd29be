"""What a plan asks of a session: MCP servers, and its model and effort where the agent offers to set them."""

import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from orchard.agents.protocol import McpServer, Settings
from orchard.text import one_line


def server_list(
    servers: Iterable[McpServer], *, http: bool, path: str | None, cannot: Callable[[str, str], None]
) -> list[Any]:
    """Those that the agent can use, as the package has them; for the others `cannot` hears the name and why."""
    from acp.schema import EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio

    found: list[Any] = []
    for server in servers:
        if server.command is not None:
            program = shutil.which(server.command, path=path)
            if program is None:
                cannot(server.name, f"could not start it, there is no program '{server.command}'")
                continue
            env = [EnvVariable(name=name, value=value) for name, value in server.env.items()]
            found.append(McpServerStdio(name=server.name, command=program, args=list(server.args), env=env))
        elif server.url is not None and http:
            headers = [HttpHeader(name=name, value=value) for name, value in server.headers.items()]
            found.append(HttpMcpServer(type="http", name=server.name, url=server.url, headers=headers))
        else:
            cannot(server.name, "takes only servers that are commands")
    return found


Json = dict[str, Any]
Ask = Callable[[str, Json], Awaitable[Json | None]]
Note = Callable[[str, str], None]

_SHOWN = 12


class Offer:
    def __init__(self) -> None:
        self._options: list[Json] = []

    def take(self, options: Any) -> None:
        """The agent tells them all, whenever one has changed."""
        if isinstance(options, list):
            self._options = [option for option in options if isinstance(option, dict)]

    @property
    def model(self) -> str:
        chosen = (self.find("model") or {}).get("currentValue")
        return one_line(chosen, 80) if isinstance(chosen, str) else ""

    def find(self, category: str) -> Json | None:
        """The option of a category: what agents name it, and the id of the option, is up to them."""
        return next((one for one in self._options if one.get("category") == category and _choices(one)), None)


def _choices(option: Json) -> list[tuple[str, str]]:
    def flat(rows: Any) -> Iterator[tuple[str, str]]:
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and isinstance(row.get("value"), str):
                yield row["value"], str(row.get("name", ""))
            elif isinstance(row, dict) and isinstance(row.get("options"), list):
                # A group of them.
                yield from flat([each for each in row["options"] if isinstance(each, dict) and "value" in each])

    return list(flat(option.get("options")))


async def apply_settings(offer: Offer, ask: Ask, name: str, model: str | None, settings: Settings, note: Note) -> None:
    if settings.max_turns is not None:
        note("setting", f"'max_turns: {settings.max_turns}' has no effect: the protocol has no such limit.")
    for setting, category, wanted in (("model", "model", model), ("effort", "thought_level", settings.effort)):
        if wanted is None:
            continue
        option = offer.find(category)
        if option is None:
            note("setting", f"'{setting}: {wanted}' has no effect: {name} does not offer to set it.")
            continue
        value = _matching(wanted, _choices(option))
        if value is None:
            there = ", ".join(one_line(each, 40) for each, _ in _choices(option)[:_SHOWN])
            note("setting", f"'{setting}: {wanted}' has no effect: {name} offers {there}.")
            continue
        if option.get("currentValue") != value:
            answer = await ask("session/set_config_option", {"configId": option.get("id"), "value": value})
            if answer is None:
                note("setting", f"'{setting}: {wanted}' has no effect: {name} would not set it.")
            else:
                offer.take(answer.get("configOptions"))


def _matching(wanted: str, choices: list[tuple[str, str]]) -> str | None:
    for value, _ in choices:
        if value == wanted:
            return value
    return next((value for value, name in choices if wanted.lower() in (value.lower(), name.lower())), None)
