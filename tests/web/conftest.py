"""One browser and one daemon for the tests of a file.

A browser for more than that would leave its event loop running while tests of other files begin their own.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.acceptance.program import desks
from tests.http.daemon import Daemon, served
from tests.web.browser import Tab, browsers, tabs

AGENT = """\
#!/bin/sh
prompt=$(cat)
case "$prompt" in
*"# Write a plan"*"Take your time"*) echo $$ > {folder}/slow.new; mv {folder}/slow.new {folder}/slow; sleep 600 ;;
*"Your answer holds no plan"*) cat {folder}/better ;;
*"# Write a plan"*) cat {folder}/answer ;;
*) echo 'I looked at it.'; echo done >> agent.txt ;;
esac
"""
"""Does any work in the same way, and answers who wants a plan with what a test wrote for that."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers() as one:
        yield one


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    for desk in desks(tmp_path_factory.mktemp("web")):
        agent = desk.folder / "agent.sh"
        agent.write_text(AGENT.format(folder=desk.folder))
        agent.chmod(0o755)
        config = desk.folder / "config" / "orchard"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(f'[agents.robin]\ncommand = "{agent}"\n')
        with served(desk) as one:
            yield one
            desk("stop", "--now", "--all")


@pytest.fixture
def tab(browser: Browser, daemon: Daemon) -> Iterator[Tab]:
    with tabs(browser, daemon) as one:
        yield one
