"""A search through files in a process of its own, because a regular expression can take for ever.

It reads one question as JSON from its standard input, and answers with a JSON line for each match and one at the
end. Whoever started it ends it when its time is over; what it had found by then is known. Only the Python library is
imported, so that it starts quickly.
"""

import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchard.agents.builtin.confine import BadPath, Confines

LARGEST_SEARCHED = 4 * 1024 * 1024
LONGEST_SHOWN = 300
PER_FILE = 200


def matches(question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every line that matches, in the order of the files; at the end what was left out."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pattern = re.compile(question["pattern"], re.IGNORECASE if question["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        yield {"end": True, "error": str(error)}
        return
    confines = Confines([Path(root) for root in question["roots"]])
    found = skipped = 0
    for number, name in enumerate(question["files"]):
        content = _content(confines, name)
        if content is None:
            skipped += 1
            continue
        in_file = 0
        for line, said in enumerate(content.splitlines(), 1):
            if (match := pattern.search(said)) is None:
                continue
            found, in_file = found + 1, in_file + 1
            yield {"file": number, "line": line, "text": _around(said, match.start())}
            if found >= question["limit"]:
                yield {"end": True, "skipped": skipped, "more": True}
                return
            if in_file >= PER_FILE:
                break
    yield {"end": True, "skipped": skipped, "more": False}


def _content(confines: Confines, name: str) -> str | None:
    """The text of a file; None for what is no text, too large, or cannot be read."""
    try:
        with confines.reach(name) as place:
            content = place.read(LARGEST_SEARCHED)
    except BadPath:
        return None
    return None if b"\0" in content[:8192] else content.decode(errors="replace")


def _around(line: str, start: int) -> str:
    if len(line) <= LONGEST_SHOWN:
        return line
    begin = max(0, min(start - LONGEST_SHOWN // 3, len(line) - LONGEST_SHOWN))
    return ("…" if begin else "") + line[begin : begin + LONGEST_SHOWN] + "…"


def main() -> None:
    question = json.load(sys.stdin)
    for each in matches(question):
        os.write(1, json.dumps(each).encode() + b"\n")
