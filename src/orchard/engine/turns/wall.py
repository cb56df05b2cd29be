"""The wall around the programs of an agent's turn: folders of its own, a home with its login, and a door to its model.

Whatever network the plan leaves to its other programs, an agent reaches its model, what the work allows it and what
the user's own settings name. A key that our proxy adds is in none of its variables.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.agents.endpoints import Outgoing, Ways
from orchard.agents.home import make_home, places_of
from orchard.agents.protocol import Agent, McpServer, Settings
from orchard.engine.context import Context
from orchard.model.events.plans import AgentNoted
from orchard.process.launcher import Launcher
from orchard.process.proxy.routes import BaseUrl, Key, Route


class Enclosed(Struct, frozen=True):
    """How the programs of a turn are started, and what they are told otherwise than without a wall."""

    launcher: Launcher
    settings: Settings
    replaced: Mapping[str, str] = field(default_factory=dict)
    routes: Mapping[str, str] = field(default_factory=dict)


class Seat(Struct, frozen=True):
    """Where an agent works, and with what."""

    agent: Agent
    folder: Path
    private: Path
    scratch: Path
    env: Mapping[str, str]


@asynccontextmanager
async def enclosed(context: Context, seat: Seat, settings: Settings) -> AsyncIterator[Enclosed]:
    enclosure = context.workspace.enclosure
    if not context.workspace.is_open:  # a conflict is resolved in a folder apart
        await enclosure.build(None)
    launcher = context.workspace.launcher
    if launcher.wall is None:
        yield Enclosed(launcher, settings)
        return
    agent = seat.agent
    ways = agent.ways(seat.env) if isinstance(agent, Outgoing) else Ways(env=seat.env)
    shut = launcher.wall.policy.network == "off"
    launcher = _furnished(context, seat, settings, launcher, ways)
    servers = _routed(settings.mcp_servers) if not agent.is_within else {}
    if ways.hosts is None and not shut:
        _tell_unknown(context, agent.name)
        allowed = enclosure.allowed(settings.allowed_urls, ways.own)
    else:
        allowed = enclosure.allowed((*(ways.hosts or ()), *settings.allowed_urls), ways.own, reach="listed")
    where = (context.number, context.phase, context.subtask)
    routes = (*(one.route for one in ways.keyed), *servers.values())
    assert launcher.wall is not None
    async with enclosure.through(launcher, launcher.wall, where, allowed, routes) as (opened, base_url):
        assert base_url is not None
        found = tuple(_by_door(server, servers.get(server.name), base_url) for server in settings.mcp_servers)
        settings = replace(settings, mcp_servers=found)
        yield Enclosed(opened, settings, ways.replaced(base_url), ways.routes(base_url))


def _furnished(context: Context, seat: Seat, settings: Settings, launcher: Launcher, ways: Ways) -> Launcher:
    """The launcher with what an agent needs to see and to write to, and nothing of others."""
    assert launcher.wall is not None
    home, socket = seat.private / "home", context.engine.job_tokens.socket
    own = make_home(ways, home)
    folders = [path for path in settings.allowed_folders if path.is_dir()]
    context.engine.sandboxes.furnish(home, launcher.wall.level, folders)
    wall = launcher.wall.opened(
        writable=(seat.folder, seat.private, seat.scratch, *own, *folders),
        exposed=(*(places_of(ways.program) if ways.program is not None else ()), *_own_log(context)),
        sockets=() if socket is None else (Path(socket),),
        home=home,
    )
    policy = replace(wall.policy, network="on")
    if settings.tools.only_reads:
        others = tuple(path for path in policy.writable if path != seat.folder)
        policy = replace(policy, writable=others, exposed=(*policy.exposed, seat.folder))
    return launcher.behind(replace(wall, policy=policy))


def _own_log(context: Context) -> tuple[Path, ...]:
    """What programs of the phase printed: an agent that heals is told to read it there."""
    return (context.log,) if context.log.is_file() else ()


def _tell_unknown(context: Context, agent: str) -> None:
    """Once a plan: that an agent reaches more than its model."""
    told = (context.run.id, f"endpoints of {agent}")
    if told in context.world.told_of_settings:
        return
    context.world.told_of_settings.add(told)
    line = f"[agents.{agent}] endpoints = [...]" if ":" not in agent else "'endpoints' in a row [agents.NAME] for it"
    message = f"Where {agent} finds its model is not known, so it reaches whatever is public; {line} narrows that."
    context.record(AgentNoted(*context.now, agent, "setting", message, context.subtask))


def _routed(servers: tuple[McpServer, ...]) -> dict[str, Route]:
    """Ways to MCP servers at addresses: through the door, which adds what they know us by."""
    found = {}
    for number, server in enumerate(server for server in servers if server.url is not None):
        parts = urlsplit(server.url or "")
        shown = next((value for name, value in server.headers.items() if name.lower() == "authorization"), "")
        try:
            found[server.name] = Route(f"mcp-{number}", f"{parts.scheme}://{parts.netloc}", words="", key=Key(shown))
        except ValueError:
            continue  # no address that a request could go to: the agent says so
    return found


def _by_door(server: McpServer, route: Route | None, base_url: BaseUrl) -> McpServer:
    if route is None or server.url is None:
        return server
    rest = server.url.partition("://")[2].partition("/")[2]
    headers = {name: value for name, value in server.headers.items() if name.lower() != "authorization"}
    return replace(server, url=f"{base_url(route.name)}/{rest}", headers=headers)
