"""Frames that no client should send, made by chance from a seed: the same ones every time."""

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.mcp.wires import HELLO, LEGACY, META

METHODS = (
    "initialize", "ping", "server/discover", "tools/list", "tools/call", "prompts/list", "prompts/get",
    "resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
    "completion/complete", "logging/setLevel", "notifications/initialized", "notifications/cancelled",
    "notifications/progress", "tasks/get", "no/such", "", "x" * 300,
)  # fmt: skip
TOOLS = (
    "get_plan", "list_plans", "get_job", "get_job_logs", "get_job_failure", "wait_plan", "pause_plan", "add_job",
    "finalize_plan", "retry_job", "create_plan", "no_such_tool", "",
)  # fmt: skip
WORDS = ("", "a", "x" * 2000, "\u0000", "\u202e", "../../etc", "orchard://plans/%ff/jobs/", "None", "-1", "🌳" * 50)
HUGE = 5 * 1024 * 1024


class Frames:
    """An endless supply."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._number = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.next()

    def next(self) -> bytes:
        """One frame, which may hold line breaks and need not end with one."""
        self._number += 1
        kinds = (
            self._truncated, self._wrong_types, self._wrong_types, self._deep, self._batch, self._bad_text, self._noise,
            self._interleaved, self._same_id, self._odd_call, self._odd_call, self._odd_numbers, self._odd_envelope,
        )  # fmt: skip
        if self._number % 500 == 250:
            return b'{"jsonrpc":"2.0","id":1,"method":"' + b"h" * HUGE + b'"}\n'
        return self._random.choice(kinds)()

    def value(self, depth: int = 0) -> Any:
        """Anything that JSON can say."""
        chance = self._random
        kinds: list[Any] = [None, True, False, 0, -1, 1 << 40, 1.5, 1e300, chance.choice(WORDS)]
        if depth < 3:
            kinds += [[self.value(depth + 1) for _ in range(chance.randint(0, 3))]] * 2
            kinds += [{chance.choice(WORDS): self.value(depth + 1) for _ in range(chance.randint(0, 3))}] * 2
        return chance.choice(kinds)

    def _request(self) -> dict[str, Any]:
        method = self._random.choice(METHODS)
        params = (
            dict(HELLO) if method == "initialize" else {"_meta": META, "uri": "orchard://plans", "name": "get_plan"}
        )
        return {"jsonrpc": "2.0", "id": f"f{self._number}", "method": method, "params": params}

    def _truncated(self) -> bytes:
        line = json.dumps(self._request()).encode()
        return line[: self._random.randint(0, len(line) - 1)] + b"\n"

    def _wrong_types(self) -> bytes:
        message = self._request()
        for name in self._random.sample(["jsonrpc", "id", "method", "params"], self._random.randint(1, 3)):
            message[name] = self.value()
        if message["method"] == "subscriptions/listen":
            message["method"] = "ping"
        return json.dumps(message).encode() + b"\n"

    def _deep(self) -> bytes:
        depth = self._random.choice([50, 90, 150, 1500, 50_000])
        begin, end = self._random.choice([(b"[", b"]"), (b'{"a":', b"}")])
        inner = begin * depth + b"1" + end * (depth if self._random.random() < 0.7 else 0)
        return (
            b'{"jsonrpc":"2.0","id":"d","method":"tools/call","params":{"name":"get_plan","arguments":'
            + inner
            + b"}}\n"
        )

    def _batch(self) -> bytes:
        return json.dumps([self._request() for _ in range(self._random.randint(0, 5))]).encode() + b"\n"

    def _bad_text(self) -> bytes:
        line = bytearray(json.dumps(self._request()).encode())
        for _ in range(self._random.randint(1, 4)):
            line[self._random.randrange(len(line))] = self._random.choice([0xFF, 0xC0, 0x80, 0x00, 0xED])
        return bytes(line if self._random.random() < 0.8 else line.replace(b"ping", b"\\ud800")) + b"\n"

    def _noise(self) -> bytes:
        return self._random.randbytes(self._random.randint(1, 400)).replace(b"\n", b"\r") + b"\n"

    def _interleaved(self) -> bytes:
        first, second = (json.dumps(self._request()).encode() for _ in range(2))
        cut = self._random.randint(1, len(first) - 1)
        return first[:cut] + second + b"\n" + first[cut:] + b"\n"

    def _same_id(self) -> bytes:
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": META}}).encode() + b"\n"
        return line * self._random.randint(2, 5)

    def _odd_call(self) -> bytes:
        chance = self._random
        names = ["plan", "job", "jobs", "work", "cursor", "limit", "timeout_s", "name", "plan_id", chance.choice(WORDS)]
        arguments: Any = {chance.choice(names): self.value() for _ in range(chance.randint(0, 4))}
        # Nothing here waits for long, or makes a plan that has anything to do.
        arguments = {**arguments, "timeout_s": 0} if "timeout_s" in arguments else arguments
        arguments.pop("work", None)
        params = {"_meta": META, "name": chance.choice(TOOLS), "arguments": chance.choice([arguments, self.value()])}
        if params["name"] == "wait_plan":
            params["arguments"] = {"plan": self.value(), "timeout_s": 0}
        if chance.random() < 0.1:
            params["inputResponses"], params["requestState"] = self.value(), self.value()
        return (
            json.dumps({"jsonrpc": "2.0", "id": f"c{self._number}", "method": "tools/call", "params": params}).encode()
            + b"\n"
        )

    def _odd_numbers(self) -> bytes:
        odd = self._random.choice(
            [b"NaN", b"-Infinity", b"1e99999", b"9" * 5000, b"-0", b"1.0", b"0x10", b"01", b"1e1"]
        )
        return b'{"jsonrpc":"2.0","id":' + odd + b',"method":"ping","params":{"x":' + odd + b"}}\n"

    def _odd_envelope(self) -> bytes:
        meta = {name: self.value() if self._random.random() < 0.5 else value for name, value in META.items()}
        if self._random.random() < 0.3:
            meta["io.modelcontextprotocol/protocolVersion"] = self._random.choice([LEGACY, "2099-01-01", ""])
        meta["progressToken"] = self.value()
        return json.dumps({**self._request(), "params": {"_meta": meta, "cursor": self.value()}}).encode() + b"\n"
