"""What a job that changed no file says it did instead: a small JSON file, checked before it is believed."""

import json
from pathlib import Path
from typing import Any

from orchard.files import read_plain

EVIDENCE_BYTES = 64 * 1024
TYPES = ("file_changes", "external_effect", "analysis", "validation")


def read_evidence(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """The evidence a job left, or what is wrong with it; neither where it left none."""
    try:
        data = _read(path)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"the evidence file cannot be read: {error.strerror}"
    if len(data) > EVIDENCE_BYTES:
        return None, f"the evidence file is larger than {EVIDENCE_BYTES // 1024} KiB"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None, "the evidence file is not JSON"
    problem = _problem(value)
    return (None, problem) if problem else (value, None)


def _read(path: Path) -> bytes:
    # The job chose what lies here: no link is followed, no pipe waited for.
    return read_plain(path, EVIDENCE_BYTES + 1)


def _problem(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "the evidence must be a JSON object"
    unknown = sorted(set(value) - {"summary", "type", "outcome"})
    if unknown:
        return f"the evidence has an unknown field '{unknown[0]}'; known are summary, type and outcome"
    summary = value.get("summary")
    if not isinstance(summary, str) or not summary.strip():
        return "the evidence needs a 'summary' that says what was done"
    if value.get("type") not in TYPES:
        return f"the 'type' of the evidence must be one of {', '.join(TYPES)}"
    if "outcome" in value and not isinstance(value["outcome"], dict):
        return "the 'outcome' of the evidence must be an object"
    return None
