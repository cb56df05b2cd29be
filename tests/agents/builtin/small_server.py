"""A small MCP server of our own, that starts at once and does what real ones should not: `python small_server.py`.

It speaks the handshake of 2025 over its standard input and output. Its tools are named for what they do.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

TOOLS: dict[str, dict[str, Any]] = {
    "echo": {"properties": {"text": {"type": "string"}}, "required": ["text"]},
    "environment": {},
    "fail": {},
    "hang": {},
    "die": {},
    "large": {},
    "flood": {},
    "answers": {},
    "spawn": {},
    "wrong": {},
    "picture": {},
}


def say(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def text(said: str, *, failed: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], "isError": failed}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "echo":
        return text(f"{arguments['text']} from {os.getpid()}")
    if name == "environment":
        return text(json.dumps(dict(os.environ)))
    if name == "fail":
        return text("this did not work", failed=True)
    if name == "hang":
        time.sleep(300)
    if name == "die":
        sys.stderr.write("I am dying\n")
        sys.stderr.flush()
        os._exit(7)
    if name == "large":
        return text("begin" + "x" * 3_000_000 + "end")
    if name == "flood":
        while True:
            write_all(b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}\n' * 1000)
    if name == "answers":
        while True:
            write_all(b'{"jsonrpc": "2.0", "id": 99999, "result": {"x": "' + b"x" * 200_000 + b'"}}\n')
    if name == "spawn":
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        return text(str(child.pid))
    if name == "wrong":
        return {"content": "this is no list"}
    if name == "picture":
        return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}], "isError": False}
    return text(f"there is no {name}", failed=True)


def listed() -> list[dict[str, Any]]:
    made = [
        {"name": name, "description": f"Will {name}.\x1b[31m", "inputSchema": {"type": "object", **schema}}
        for name, schema in TOOLS.items()
    ]
    if "strange" in sys.argv:
        made += [
            {"name": "a b/c.d", "inputSchema": {"type": "object"}},
            {"name": "a b/c:d", "inputSchema": {"type": "object"}},
            {"name": "long" * 40, "inputSchema": {"type": "object"}},
            {"name": "remote", "inputSchema": {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:1/"}}}},
            {"name": "broken", "inputSchema": {"type": "object", "properties": {"x": {"type": 12}}}},
            {"name": "endless", "inputSchema": {"type": "object", "properties": {"x": {"pattern": "(a+)+$"}}}},
        ]
    return made


def main() -> None:
    if "greeting" in sys.argv:
        os.write(1, b"Welcome to the small server!\n")
    if "broken" in sys.argv:
        sys.stderr.write("I need a setting that is missing\n")
        sys.exit(2)
    if "deaf" in sys.argv:
        time.sleep(300)
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if number is None:
            continue
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            about = {"name": "small", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        elif method == "tools/list":
            result = {"tools": listed()}
        elif method == "tools/call":
            result = call(message["params"]["name"], message["params"].get("arguments", {}))
        else:
            say({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no such method"}})
            continue
        say({"jsonrpc": "2.0", "id": number, "result": result})


if __name__ == "__main__":
    main()
