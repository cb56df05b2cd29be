"""What becomes of what a person typed into a dialog."""

import re

from playwright.sync_api import expect

from tests.acceptance.program import until
from tests.web.browser import Tab, needs_browser
from tests.web.test_dashboard import job_of, shell, submitted

pytestmark = needs_browser


def test_a_refused_dialog_stays_open_with_the_reason_and_what_was_typed(tab: Tab) -> None:
    gate = tab.desk.folder / "typed"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done; echo a > a"
    plan = submitted(tab, "Typed", shell("a", wait), shell("b", "echo b > b", "a"))
    tab.job(plan, "b")
    dialog = tab.page.get_by_role("dialog")

    tab.press("Change needs")
    ids = dialog.get_by_role("textbox")
    ids.fill("nosuch")
    tab.press("Change it")
    expect(dialog.get_by_role("alert")).to_contain_text("nosuch")
    expect(ids).to_have_value("nosuch")
    ids.fill("a")
    tab.press("Change it")
    expect(dialog).to_have_count(0)

    tab.press("Add a job before")
    dialog.get_by_role("textbox").fill("Bad Name: x")
    tab.press("Add it")
    expect(dialog.get_by_role("alert")).to_contain_text("its id")
    expect(dialog.get_by_role("textbox")).to_have_value("Bad Name: x")
    tab.page.keyboard.press("Escape")
    expect(tab.page.get_by_role("button", name="Add a job before")).to_be_focused()

    tab.job(plan, "a")
    tab.press("Force-fail")
    dialog.get_by_role("textbox").fill("It took too long.")
    tab.page.context.set_offline(True)
    tab.press("Fail it")
    expect(dialog.get_by_role("alert")).to_contain_text("does not answer")
    expect(dialog.get_by_role("textbox")).to_have_value("It took too long.")
    tab.page.context.set_offline(False)
    tab.press("Fail it")
    expect(dialog).to_have_count(0)
    until(lambda: job_of(tab, plan, "a")["status"] == "failed", seconds=20)
    gate.touch()
    tab.says(re.compile("It took too long"))
