"""What every test shares: a world of its own, in which nothing of the user's is seen or touched."""

import os
import re
from collections import Counter
from collections.abc import Generator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

from orchard.model.secrets import looks_secret
from tests.examples import examples, is_everyday
from tests.nursery import begin_for_workers
from tests.strays import end_strays

settings.register_profile("share", examples())
settings.load_profile("share")
NUMBERS = count()


def pytest_configure(config: pytest.Config) -> None:
    """Begin what all workers share in the process that none of them is a child of.

    Tests and the programs that they start have no walls, but for tests about those: they are as fast, and the same,
    where bubblewrap is not installed. `ORCHARD_TEST_SANDBOX=bwrap` runs them behind one. Their plans are mostly of
    shell jobs, and are healed nevertheless.
    """
    os.environ["ORCHARD_HEAL_ENABLED"] = "true"
    os.environ["ORCHARD_SANDBOX"] = os.environ.get("ORCHARD_TEST_SANDBOX", "off")
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        begin_for_workers()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a long table, the later rows are slow tests but for some; `make test-all` tries every row."""
    rows: Counter[tuple[object, str]] = Counter()
    for item in items:
        function = (item.parent, getattr(item, "originalname", item.name))
        rows[function] += 1
        if not is_everyday(item.name, rows[function]):
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """After the last test of a module none of its programs runs: every test after it would meet them."""
    yield
    if nextitem is None or nextitem.path != item.path:
        assert not (left := end_strays()), f"tests of {item.path.name} left programs running:\n" + "\n".join(left)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud what was not tested because it needs programs that are large."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []) if report.longrepr]
    for target, what in (("make test-agents", "with real agents"), ("make test-browser", "in a browser")):
        left_out = sum(target in reason for reason in reasons)
        if left_out:
            terminalreporter.write_line(f"NOT TESTED: {left_out} tests {what}: {target}", yellow=True)


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on the event loop that the engine runs on."""
    return "asyncio"


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the test. Pytest's own lists the folders of all tests before it makes another."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = tmp_path_factory.getbasetemp() / "tests" / str(next(NUMBERS)) / name
    path.mkdir(parents=True)
    return path


@pytest.fixture(autouse=True)
def private_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a home of its own; git finds no settings but those of the test's repository."""
    home = tmp_path_factory.getbasetemp() / "homes" / str(next(NUMBERS))
    home.mkdir(parents=True)
    for name, folder in (
        ("HOME", "."), ("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config"), ("XDG_CACHE_HOME", "cache"),
        ("XDG_RUNTIME_DIR", "run"),
    ):  # fmt: skip
        place = home / folder
        place.mkdir(mode=0o700, exist_ok=True)
        monkeypatch.setenv(name, str(place))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in [name for name in os.environ if looks_secret(name)]:
        monkeypatch.delenv(name)  # no test may find a key of the user's
    for name in ("ORCHARD_FAILPOINT", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "NO_COLOR", "ORCHARD_MAX_PARALLEL"):
        monkeypatch.delenv(name, raising=False)
    return home
