"""A log that is longer than what the page loads at once."""

import re

from playwright.sync_api import expect

from tests.acceptance.program import until
from tests.web.browser import Tab, needs_browser
from tests.web.test_dashboard import shell, submitted

pytestmark = needs_browser


def test_the_beginning_of_a_long_log_is_its_first_line_and_a_search_says_what_it_searched(tab: Tab) -> None:
    count = 40_000
    plan = submitted(tab, "Long", shell("much", f"seq -f 'line %.0f of a long log' 1 {count}; echo 1 > long.txt"))
    until(lambda: tab.status(plan)["plan"]["landed"], seconds=60)
    tab.job(plan, "much")
    expect(tab.page.locator(".log .l", has_text=f"line {count} ")).to_be_visible()

    tab.press("Beginning")
    expect(tab.page.locator(".log .l", has_text=re.compile("line 1 of"))).to_be_visible()
    tab.page.wait_for_timeout(1000)
    assert tab.page.locator(".log").evaluate("box => box.scrollTop") == 0
    expect(tab.page.locator(".log .l", has_text=re.compile("line 1 of"))).to_be_in_viewport()

    search = tab.page.get_by_label("Search the log")
    search.fill(f"line {count - 7} ")
    tab.says(re.compile(r"not in the part that is loaded \(lines 1 to [\d,]+\)"))
    tab.press("Load the rest")
    expect(tab.page.get_by_text("1 of 1")).to_be_visible()
    search.press("Enter")
    expect(tab.page.locator(".log .l.now")).to_contain_text(f"line {count - 7} ")
