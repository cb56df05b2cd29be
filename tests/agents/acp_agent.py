"""A small agent that speaks the Agent Client Protocol, and behaves as it is told: `acp_agent.py BEHAVIOUR [VALUE]`.

It keeps its sessions in files of the folder that the variable SESSIONS names, and writes every message that it gets
to the file that RECORD names.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]

BEHAVIOUR = sys.argv[1] if len(sys.argv) > 1 else "write"
VALUE = sys.argv[2] if len(sys.argv) > 2 else ""
ONCE = [
    {"optionId": "yes-for-ever", "name": "Always", "kind": "allow_always"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def say(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def hear() -> Json:
    """The next message; the end of them is the end of us."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    if "RECORD" in os.environ:
        with Path(os.environ["RECORD"]).open("a") as record:
            record.write(line)
    message: Json = json.loads(line)
    return message


def answer(request: Json, result: Any) -> None:
    say({"id": request["id"], "result": result})


def fail(request: Json, code: int, message: str, data: Any = None) -> None:
    say({"id": request["id"], "error": {"code": code, "message": message, "data": data}})


class Agent:
    """One session at a time."""

    def __init__(self) -> None:
        self.session, self.cwd, self.asked = "", Path(), 0
        self.canceled = False

    def update(self, **update: Any) -> None:
        say({"method": "session/update", "params": {"sessionId": self.session, "update": update}})

    def chunk(self, text: str, kind: str = "agent_message_chunk", **more: Any) -> None:
        self.update(sessionUpdate=kind, content={"type": "text", "text": text}, **more)

    def ask(self, call: Json, options: list[Json] | None = None) -> Json:
        """Ask for permission, and wait for the answer."""
        self.asked += 1
        number = f"q{self.asked}"
        params = {"sessionId": self.session, "toolCall": call, "options": ONCE if options is None else options}
        say({"id": number, "method": "session/request_permission", "params": params})
        return self.wait_for(number)

    def wait_for(self, number: str) -> Json:
        while True:
            message = hear()
            if message.get("method") == "session/cancel":
                self.canceled = True
            if message.get("id") == number:
                return message

    def wait_for_cancel(self) -> None:
        while not self.canceled:
            self.canceled = hear().get("method") == "session/cancel"

    @property
    def memory(self) -> Path:
        return Path(os.environ.get("SESSIONS", "."), f"{self.session}.session")


CONFIG = [
    {
        "type": "select", "id": "m", "name": "Model", "category": "model", "currentValue": "small",
        "options": [{"value": "small", "name": "Small one"}, {"value": "large", "name": "Large One"}],
    },
    {
        "type": "select", "id": "e", "name": "Effort", "category": "thought_level", "currentValue": "low",
        "options": [
            {"group": "g", "name": "G", "options": [{"value": "low", "name": ""}, {"value": "high", "name": ""}]}
        ],
    },
]  # fmt: skip


def initialize(agent: Agent, request: Json) -> None:
    if BEHAVIOUR == "never-initialize":
        time.sleep(600)
    can: Json = {"loadSession": BEHAVIOUR == "load", "mcpCapabilities": {"http": BEHAVIOUR == "http"}}
    if BEHAVIOUR in ("resume", "lost", "folders"):
        can["sessionCapabilities"] = {"resume": {}, "additionalDirectories": {}}
    methods = [{"id": "my-api-key", "name": "By key"}] if BEHAVIOUR == "key" else []
    version = int(VALUE) if BEHAVIOUR == "version" else 1
    answer(request, {"protocolVersion": version, "agentCapabilities": can, "authMethods": methods})


LOGGED_IN = BEHAVIOUR not in ("key", "login")


def authenticate(agent: Agent, request: Json) -> None:
    global LOGGED_IN  # noqa: PLW0603 - one process is one login
    LOGGED_IN = request["params"]["methodId"] == "my-api-key"
    answer(request, {})


def new(agent: Agent, request: Json) -> None:
    if not LOGGED_IN:
        fail(request, -32000, "Authentication required", {"details": "run `agent login`"})
        return
    agent.session, agent.cwd = f"s-{os.getpid()}", Path(request["params"]["cwd"])
    offered = {"configOptions": CONFIG} if BEHAVIOUR in ("options", "stubborn") else {}
    answer(request, {"sessionId": agent.session, **offered})


