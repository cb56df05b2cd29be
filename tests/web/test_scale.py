"""Large plans and long logs in the browser: it stays usable, and draws only what can be seen."""

import json
import time

import pytest
from playwright.sync_api import expect

from tests.acceptance.program import until
from tests.web.browser import Tab, needs_browser

pytestmark = [needs_browser, pytest.mark.slow]

PATIENCE = 4.0
"""How many times longer than alone things may take beside other tests."""


def large_plan(tab: Tab, count: int, groups: int) -> str:
    """A plan that does not start: rows of 40 jobs, each of which needs one of the row before."""
    ids = [f"g{number % groups}/j{number}" for number in range(count)]
    needs: list[list[str]] = [*([] for _ in range(40)), *([one] for one in ids)]
    jobs = [
        {"id": f"j{number}", "group": f"g{number % groups}", "needs": needs[number], "work": "true"}
        for number in range(count)
    ]
    body = json.dumps(
        {"name": f"Large {count}", "target": f"large-{count}", "start_paused": True, "jobs": jobs}
    ).encode()
    made = tab.daemon.ask("POST", "/api/v1/plans", {**tab.daemon.bearer, "Content-Type": "application/json"}, body)
    assert made.status == 201, made.body[:500]
    return str(made.json["plan"])


def test_the_first_paint_comes_within_a_second(tab: Tab) -> None:
    tab.page.goto(f"http://127.0.0.1:{tab.daemon.port}/")
    expect(tab.page.locator("main .content, main .empty h2").first).to_be_visible()

    [painted] = tab.page.evaluate("performance.getEntriesByName('first-contentful-paint').map(one => one.startTime)")

    assert painted < 1000 * PATIENCE


@pytest.mark.parametrize(("count", "seconds"), [(1000, 2.0), (5000, 4.0)])
def test_a_large_plan_opens_with_its_groups_folded(tab: Tab, count: int, seconds: float) -> None:
    plan = large_plan(tab, count, 20)
    tab.page.goto("about:blank")
    began = time.monotonic()
    tab.page.goto(f"http://127.0.0.1:{tab.daemon.port}/#/r/{tab.repo}/{plan}")
    expect(tab.page.locator(".node.folded")).to_have_count(20)
    took = time.monotonic() - began

    assert took < seconds * PATIENCE
    tab.plan(plan, "jobs")
    expect(tab.page.get_by_role("table")).to_have_attribute("aria-rowcount", str(count + 1))
    assert tab.page.locator(".jobs [role=row]").count() < 100, "only rows that can be seen are drawn"
    tab.page.get_by_label("Search jobs").fill(f"j{count - 1}")
    expect(tab.page.locator(".jobs [role=row]")).to_have_count(2)


def test_a_log_of_100_megabytes_is_read_at_both_ends(tab: Tab) -> None:
    work = "yes 'a line of a log that goes on and on' | head -c 100000000; echo; echo last"
    body = {"name": "Much", "target": "much", "jobs": [{"id": "yes", "work": f"{work}; echo 1 > much.txt"}]}
    headers = {**tab.daemon.bearer, "Content-Type": "application/json"}
    plan = str(tab.daemon.ask("POST", "/api/v1/plans", headers, json.dumps(body).encode()).json["plan"])
    until(lambda: tab.desk.status(plan)["plan"]["landed"], seconds=120)
    tab.job(plan, "yes")
    expect(tab.page.locator(".log .l", has_text="last")).to_be_visible()
    tab.says("95 MB")
    for _ in range(10):
        tab.page.locator(".log").evaluate("box => { box.scrollTop = 0 }")
        tab.page.wait_for_timeout(100)
    assert tab.page.locator(".log .l").count() < 300

    tab.press("Beginning")

    expect(tab.page.locator(".log .l .n").first).to_have_text("1")
    expect(tab.page.locator(".log .l").first).to_contain_text("a line of a log")
    for _ in range(6):
        tab.page.locator(".log").evaluate("box => { box.scrollTop = box.scrollHeight }")
        tab.page.wait_for_timeout(200)
    seen = int(tab.page.locator(".log .l .n").last.inner_text() or "0")
    assert seen > 8000, "what follows is loaded as one goes down"

    tab.press("End")

    expect(tab.page.locator(".log .l", has_text="last")).to_be_visible()
