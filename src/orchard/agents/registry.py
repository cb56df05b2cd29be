"""The table of agents: which there are, which of them can be used here, and what each is called.

Backends are imported when one of them is used.
"""

import os.path
import re
import shlex
from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from msgspec.structs import replace

from orchard.agents.cli import CliAgent, backend
from orchard.agents.definitions.catalog import SEE_AGENTS as SEE_AGENTS
from orchard.agents.definitions.catalog import Catalog, catalog
from orchard.agents.definitions.definition import Definition
from orchard.agents.environment import agent_environment, find_program, first_word
from orchard.agents.facts.cache import user_cache
from orchard.agents.facts.known import BUILTIN_LOGIN, AcpKnown, Known, Login, builtin_login, key_variable, program_login
from orchard.agents.facts.models import Models
from orchard.agents.facts.programs import known_of, of_program
from orchard.agents.permissions import Holds
from orchard.agents.protocol import Agent, McpServer
from orchard.config.layers import Config
from orchard.errors import Next, OrchardError, UsageError
from orchard.model.agent_rows import ACP, ACP_AGENTS, AGENTS, BACKENDS, BUILTIN, AgentRow
from orchard.model.events.event import Json
from orchard.model.plan import Tier
from orchard.text import did_you_mean, quoted


class NoAgent(UsageError):
    """No agent can be used here: none is installed, or none has credentials."""