def go_on(agent: Agent, request: Json) -> None:
    """Load or resume."""
    agent.session, agent.cwd = request["params"]["sessionId"], Path(request["params"]["cwd"])
    if BEHAVIOUR == "lost" or not agent.memory.exists():
        fail(request, -32602, "Invalid params", {"details": "no such session"})
        return
    if request["method"] == "session/load":
        agent.chunk("an old word of mine")
        agent.update(sessionUpdate="tool_call", toolCallId="old", title="an old call", kind="edit")
        agent.update(sessionUpdate="usage_update", used=1, size=2, cost={"amount": 0.5, "currency": "USD"})
    answer(request, {})


def set_option(agent: Agent, request: Json) -> None:
    if BEHAVIOUR == "stubborn":
        fail(request, -32602, "no")
        return
    for option in CONFIG:
        if option["id"] == request["params"]["configId"]:
            option["currentValue"] = request["params"]["value"]
    answer(request, {"configOptions": CONFIG})


# ----------------------------------------------------------------------------- turns


def write(agent: Agent, prompt: Json) -> None:
    """Write a file, with everything that can be told about it."""
    told = prompt["params"]["prompt"][0]["text"]
    path = str(agent.cwd / "hello.txt")
    agent.chunk("I think.", "agent_thought_chunk")
    agent.chunk("I will write ")
    agent.chunk("a file.")
    agent.update(sessionUpdate="tool_call", toolCallId="1", title="Writing", kind="edit", status="pending", rawInput={})
    agent.update(sessionUpdate="tool_call_update", toolCallId="1", title="Write a file", locations=[{"path": path}])
    decision = agent.ask({"toolCallId": "1", "title": "Write a file", "kind": "edit", "locations": [{"path": path}]})
    assert decision["result"]["outcome"] == {"outcome": "selected", "optionId": "yes"}, decision
    Path(path).write_text(told)
    agent.update(sessionUpdate="tool_call_update", toolCallId="1", status="completed")
    agent.update(
        sessionUpdate="tool_call", toolCallId="2", name="Shell", kind="execute", rawInput={"command": "make\nx"}
    )
    agent.update(sessionUpdate="tool_call_update", toolCallId="2", status="failed")
    agent.update(sessionUpdate="plan_of_the_future", entries=[])
    for amount in (0.25, 0.75, 0.75):
        agent.update(sessionUpdate="usage_update", used=1, size=2, cost={"amount": amount, "currency": "USD"})
    agent.chunk("I wrote it.")
    history = agent.memory.read_text() if agent.memory.exists() else ""
    agent.memory.write_text(history + told + "\n")
    usage = {
        "totalTokens": 1111, "inputTokens": 1000, "cachedReadTokens": 300, "cachedWriteTokens": 200,
        "outputTokens": 100, "thoughtTokens": 11,
    }  # fmt: skip
    answer(prompt, {"stopReason": "end_turn", "usage": usage})


def count(agent: Agent, prompt: Json) -> None:
    """Go on with a session, whose cost is that of all its turns."""
    agent.update(sessionUpdate="usage_update", used=1, size=2, cost={"amount": 1.0, "currency": "USD"})
    agent.chunk(f"I remember: {agent.memory.read_text().split()}")
    answer(prompt, {"stopReason": "end_turn"})


def stop(agent: Agent, prompt: Json) -> None:
    answer(prompt, {"stopReason": VALUE})


def error(agent: Agent, prompt: Json) -> None:
    fail(prompt, -32603, "Internal error", {"details": VALUE})


def outside(agent: Agent, prompt: Json) -> None:
    """Ask for a thing, and tell how it was answered."""
    decision = agent.ask(json.loads(VALUE))
    agent.chunk(json.dumps(decision["result"]["outcome"]))
    answer(prompt, {"stopReason": "end_turn"})


def insist(agent: Agent, prompt: Json) -> None:
    while not agent.canceled:
        agent.ask({"toolCallId": "1", "title": "Read secrets", "locations": [{"path": VALUE or "/etc/shadow"}]})
    answer(prompt, {"stopReason": "cancelled"})


