"""What becomes of a plan that a person writes in the page."""

import json
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


def test_a_plan_that_is_too_dense_to_draw_says_so_and_leaves_the_tab_alive(tab: Tab) -> None:
    layers, width = 12, 40
    jobs = [
        {
            "id": f"j{layer}x{one}",
            "work": "true",
            "needs": [f"j{layer - 1}x{need}" for need in range(width)] if layer else [],
        }
        for layer in range(layers)
        for one in range(width)
    ]
    tab.go("/new")
    tab.page.get_by_label("The plan, as YAML").fill(json.dumps({"name": "Dense", "target": "dense", "jobs": jobs}))
    tab.says(re.compile("too dense to draw"))
    tab.says("480 jobs, 17,600 needs")

    headers = {**tab.daemon.bearer, "Content-Type": "application/json"}
    held = [{"id": "hold", "work": "sleep 600"}, *({**one, "needs": one["needs"] or ["hold"]} for one in jobs)]
    body = json.dumps({"name": "Dense", "target": "dense", "jobs": held}).encode()
    plan = str(tab.daemon.ask("POST", "/api/v1/plans", headers, body).json["plan"])
    tab.plan(plan)
    tab.says(re.compile("too dense to draw"))
    expect(tab.page.get_by_role("table")).to_have_attribute("aria-rowcount", str(len(held) + 1))
    tab.daemon.ask("POST", f"/api/v1/plans/{plan}/cancel", headers, b"{}")