class Agents:
    def __init__(self, config: Config, host: Mapping[str, str]) -> None:
        self.config, self.host = config, host
        self._models = Models(self, user_cache())

    @property
    def names(self) -> tuple[str, ...]:
        rows = self.config.agents.items()
        return (*AGENTS, *(name for name, row in rows if name not in AGENTS and row.instructions is None))

    def find(self, name: str | None) -> Agent:
        """The agent of a name, or the default one; what cannot be used is an error that says what to do.

        Looks at variables and files only, so it takes no time.
        """
        name = name or self.config.agent or self.default()
        if name is None:
            raise NoAgent(
                "No agent can be used: none is installed that also has credentials.",
                ("Run '", Next("list_agents"), "' to see how to install one or log in."),
            )
        self._check_usable(name)
        return self._make(name)

    def default(self) -> str | None:
        """The agent that works get which name none, where the configuration names none either.

        One that speaks the protocol is the last to be chosen, and only where its login is certain: its program may be
        another one of the same name.
        """
        spoken = [name for name in self.names if isinstance(self.known(name), AcpKnown)]
        others = [name for name in self.names if name not in spoken]
        for names, wanted in ((others, "yes"), (others, "unknown"), (spoken, "yes")):
            for name in names:
                if self.missing(name) is None and self.login(name).state == wanted:
                    return name
        return None

    def listed(self) -> list[Json]:
        """Every agent that has a name: whether it can be used here, why not, and which one is the default.

        Of those that speak the protocol there are too many to tell of one that is not there.
        """
        default = self.config.agent or self.default()
        found = []
        for name in self.names:
            missing, known = self.missing(name), self.known(name)
            if missing is not None and isinstance(known, AcpKnown) and name != default:
                continue
            why = missing or self._no_login(name)
            found.append({"name": name, "usable": why is None, "default": name == default, "why_not": why})
        return found

    def any_usable(self) -> bool:
        """Whether there is an agent here that can be asked; nobody after the first is looked at."""
        return any(self.missing(name) is None and self._no_login(name) is None for name in self.names)

    def catalog(self, repository: Iterable[Definition]) -> Catalog:
        """These definitions of a repository's among the user's own, and what names mean then."""
        return catalog(self.config, self.host, self.names, repository)

    def knows(self, agent: str, model: str) -> bool:
        """Whether an agent is known to have a model; where nothing could be found out, it is not. For a thread."""
        return self._models.knows(agent, model)

    def servers(self, names: Iterable[str]) -> tuple[McpServer, ...]:
        """The MCP servers that are named, and those that every agent gets; `${NAME}` in their values is filled in."""
        always = (name for name, row in self.config.mcp_servers.items() if row.always)
        return tuple(self._server(name) for name in dict.fromkeys((*names, *always)))

    def model_for(self, agent: str, model: str | None, tier: Tier | None) -> str | None:
        """The model that a plan means for an agent; None: the agent's own choice. One that is not known is an error.

        May ask the agent's program or its provider, so it belongs into a thread.
        """
        if model is not None:
            self._models.check(agent, model)
        return self._models.resolve(agent, model, tier)

    # ------------------------------------------------------------------------------- what is usable

    def row(self, name: str) -> AgentRow:
        return self.config.agents.get(name) or AgentRow()

    def known(self, name: str) -> Known | None:
        """What is known of an agent that is a program of others; None: it is ours, or the user's own.

        Where the user's row says what is started, that is his own: nothing is known of it, whatever its name.
        """
        if name in ACP_AGENTS and self.row(name).command is not None:
            return None
        return known_of(name)

    def holds(self, name: str) -> Holds:
        """How far an agent can be held to what it may use, whether it is installed or not."""
        known = self.known(name)
        if name == BUILTIN:
            return "calls"
        if isinstance(known, AcpKnown) or name.startswith(ACP) or (self.row(name).command or "").startswith(ACP):
            return "asked"
        return known.holds if known is not None else "nothing"

    def missing(self, name: str) -> str | None:
        """Why the agent is not there, as the end of a sentence; None: it is."""
        if name == BUILTIN:
            package = self.config.builtin.provider
            return f"the Python package '{package}' is not installed" if find_spec(package) is None else None
        program = self.program(name)
        if not program:
            return f"{quoted(self.row(name).command or name)} is not a command line"
        return f"the program {quoted(program)} is not installed" if self.path_of(name) is None else None

    def program(self, name: str) -> str:
        row, known = self.row(name), self.known(name)
        if isinstance(known, AcpKnown):
            path = self.host.get("PATH", "")
            names = (known.program, *known.other_programs)
            return next((one for one in names if find_program(one, path) is not None), known.program)
        if known is not None:
            return row.command or known.program
        return first_word((row.command or name).removeprefix(ACP))

    def path_of(self, name: str) -> str | None:
        program = self.program(name)
        return find_program(program, self.host.get("PATH", "")) if program else None

    def login(self, name: str) -> Login:
        if name == BUILTIN:
            return builtin_login(self.config.builtin, {**self.host, **self.config.builtin.env})
        known = self.known(name)
        if known is not None:
            # Not only what it gets to see: whoever has a login in an odd place names it in `env` or `pass_env`.
            return program_login(known, {**self.host, **self.row(name).env}, self.row(name))
        return Login("unknown", "it looks after its login itself")

    def environment(self, name: str) -> dict[str, str]:
        """What a program of this agent sees when it is asked something about itself."""
        row, known = self.row(name), self.known(name)
        mine = known.seen if known is not None else ()
        return {**agent_environment(self.host, (*mine, *row.pass_env)), **row.env}

    def install_command(self, name: str) -> str:
        if name == BUILTIN:
            return f"pip install {self.config.builtin.provider}"
        known = self.known(name)
        return known.install if known is not None and self.row(name).command is None else ""

    def how_to_install(self, name: str) -> str:
        if command := self.install_command(name):
            return f"To install it: {command}"
        if name.startswith(ACP):
            return "Write 'acp:' and a command that is on your PATH, such as 'acp:copilot --acp'."
        return f"Install its program, or correct 'command' in [agents.{name}]."

    def how_to_log_in(self, name: str) -> str:
        if name == BUILTIN:
            return BUILTIN_LOGIN.format(variable=key_variable(self.config.builtin))
        known = self.known(name)
        return known.login if known is not None else ""

    def _check_usable(self, name: str) -> None:
        if name not in self.names and not name.startswith(ACP):
            raise UsageError(f"There is no agent {quoted(name)}{did_you_mean(name, self.names) or '.'}", SEE_AGENTS)
        missing = self.missing(name)
        if missing is not None:
            raise NoAgent(f"Agent {quoted(name)} cannot be used: {missing}.", self.how_to_install(name))
        without = self._no_login(name)
        if without is not None:
            raise NoAgent(f"Agent {quoted(name)} has no credentials: {without}.", self.how_to_log_in(name))

    def _no_login(self, name: str) -> str | None:
        """Why an agent cannot log in; None: it can, or it may, or it needs no login."""
        login, known = self.login(name), self.known(name)
        return login.how if login.state == "no" and not (known is not None and known.anonymous) else None

    # ------------------------------------------------------------------------------------- making

    def _make(self, name: str) -> Agent:
        row, known = self.row(name), self.known(name)
        if name == BUILTIN:
            from orchard.agents.builtin.agent import BuiltinAgent

            return BuiltinAgent(self.config.builtin)
        if name in BACKENDS:
            return CliAgent(backend(name), row)
        if isinstance(known, AcpKnown):
            # The program that was found here, so that the folder it works in has no say in which one that is.
            command = shlex.join((self.path_of(name) or known.program, *known.arguments))
            variables, traits = known.seen, known.traits
            meant: Known | None = known
        elif name.startswith(ACP) or (row.command or "").startswith(ACP):
            command = (row.command or name).removeprefix(ACP).strip()
            meant, traits = self._meant_by(command), None
            variables = meant.seen if meant is not None else ()
        else:
            from orchard.agents.backends.custom import Custom

            return CliAgent(Custom(name), row)
        from orchard.agents.acp.agent import AcpAgent

        seen = replace(row, command=None, pass_env=(*variables, *row.pass_env))
        return AcpAgent(command, seen, name=name, traits=traits, known=meant)

    def _meant_by(self, command: str) -> Known | None:
        """The agent that a program behind the protocol speaks for: it may see the variables of that one.

        Anybody can give a file the name of a known program. What counts is the one that the user's own PATH finds.
        """
        program = first_word(command)
        name = os.path.basename(program)  # noqa: PTH119 - a name, not a path
        known = of_program(name)
        if known is None:
            return None
        path = self.host.get("PATH", "")
        own, meant = find_program(name, path), find_program(program, path)
        same = own is not None and meant is not None and os.path.realpath(own) == os.path.realpath(meant)
        return known if same else None

    def _server(self, name: str) -> McpServer:
        row = self.config.mcp_servers.get(name)
        if row is None:
            known = self.config.mcp_servers
            hint = f"Servers are rows of the configuration: [mcp_servers.{name}]." if not known else None
            raise UsageError(f"There is no MCP server {quoted(name)}{did_you_mean(name, known)}", hint)
        env, headers = self._filled(name, row.env), self._filled(name, row.headers)
        return McpServer(name, row.command, row.args, env, row.url, headers)

    def _filled(self, server: str, values: Mapping[str, str]) -> dict[str, str]:
        """Values in which `${NAME}` stands for a variable of the user's."""

        def value(found: re.Match[str]) -> str:
            if found[1] not in self.host:
                raise OrchardError(
                    f"MCP server '{server}' needs the variable {found[1]}, which is not set.",
                    f"Set it, or change [mcp_servers.{server}].",
                )
            return self.host[found[1]]

        return {name: re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", value, text) for name, text in values.items()}
