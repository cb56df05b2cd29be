"""What a server says first, remembered: a client is greeted at once while the daemon behind it still starts.

Hosts take stock of a server's tools when they start, and some leave out one that takes two seconds. So the daemon
writes down what it answers to the questions that every client begins with, and the process that the host started
answers from that until it is connected. The record is for one version of Orchard and one selection of tools; a client
that asks in a way that is not in it waits for the daemon.
"""

import json
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

from orchard import __version__
from orchard.config.user_dirs import make_state_dir, user_dirs
from orchard.files import read_own, replace_whole
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.server.frames import Message

LISTS = ("tools/list", "prompts/list", "resources/templates/list")
DISCOVER = "server/discover"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
RECORD_BYTES = 4 * 1024 * 1024
FOLDER = "mcp"
OTHERS = ""
"""The key of the answer to a client that wants a version which is not known."""


def record_path(selection: Selection) -> Path:
    """Where the record of a selection lies."""
    said = [
        __version__,
        sorted(selection.toolsets),
        sorted(selection.tools),
        sorted(selection.exclude),
        selection.read_only,
    ]
    return user_dirs().state / FOLDER / f"greeting-{sha256(json.dumps(said).encode()).hexdigest()[:16]}.json"


class Greeting(Struct, frozen=True):
    """Answers by version: those to `initialize`, and those to the lists."""

    hello: dict[str, Message]
    lists: dict[str, dict[str, Message]]

    def to_initialize(self, params: Message) -> Message | None:
        """The answer to a handshake; None where the client leaves out what it must say."""
        wanted, who = params.get("protocolVersion"), params.get("clientInfo")
        if not isinstance(wanted, str) or not isinstance(params.get("capabilities"), dict):
            return None
        if not isinstance(who, dict) or not all(isinstance(who.get(name), str) for name in ("name", "version")):
            return None
        return self.hello.get(wanted, self.hello.get(OTHERS))

    def to_list(self, method: str, params: Message, version: str | None) -> Message | None:
        """The answer to a list, at the version that was agreed on or that the request itself names."""
        if params.get("cursor") is not None:
            return None
        meta = params.get("_meta")
        if isinstance(meta, dict) and VERSION_KEY in meta:
            said = meta[VERSION_KEY]
            if version is not None or not isinstance(said, str) or not isinstance(meta.get(CAPABILITIES_KEY), dict):
                return None
            return self.lists.get(said, {}).get(method)
        if version is None or method == DISCOVER:
            return None
        return self.lists.get(version, {}).get(method)


def read_greeting(selection: Selection) -> Greeting | None:
    """What was written down for this selection; None where there is nothing that can be relied on."""
    try:
        data = read_own(record_path(selection), RECORD_BYTES + 1, private=True)
        said = json.loads(data) if len(data) <= RECORD_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return _greeting(said)


def _greeting(said: Any) -> Greeting | None:
    if not isinstance(said, dict) or said.get("orchard") != __version__:
        return None
    try:
        answers = said["answers"]
        hello = {version: answers[number] for version, number in said["hello"].items()}
        lists = {
            version: {method: answers[number] for method, number in numbers.items()}
            for version, numbers in said["lists"].items()
        }
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    return Greeting(hello, lists) if all(isinstance(one, dict) for one in answers) else None


def write_greeting(selection: Selection, greeting: Greeting) -> None:
    """Write a record down, unless the same is there; that this may fail is nobody's loss but some time."""
    # Most versions are answered in the same words: each answer is written once, and meant by its number.
    answers: list[Message] = []

    def number(answer: Message) -> int:
        if answer not in answers:
            answers.append(answer)
        return answers.index(answer)

    said = {
        "orchard": __version__,
        "hello": {version: number(answer) for version, answer in greeting.hello.items()},
        "lists": {
            version: {method: number(answer) for method, answer in found.items()}
            for version, found in greeting.lists.items()
        },
        "answers": answers,
    }
    data = json.dumps(said, separators=(",", ":")).encode()
    with suppress(OSError):
        place = record_path(selection)
        make_state_dir(make_state_dir(place.parent.parent) / FOLDER)
        if read_greeting(selection) == greeting:
            return
        replace_whole(place, data)
