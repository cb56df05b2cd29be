"""The real programs tell their versions and models, as we read them."""

from pathlib import Path

import pytest

from orchard.agents.facts.cache import Cache
from orchard.agents.facts.describe import describe
from orchard.agents.facts.models import Models
from orchard.agents.registry import Agents
from orchard.config.layers import Config
from orchard.model.agent_rows import BACKENDS
from tests.agents.programs import program


def agents(name: str, folder: Path) -> Agents:
    """With nothing but the program, and a home where nobody is logged in."""
    host = {"PATH": program(name).search_path, "HOME": str(folder), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return Agents(Config(), host)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_real_program_tells_its_version_and_has_no_login(name: str, tmp_path: Path) -> None:
    (info,) = describe(agents(name, tmp_path), [name])

    assert info.installed
    assert info.version == program(name).version
    assert info.logged_in == "no"


@pytest.mark.parametrize("name", ["codex", "copilot", "opencode"])
def test_a_real_program_tells_its_models(name: str, tmp_path: Path) -> None:
    found = Models(agents(name, tmp_path), Cache(tmp_path / "cache.json")).of(name)

    assert found.problem == "" and found.complete
    assert len(found.models) >= 3
    assert {model.tier for model in found.models} >= {"fast", "standard"}
