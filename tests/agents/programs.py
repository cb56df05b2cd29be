"""The real programs that `tools/install_agents.py` has installed, for tests that run them.

    found = program("claude")      found.path: the executable; found.search_path: a PATH on which it works

They are large and slow: a test that needs one is skipped unless ORCHARD_TEST_AGENTS=1 is set (`make test-agents` does).
With it, a program that is not there fails the test.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools import install_agents

WANTED = "ORCHARD_TEST_AGENTS"

# Tests get a home of their own before each of them begins: where the programs are is asked before that.
_SEARCH_PATH = os.environ.get("PATH", os.defpath)
_PINS = {name: (pin, pin.executable, pin.commands) for name, pin in install_agents.pins().items()}


@dataclass(frozen=True)
class Program:
    """A program that is installed."""

    path: Path
    version: str
    search_path: str
    """A PATH on which it comes first, then the Node that it needs, then the host's own programs."""


def program(name: str) -> Program:
    """An installed program, or the end of the test."""
    pin, path, folder = _PINS[name]
    if os.environ.get(WANTED) != "1":
        pytest.skip(f"runs the program {name}: make test-agents")
    if not path.exists() or not _PINS[install_agents.NODE][1].exists():
        missing = f"the program {name} {pin.version} is not installed: python tools/install_agents.py {name}"
        pytest.fail(missing, pytrace=False)
    search_path = os.pathsep.join([str(folder), str(_PINS[install_agents.NODE][2]), _SEARCH_PATH])
    return Program(path, pin.version, search_path)
