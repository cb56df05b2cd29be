"""What holds for every program that is an agent, each claim against the real program and a scripted model.

class TestClaude(Claims):      the claims, for one program
    ...                        the few things in which it differs
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import anyio
import pytest

from orchard.agents.cli import Backend, CliAgent
from orchard.agents.protocol import Called, McpServer, Reason, Result, Settings, Task, Used
from orchard.model.agent_rows import AgentRow
from orchard.model.permissions import made
from orchard.model.usage import Usage
from tests.agents.conftest import Desk, Ear
from tests.agents.llm import Asked, Call, Hang, Mcp, Reply, Say, Script, ScriptedLlm, Shell, steps
from tests.agents.programs import program
from tests.agents.turns import (
    CANARIES,
    cancel_while,
    cancel_while_hanging,
    everything_at_an_address,
    files,
    run,
    seen_by,
)

WRITES = steps(Shell("printf hello > hello.txt"), Say("Wrote hello.txt."))
NOWHERE = "http://127.0.0.1:9"
LONG = "".join(f"Rule {number}: be kind.\n" for number in range(16_000)) + "The last rule."
UNKNOWN_SESSION = "2d39b517-4e41-42f0-ad7d-744862a5bb83"


def _asks_the_server(asked: Asked) -> Reply:
    """Calls two tools of the server. Codex offers them only once the server is up, and does not wait for that."""
    told = " ".join(asked.results)
    if asked.wire == "responses" and "mcp__every" not in asked.tools:
        return Shell("sleep 0.5")
    if len(asked.results) > 40:
        return Say("Gave up.")
    if "are you there" not in told:
        return Mcp("every", "echo", {"message": "are you there"})
    return Mcp("every", "get-env") if "seen by the server" not in told else Say("It is.")


class Claims(ABC):
    """All of them; a program says how it is reached and what it cannot do."""

    name: ClassVar[str]
    model: ClassVar[str]
    most_requests: ClassVar[int]
    """That are made for one answer of a model that always fails."""
    unsupported: ClassVar[frozenset[str]] = frozenset({"allowed_urls"})
    """Settings that have no effect."""
    counts_requests: ClassVar[bool] = True
    untold_requests: ClassVar[int] = 0
    """That it makes beside a turn, and counts only the tokens of."""
    other_model: ClassVar[str] = "claude-opus-4-5"
    """One that the configuration does not name; what is before a slash is not sent."""

    write_tool: ClassVar[tuple[str, str, str] | None]
    """Its own tool that writes a file, and what that calls the path and the content; None: it writes by commands."""
    shell_tool: ClassVar[tuple[str, dict[str, object]]]
    """Its own tool that runs a command, which a command is put into."""

    @abstractmethod
    def backend(self) -> Backend:
        """Under test."""

    @abstractmethod
    def env(self, url: str) -> dict[str, str]:
        """The user's variables by which the program calls the model at an address, with a key."""

    @abstractmethod
    def effort_of(self, asked: Asked) -> object:
        """The effort that a request asks for."""

    def agent(self) -> CliAgent:
        """Under test, with a model from the configuration."""
        return CliAgent(self.backend(), AgentRow(model=self.model))

    def task(self, desk: Desk, url: str, instructions: str = "Do what the script says.", **more: object) -> Task:
        """A task for the real program."""
        path = program(self.name).search_path
        return desk.task(instructions, path=path, env=self.env(url), **more)  # type: ignore[arg-type]

    async def turn(self, desk: Desk, ear: Ear, llm: ScriptedLlm, text: str = "Do it.", **more: object) -> Result:
        """One turn of the real program."""
        return await run(self.agent(), self.task(desk, llm.url, text, **more), ear)

    def hostile(self, desk: Desk) -> Script:
        """A model that calls what it was never offered: it writes a file, by a tool and by a command."""
        command = f"printf x > {desk.folder / 'by-command.txt'}"
        name, more = self.shell_tool
        calls = [Call(name, {key: command if value == "COMMAND" else value for key, value in more.items()})]
        if self.write_tool is not None:
            tool, path, content = self.write_tool
            calls.insert(0, Call(tool, {path: str(desk.folder / "by-tool.txt"), content: "x"}))
        return steps(*calls, Say("Tried."))

    @pytest.mark.parametrize("tools", ["read-only", "edit", "all"])
    async def test_a_model_that_calls_what_it_may_not_use_does_not_get_it(
        self, desk: Desk, ear: Ear, tools: str
    ) -> None:
        with ScriptedLlm(self.hostile(desk)) as llm:
            result = await self.turn(desk, ear, llm, settings=Settings(tools=made(tools)))
            offered = llm.offered()

        left = files(desk.folder) & {"by-tool.txt", "by-command.txt"}
        by_tool = {"by-tool.txt"} if self.write_tool is not None else set()
        by_command = {"by-command.txt"} if tools == "all" or (tools == "edit" and not by_tool) else set()
        assert left == (by_command | by_tool if tools != "read-only" else set()), (result, offered, ear.told)

    async def test_tools_can_be_taken_away_one_by_one(self, desk: Desk, ear: Ear) -> None:
        if self.write_tool is None:
            pytest.skip("it can only be kept from writing as a whole")
        with ScriptedLlm(self.hostile(desk)) as llm:
            await self.turn(desk, ear, llm, settings=Settings(tools=made(deny=["bash"])))

        assert files(desk.folder) & {"by-tool.txt", "by-command.txt"} == {"by-tool.txt"}

    def same_usage(self, told: Usage, counted: Usage) -> None:
        """What was told is what was handed out, to the token."""
        assert (told.input, told.cached, told.cache_writes, told.output) == (
            counted.input, counted.cached, counted.cache_writes, counted.output,
        )  # fmt: skip
        assert told.model == counted.model == self.model.rpartition("/")[2]
        if self.counts_requests:
            assert told.requests <= counted.requests <= told.requests + self.untold_requests

    def keeps_to_its_folder(self, desk: Desk, session: str) -> None:
        """Its settings and sessions are in the private folder, and the user's home is as it was."""
        assert files(desk.home) == set()
        assert any(name.endswith(f"{session}.jsonl") for name in files(desk.private))

    async def fails(self, status: int, reason: Reason, desk: Desk, ear: Ear) -> None:
        """An answer of the model's owner has its own reason, soon."""
        with ScriptedLlm() as llm:
            llm.fail(status, retry_after=0.1)
            result = await self.turn(desk, ear, llm)

            assert result.reason == reason, result
            assert result.message
            assert 1 <= len(llm.requests) <= self.most_requests
        assert ear.of(Used) == []

    # ------------------------------------------------------------------------- the claims

    async def test_it_writes_a_file_and_tells_its_session_and_exactly_what_it_used(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(WRITES) as llm:
            result = await self.turn(desk, ear, llm)

            assert result.reason == "done", result
            assert result.text == "Wrote hello.txt."
            self.same_usage(ear.usage, llm.usage())
        assert (desk.folder / "hello.txt").read_text() == "hello"
        assert files(desk.folder) == {"hello.txt"}
        assert ear.session is not None
        assert ear.session == result.session
        assert any("printf hello > hello.txt" in call.about for call in ear.of(Called))
        assert "Wrote hello.txt." in ear.text
        self.keeps_to_its_folder(desk, ear.session)

    async def test_a_wrong_key_is_nobody_logged_in(self, desk: Desk, ear: Ear) -> None:
        await self.fails(401, "not-logged-in", desk, ear)

    async def test_too_many_requests_are_a_rate_limit(self, desk: Desk, ear: Ear) -> None:
        await self.fails(429, "rate-limit", desk, ear)

    async def test_an_error_of_the_server_is_an_overload(self, desk: Desk, ear: Ear) -> None:
        await self.fails(500, "overloaded", desk, ear)

    async def test_cancelled_while_it_waits_for_the_model_it_writes_nothing_later(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(steps(Hang(Shell("printf late > late.txt")), Say("Done."))) as llm:
            await cancel_while_hanging(self.agent(), self.task(desk, llm.url), ear, llm)
            await anyio.sleep(1)

        assert files(desk.folder) == set()

    async def test_cancelled_while_it_runs_a_command_the_command_ends_with_it(self, desk: Desk, ear: Ear) -> None:
        begun = desk.folder / "begun"
        with ScriptedLlm(steps(Shell("touch begun; sleep 3; touch late"), Say("Done."))) as llm:
            await cancel_while(self.agent(), self.task(desk, llm.url), ear, begun.exists)
            await anyio.sleep(3.5)

        assert files(desk.folder) == {"begun"}

    async def test_a_session_is_gone_on_with_and_only_the_new_turn_is_counted(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(WRITES) as llm:
            first = await self.turn(desk, ear, llm, "Begin.")
        again = Ear()
        with ScriptedLlm(steps(Shell("printf more > more.txt"), Say("Went on."))) as llm:
            second = await self.turn(desk, again, llm, "Go on.", session=first.session)

            assert second.reason == "done", second
            assert second.session == first.session
            prompts = " ".join(llm.requests[-1].prompts)
            assert "Begin." in prompts
            assert "Go on." in prompts
            self.same_usage(again.usage, llm.usage())
        assert files(desk.folder) == {"hello.txt", "more.txt"}

    @pytest.mark.parametrize("session", [UNKNOWN_SESSION, "no id at all"])
    async def test_a_session_that_it_does_not_know_is_lost(self, session: str, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm() as llm:
            result = await self.turn(desk, ear, llm, session=session)

            assert result.reason == "session-lost", result
            assert result.session is None
            assert llm.requests == []

    async def test_instructions_that_are_long_arrive_whole(self, desk: Desk, ear: Ear) -> None:
        assert len(LONG) > 300_000
        with ScriptedLlm() as llm:
            result = await self.turn(desk, ear, llm, LONG)

            assert result.reason == "done", result
            assert any(LONG in prompt for prompt in llm.requests[0].prompts)

    async def test_settings_are_its_own_flags_and_what_has_none_is_told(self, desk: Desk, ear: Ear) -> None:
        other = desk.home.parent / "other"
        other.mkdir()
        settings = Settings(
            model=self.other_model, effort="low", max_turns=1, allowed_folders=(other,), allowed_urls=("example.org",)
        )
        with ScriptedLlm(
            steps(Shell("printf a > a"), Shell("printf b > b"), Shell("printf c > c"), Say("Done."))
        ) as llm:
            result = await self.turn(desk, ear, llm, settings=settings)

            assert llm.requests[0].model == self.other_model.rpartition("/")[2]
            if "effort" not in self.unsupported:
                assert self.effort_of(llm.requests[0]) == "low"
        assert result.reason == ("done" if "max_turns" in self.unsupported else "max-turns"), result
        noted = {note.split("'")[1].partition(":")[0] for note in ear.notes("setting")}
        assert noted == self.unsupported

    async def test_it_can_call_the_tools_of_an_mcp_server(self, desk: Desk, ear: Ear) -> None:
        everything = program("server-everything")
        own = {"PATH": everything.search_path, "ORCHARD_PLANTED": "seen by the server"}
        server = McpServer("every", str(everything.path), ("stdio",), own)
        with ScriptedLlm(_asks_the_server) as llm:
            result = await self.turn(desk, ear, llm, settings=Settings(mcp_servers=(server,)))

            assert result.reason == "done", result
            assert any("are you there" in told for told in llm.requests[-1].results), llm.requests[-1].results
            assert any("seen by the server" in told for told in llm.requests[-1].results)
        assert any("every" in call.tool and "echo" in call.tool for call in ear.of(Called))

    async def test_its_environment_holds_nothing_of_the_users_that_is_not_named(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(steps(Shell("env > env.txt"), Say("Done."))) as llm:
            seen = seen_by(self.agent(), self.env(llm.url))
            assert set(self.env(llm.url)) <= set(seen)
            result = await run(self.agent(), desk.task(path=program(self.name).search_path, env=seen), ear)

        assert result.reason == "done", result
        told = (desk.folder / "env.txt").read_text()
        assert "PATH=" in told
        assert "yellow" not in told
        assert not any(f"{name}=" in told for name in CANARIES)


class OverHttp(Claims):
    """What also holds for programs that take MCP servers at an address."""

    async def test_it_can_call_the_tools_of_a_server_at_an_address(self, desk: Desk, ear: Ear) -> None:
        with everything_at_an_address() as url, ScriptedLlm(_asks_the_server) as llm:
            server = McpServer("every", url=url, headers={"X-Planted": "yes"})
            result = await self.turn(desk, ear, llm, settings=Settings(mcp_servers=(server,)))

            assert result.reason == "done", result
            assert any("are you there" in told for told in llm.requests[-1].results), llm.requests[-1].results
