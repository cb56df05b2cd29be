"""The pictures in docs, taken of a real plan behind a wall, as users have it:

RENEW_PICTURES=1 ORCHARD_TEST_SANDBOX=bwrap python -m pytest tests/web/test_pictures.py
"""

import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.acceptance.program import until
from tests.web.browser import Tab, needs_browser

DOCS = Path(__file__).parent.parent.parent / "docs"
LARGEST = 200_000
NAMES = ("dashboard", "dashboard-goal", "dashboard-job", "dashboard-changes")

renewed = pytest.mark.skipif(not os.environ.get("RENEW_PICTURES"), reason="RENEW_PICTURES=1 takes them anew")

LOG = r"""
say() { printf '\033[36m[%s]\033[0m %s\n' "$1" "$2"; }
printf '\033[1mAdd sessions to the login\033[0m\n'
say read 'app/login.py, app/cookies.py, tests/test_login.py'
say plan 'A session is a row with a random id; the cookie holds the id and nothing else.'
say edit 'app/sessions.py'
say edit 'app/login.py'
say run 'python -m pytest -q tests/test_sessions.py'
printf '..........\033[31mF\033[0m.....                                     [100%%]\n'
printf '\033[31mFAILED\033[0m tests/test_sessions.py::test_a_session_ends - AssertionError: 200 == 401\n'
say edit 'app/sessions.py: a session that is too old is deleted when it is read'
say run 'python -m pytest -q tests/test_sessions.py'
printf '\033[32m................                                          [100%%]\033[0m\n'
printf '\033[32m16 passed\033[0m in 0.84s\n'
say run 'python -m pytest -q'
"""
SESSIONS = '''\
"""Sessions: who is logged in, and for how long."""

import secrets
import time

LIFETIME = 14 * 24 * 3600  # two weeks


def begin(store: dict[str, tuple[str, float]], user: str) -> str:
    """A new session; its id is all that the cookie holds."""
    session = secrets.token_urlsafe(32)
    store[session] = (user, time.time() + LIFETIME)
    return session


def user_of(store: dict[str, tuple[str, float]], session: str) -> str | None:
    user, until = store.get(session, (None, 0.0))
    if until < time.time():
        store.pop(session, None)
        return None
    return user
'''
GOAL = "Export reports as CSV, from the command line and from the page"
PLAN = """\
name: Export reports as CSV
verify: python -m pytest -q
jobs:
  - id: format
    task: One place that turns a report into rows
    work: "@agent In reports/rows.py add rows(report), with a test"
    postchecks: python -m pytest -q tests/test_rows.py
  - id: cli
    needs: [format]
    work: "@agent Add 'report export --csv FILE', using rows(report)"
    postchecks: python -m pytest -q tests/test_cli.py
  - id: web
    needs: [format]
    work: "@agent Add a button 'Export as CSV' to the page of a report"
    postchecks: python -m pytest -q tests/test_pages.py
  - id: docs
    needs: [cli, web]
    work: "@agent Document both ways in docs/reports.md"
"""


def taken(tab: Tab, name: str) -> None:
    tab.page.mouse.move(1270, 735)
    tab.page.wait_for_timeout(300)
    tab.page.screenshot(path=DOCS / f"{name}.png")


def test_every_picture_is_small_enough_to_be_shown_in_a_page() -> None:
    assert all((DOCS / f"{name}.png").stat().st_size < LARGEST for name in NAMES)


@renewed
@needs_browser
def test_pictures_are_taken_of_a_real_plan(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 1280, "height": 740})
    hold = "sleep 6"

    def job(id: str, work: str, *needs: str, group: str = "") -> dict[str, object]:
        return {"id": id, "work": work, "needs": list(needs), "heal": False, **({"group": group} if group else {})}

    written = f"{LOG}\nmkdir -p app\ncat > app/sessions.py <<'END'\n{SESSIONS}END\n{hold}"
    jobs = [
        job("schema", "echo 'create table sessions (id text);' > schema.sql", group="backend"),
        job("api", "printf 'a\\nb\\nc\\nd\\n' > api.py", "schema", group="backend"),
        job("sessions", written, "schema", group="backend"),
        job("audit", hold, "api", group="backend/hardening"),
        job("limits", hold, "api", group="backend/hardening"),
        job("form", "echo '<form>' > form.html", group="frontend"),
        job("page", "echo page > page.html", "form", "backend/sessions", group="frontend"),
        job("docs", "echo docs > docs.md", "backend/hardening/audit", "backend/hardening/limits"),
        job("e2e", "true", "docs", "frontend/page"),
    ]
    body = {"name": "Login with a session cookie", "description": "Adds POST /login, the page and the docs.",
            "target": "login", "max_parallel": 4, "jobs": jobs}  # fmt: skip
    headers = {**tab.daemon.bearer, "Content-Type": "application/json"}
    made = tab.daemon.ask("POST", "/api/v1/plans", headers, json.dumps(body).encode())
    assert made.status == 201, made.body
    plan = str(made.json["plan"])
    until(lambda: tab.status(plan)["plan"]["counts"].get("running") == 3)
    tab.plan(plan)
    expect(tab.page.locator("a.node.n-run")).to_have_count(3)
    taken(tab, "dashboard")

    tab.job(plan, "backend/sessions")
    expect(tab.page.locator(".log .l", has_text="16 passed")).to_be_visible()
    taken(tab, "dashboard-job")
    until(
        lambda: (
            next(one for one in tab.status(plan)["jobs"] if one["id"] == "backend/sessions")["status"] == "succeeded"
        )
    )
    tab.job(plan, "backend/sessions", "changes")
    expect(tab.page.locator(".s-word").first).to_be_visible()
    taken(tab, "dashboard-changes")

    (tab.desk.folder / "answer").write_text(f"```yaml\n{PLAN}```\n")
    tab.go("/new")
    tab.page.get_by_label("What do you want to reach?").fill(GOAL)
    tab.press("Write a plan")
    expect(tab.page.get_by_label("The plan, as YAML")).to_have_value(PLAN)
    expect(tab.page.locator(".graph .node")).to_have_count(4)
    tab.says("4 jobs; nothing is wrong with it.")
    taken(tab, "dashboard-goal")
