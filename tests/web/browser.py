"""The dashboard in a real browser, before a real daemon: what a person sees and presses there."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from orchard.surfaces.http import dashboard
from orchard.surfaces.http.daemon.tokens import new_code
from tests.acceptance.program import Desk
from tests.http.daemon import Daemon

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
SECONDS = 20.0
BUILT = Path(dashboard.__file__).parent / "pages" / dashboard.BUILT / dashboard.ENTRY
PICTURES = os.environ.get("ORCHARD_PICTURES")
"""A folder: pictures of pages are kept there."""

expect.set_options(timeout=SECONDS * 1000)


def program() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


needs_browser = pytest.mark.skipif(
    program() is None or not BUILT.is_file(),
    reason="no browser or no dashboard: 'make test-browser' installs one and builds the other",
)


@contextmanager
def browsers() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=program(), args=FLAGS)
        try:
            yield one
        finally:
            one.close()


@dataclass
class Tab:
    """A tab of the browser, which remembers what went wrong in it and whom it asked."""

    page: Page
    daemon: Daemon
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    @property
    def desk(self) -> Desk:
        return self.daemon.desk

    def listen(self) -> None:
        self.page.on("console", lambda said: self._said(said.type, said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("dialog", lambda dialog: self.errors.append(f"a dialog: {dialog.message}"))

    def _said(self, kind: str, text: str) -> None:
        """What the browser complains about; that a request was refused, the page tells by itself."""
        if kind == "error" and not text.startswith("Failed to load resource"):
            self.errors.append(text)

    def _asked(self, url: str) -> None:
        if not url.startswith((f"http://127.0.0.1:{self.daemon.port}/", "data:,")):
            self.strangers.append(url)

    def enter(self) -> None:
        """Open a link as the daemon prints it; a program that only prints it is started where a test is about that."""
        code = new_code(Path(self.daemon.said["token_file"]).parent)
        self.page.goto(f"http://127.0.0.1:{self.daemon.port}/#code={code}")
        expect(self.page.locator("main .content, main .empty h2").first).to_be_visible()

    def go(self, address: str) -> None:
        self.page.evaluate("address => { location.hash = address }", address)

    def plan(self, plan: str, tab: str = "") -> None:
        self.go(f"/r/{self.repo}/{plan}" + (f"/{tab}" if tab else ""))

    def job(self, plan: str, job: str, tab: str = "log") -> None:
        self.go(f"/r/{self.repo}/{plan}/jobs/{job.replace('/', '%2F')}/{tab}")

    @property
    def repo(self) -> str:
        answer = self.daemon.ask("GET", "/api/v1/repos", self.daemon.bearer)
        return str(answer.json["repos"][0]["id"])

    def status(self, plan: str) -> Any:
        """What is known of a plan, asked without starting a program: for who looks until something happens."""
        return self.daemon.ask("GET", f"/api/v1/plans/{plan}", self.daemon.bearer).json

    def waiting(self) -> list[Any]:
        found: list[Any] = self.daemon.ask("GET", "/api/v1/waiting", self.daemon.bearer).json["waiting"]
        return found

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).first.click()

    def says(self, words: str | re.Pattern[str]) -> None:
        expect(self.page.get_by_text(words).first).to_be_visible()

    def picture(self, name: str) -> None:
        """Pictures of the page as it is: wide and narrow, light and dark."""
        if not PICTURES:
            return
        before = self.page.viewport_size
        for kind, width in (("wide", 1400), ("narrow", 420)):
            self.page.set_viewport_size({"width": width, "height": 900})
            for scheme in ("light", "dark"):
                self.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                self.page.wait_for_timeout(250)
                self.page.screenshot(path=Path(PICTURES) / f"{name}-{kind}-{scheme}.png")
        if before:
            self.page.set_viewport_size(before)


@contextmanager
def tabs(browser: Browser, daemon: Daemon, **options: Any) -> Iterator[Tab]:
    """A tab with a session; at the end nothing may have gone wrong, and nobody else may have been asked."""
    context: BrowserContext = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
    tab = Tab(context.new_page(), daemon)
    tab.listen()
    try:
        tab.enter()
        yield tab
        assert tab.errors == []
        assert tab.strangers == []
    finally:
        context.close()