def ask_and_not_listen(agent: Agent, prompt: Json) -> None:
    """Never read an answer; one that is asked in return is never read as well."""
    call = {"toolCallId": "1", "title": "x" * 1000}
    for number in range(1_000_000):
        params = {"sessionId": agent.session, "toolCall": call, "options": ONCE}
        say({"id": number, "method": "session/request_permission", "params": params})


def work_until_canceled(agent: Agent, prompt: Json) -> None:
    agent.chunk("working")
    agent.wait_for_cancel()
    decision = agent.ask({"toolCallId": "1", "title": "One more thing"})
    (agent.cwd / "canceled.txt").write_text(json.dumps(decision["result"]["outcome"]))
    answer(prompt, {"stopReason": "cancelled"})


def work_on(agent: Agent, prompt: Json) -> None:
    """Deaf to cancellation, with a child in a session of its own that writes later."""
    late = agent.cwd / "late.txt"
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(4)
        late.write_text("too late")
        os._exit(0)
    agent.chunk("working")
    time.sleep(600)


def noise(agent: Agent, prompt: Json) -> None:
    """Everything that is no message, and messages of the wrong shape."""
    deep = "[" * 100_000 + "]" * 100_000
    for line in (
        "\x1b[31mnot json", "[]", '"text"', "null", "17", deep, "{", '{"method": 5}', '{"id": {}, "result": 1}',
        '{"id": [], "error": "x"}', '{"id": 99, "result": {}}', '{"method": "session/update"}',
        '{"method": "session/update", "params": {"update": 7}}', '{"method": "session/update", "params": [1]}',
        '{"method": "session/update", "params": {"update": {"sessionUpdate": "agent_message_chunk", "content": 3}}}',
        '{"method": "session/update", "params": {"update": {"sessionUpdate": "tool_call", "locations": [3]}}}',
        '{"method": "session/update", "params": {"update": {"sessionUpdate": "usage_update", "cost": {"x": NaN}}}}',
        '{"method": "no/such/notification"}',
    ):  # fmt: skip
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    answers = []
    for number, (method, params) in enumerate(
        [("fs/read_text_file", {}), ("terminal/create", None), ("session/request_permission", {"options": 3})]
    ):
        say({"id": f"n{number}", "method": method, "params": params})
        answers.append(agent.wait_for(f"n{number}")["error"]["code"])
    agent.chunk(f"answers: {answers}")
    quota = {"model_usage": [3, {"model": 1, "token_count": 2}]}
    answer(prompt, {"stopReason": "end_turn", "usage": "much", "_meta": {"quota": quota}})


def flood(agent: Agent, prompt: Json) -> None:
    while True:
        agent.chunk("x" * 10_000)


def long_line(agent: Agent, prompt: Json) -> None:
    agent.chunk("x" * int(VALUE))
    agent.chunk("done")
    answer(prompt, {"stopReason": "end_turn"})


def die(agent: Agent, prompt: Json) -> None:
    agent.chunk("half a sen")
    sys.stderr.write("it hurts\n")
    if VALUE == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(3)


def stay(agent: Agent, prompt: Json) -> None:
    """Finish, and do not leave when there is nothing more to do."""
    answer(prompt, {"stopReason": "end_turn"})
    time.sleep(600)


TURNS: dict[str, Callable[[Agent, Json], None]] = {
    "stop": stop, "error": error, "outside": outside, "insist": insist, "deaf": ask_and_not_listen,
    "until-canceled": work_until_canceled, "work-on": work_on, "noise": noise, "flood": flood, "long-line": long_line,
    "die": die, "stay": stay, "resume": count, "load": count,
}  # fmt: skip

ASKED: dict[str, Callable[[Agent, Json], None]] = {
    "initialize": initialize, "authenticate": authenticate, "session/new": new, "session/load": go_on,
    "session/resume": go_on, "session/set_config_option": set_option, "session/prompt": TURNS.get(BEHAVIOUR, write),
}  # fmt: skip


def main() -> None:
    agent = Agent()
    while True:
        message = hear()
        if message.get("method") in ASKED:
            ASKED[message["method"]](agent, message)


if __name__ == "__main__":
    main()
