"""An agent that remembers what it is told, as `cli` (lines of JSON) or as `acp`: `talker.py KIND MEMORY`.

It behaves like real ones: it is slow to start, it prints the name of its session before it has read anything, and what
it was told is in its session only when it says the first word. Then it works for a moment, and can be stopped anywhere.
"""

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]
KIND, MEMORY = sys.argv[1], Path(sys.argv[2])


def say(message: Json) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def remember(session: str, told: str) -> None:
    """In one step, as a real session is kept."""
    known = MEMORY / f"{session}.txt"
    fresh = MEMORY / f"{session}.new"
    fresh.write_text((known.read_text() if known.exists() else "") + told + "\n")
    fresh.replace(known)


def pause(most: float) -> None:
    time.sleep(random.uniform(0, most))


def cli() -> None:
    session = sys.argv[3] if len(sys.argv) > 3 else f"s{os.getpid()}-{time.time_ns()}"
    if len(sys.argv) > 3 and not (MEMORY / f"{session}.txt").exists():
        say({"lost": session})
        return
    say({"session": session})
    told = sys.stdin.read()
    pause(0.15)
    remember(session, told)
    say({"text": "I am at it."})
    pause(0.15)
    Path("work.txt").write_text("worked")
    say({"result": "done"})


def acp() -> None:
    session = ""
    while line := sys.stdin.readline():
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        result: Json = {}
        if method == "initialize":
            result = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
        elif method == "session/new":
            session = result["sessionId"] = f"s{os.getpid()}-{time.time_ns()}"
        elif method == "session/load":
            session = params["sessionId"]
            if not (MEMORY / f"{session}.txt").exists():
                error = {"code": -32602, "message": "Invalid params", "data": {"details": "no such session"}}
                say({"jsonrpc": "2.0", "id": message["id"], "error": error})
                continue
        elif method == "session/prompt":
            pause(0.15)
            remember(session, params["prompt"][0]["text"])
            chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "I am at it."}}
            update = {"sessionId": session, "update": chunk}
            say({"jsonrpc": "2.0", "method": "session/update", "params": update})
            pause(0.15)
            result = {"stopReason": "end_turn"}
        if "id" in message:
            say({"jsonrpc": "2.0", "id": message["id"], "result": result})


if __name__ == "__main__":
    {"cli": cli, "acp": acp}[KIND]()
