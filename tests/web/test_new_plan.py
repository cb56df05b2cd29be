"""What becomes of a plan that a person writes in the page."""

import re

from playwright.sync_api import expect

from tests.web.browser import Tab, needs_browser

pytestmark = needs_browser

MINE = "name: Mine\ntarget: mine\njobs:\n  - id: one\n    work: echo 1 > one.txt\n"


def test_what_one_wrote_outlives_a_template_a_reload_and_a_daemon_that_is_away(tab: Tab) -> None:
    tab.go("/new")
    editor = tab.page.get_by_label("The plan, as YAML")
    editor.fill(MINE)
    tab.says(re.compile("1 job; nothing is wrong"))

    tab.press("Groups, with approval")
    expect(editor).not_to_have_value(MINE)
    tab.press("Put back what was there")
    expect(editor).to_have_value(MINE)

    tab.page.reload()
    expect(editor).to_have_value(MINE)
    tab.says(re.compile("1 job; nothing is wrong"))

    tab.page.context.set_offline(True)
    editor.fill(MINE + "# more\n")
    tab.says(re.compile("The daemon does not answer"))
    tab.page.context.set_offline(False)
    tab.says(re.compile("1 job; nothing is wrong"))
