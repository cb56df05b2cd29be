"""What a person does in the dashboard, and what the engine then did."""

import json
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import expect

from tests.acceptance.program import until
from tests.web.browser import Tab, needs_browser

pytestmark = needs_browser

ROOT = Path(__file__).parent.parent.parent
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


def submitted(tab: Tab, name: str, *jobs: dict[str, object], **fields: object) -> str:
    """A plan that runs in the daemon, by its id."""
    body = json.dumps({"name": name, "target": name.lower().replace(" ", "-"), "jobs": jobs, **fields}).encode()
    made = tab.daemon.ask("POST", "/api/v1/plans", {**tab.daemon.bearer, "Content-Type": "application/json"}, body)
    assert made.status == 201, made.body
    return str(made.json["plan"])


def shell(id: str, command: str, *needs: str, **more: object) -> dict[str, object]:
    return {"id": id, "work": command, "needs": list(needs), "heal": False, **more}


def job_of(tab: Tab, plan: str, job: str) -> dict[str, object]:
    found: dict[str, object] = next(one for one in tab.status(plan)["jobs"] if one["id"] == job)
    return found


# --------------------------------------------------------------------------------------- coming in


def test_a_link_gives_a_session_once_and_a_reload_keeps_it(tab: Tab) -> None:
    link = f"http://127.0.0.1:{tab.daemon.port}/#code={tab.daemon.new_code()}"
    tab.page.goto("about:blank")
    tab.page.goto(link)
    expect(tab.page.locator("main")).not_to_contain_text("Loading")

    assert "code=" not in tab.page.url
    tab.page.reload()
    expect(tab.page.locator(".side")).to_be_visible()
    expect(tab.page.locator("main .content, main .empty h2").first).to_be_visible()
    stranger = tab.page.context.new_page()
    stranger.goto(link)
    expect(stranger.get_by_text("This tab needs a new link")).to_be_visible()
    expect(stranger.get_by_text("orchard serve", exact=True)).to_be_visible()


# ------------------------------------------------------------------------------------------- plans


def test_a_plan_is_written_checked_run_and_landed_in_the_page(tab: Tab) -> None:
    tab.go("/new")
    editor = tab.page.get_by_label("The plan, as YAML")
    editor.fill("name: Written here\ntarget: written\njobs:\n  - id: one\n    wrok: echo 1 > one.txt\n")
    tab.says(re.compile("did you mean 'work'"))
    tab.says("Line 5:")
    expect(tab.page.get_by_role("button", name="Run it")).to_be_disabled()

    editor.fill("name: Written here\ntarget: written\njobs:\n  - id: one\n    work: echo 1 > one.txt\n")
    tab.says(re.compile("1 job; nothing is wrong"))
    tab.press("Run it")

    expect(tab.page.locator("h1")).to_have_text("Written here")
    expect(tab.page.locator(".head .badge")).to_have_text("landed")
    assert tab.desk.repo.files("written")["one.txt"] == "1\n"
    tab.picture("plan-landed")
    tab.page.get_by_role("link", name="Changes").click()
    tab.says("one.txt")

    tab.press("Undo landing")
    tab.press("Undo")
    expect(tab.page.locator(".head .badge")).to_have_text("undone")
    assert tab.desk.status("Written here")["plan"]["undone"] is True


GOAL = "Greet <b>people</b>; '</textarea><script>window.__pwned=1</script>"
WRONG = "name: Greet\njobs:\n  - id: Hello\n"
GREETING = """\
name: Greet people
target: greet
verify: test -f shout.txt
jobs:
  - id: hello
    work: echo hello > hello.txt
  - id: shout
    needs: [hello]
    work: tr a-z A-Z < hello.txt > shout.txt
"""


def plans(tab: Tab) -> list[str]:
    return [one["id"] for one in tab.desk("list", "--json").json]


def test_an_agent_writes_a_plan_for_a_goal_and_nothing_runs_before_one_says_so(tab: Tab) -> None:
    (tab.desk.folder / "answer").write_text(f"```yaml\n{WRONG}```\n")
    (tab.desk.folder / "better").write_text(f"Now:\n```yaml\n{GREETING}```\n")
    before = plans(tab)
    tab.go("/new")
    editor = tab.page.get_by_label("The plan, as YAML")
    editor.fill("name: Mine\njobs: []\n")
    tab.page.get_by_label("What do you want to reach?").fill(GOAL)
    tab.page.get_by_label("Agent", exact=True).select_option("robin")
    tab.press("Write a plan")

    expect(editor).to_have_value(GREETING)
    tab.says(re.compile("Written by robin in .*, corrected 1 time"))
    tab.says(re.compile("2 jobs; nothing is wrong"))
    expect(tab.page.locator(".graph .node")).to_have_count(2)
    tab.picture("goal-written")
    assert plans(tab) == before and tab.page.evaluate("window.__pwned") is None

    tab.go("/")
    tab.go("/new")
    expect(editor).to_have_value(GREETING)
    tab.press("Put back what was there")
    expect(editor).to_have_value("name: Mine\njobs: []\n")
    tab.press("Write a plan")
    expect(editor).to_have_value(GREETING)
    editor.fill(GREETING.replace("echo hello", "echo hi there"))
    tab.says(re.compile("2 jobs; nothing is wrong"))
    tab.press("Run it")
    expect(tab.page.locator(".head .badge")).to_have_text("landed")
    assert tab.desk.repo.files("greet")["shout.txt"] == "HI THERE\n"


def test_an_agent_that_writes_a_plan_ends_with_who_wants_it(tab: Tab) -> None:
    slow = tab.desk.folder / "slow"
    ways: list[Callable[[], object]] = [lambda: tab.press("Cancel"), lambda: tab.go("/"), tab.page.reload]
    for leave in ways:
        slow.unlink(missing_ok=True)
        tab.go("/new")
        tab.page.get_by_label("What do you want to reach?").fill("Take your time")
        tab.page.get_by_label("Agent", exact=True).select_option("robin")
        tab.press("Write a plan")
        until(slow.exists)
        pid = int(slow.read_text())
        tab.says(re.compile("robin looks at a copy"))
        expect(tab.page.get_by_role("button", name="Write a plan")).to_be_disabled()
        tab.picture("goal-writing")
        assert psutil.pid_exists(pid)

        leave()

        until(partial(gone, pid), seconds=20)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


def test_a_goal_that_no_agent_can_plan_says_what_to_do(tab: Tab) -> None:
    (tab.desk.folder / "answer").write_text("I would rather not.")
    (tab.desk.folder / "better").write_text("No.")
    tab.go("/new")
    tab.page.get_by_label("What do you want to reach?").fill("Greet")
    tab.page.get_by_label("Agent", exact=True).select_option("robin")
    tab.press("Write a plan")
    tab.says(re.compile("gave no valid plan in 4 answers"))
    tab.says(re.compile("ask another agent"))

    listed: dict[str, object] = {"default": None, "agents": [], "definitions": []}
    tab.page.route("**/api/v1/agents*", lambda route: route.fulfill(json=listed))
    tab.page.reload()
    tab.says(re.compile("No agent can be used here"))
    tab.page.get_by_label("What do you want to reach?").fill("Greet")
    expect(tab.page.get_by_role("button", name="Write a plan")).to_be_disabled()
    tab.page.get_by_role("link", name="See the agents").click()
    expect(tab.page.locator("h1")).to_have_text("System")


def test_what_fails_is_shown_with_its_log_and_retried_with_other_work(tab: Tab) -> None:
    plan = submitted(tab, "Breaks", shell("bad", "printf '\\033[31mno luck\\033[0m\\n'; exit 3"))
    tab.go("/")
    card = tab.page.locator("article.plan", has_text="Breaks")
    expect(card.locator(".badge")).to_have_text("failed")
    card.locator("a.whole").click()
    expect(tab.page.locator(".node.n-bad")).to_be_visible()
    tab.page.locator("a.node.n-bad").click()
    expect(tab.page.locator(".log .a-fg-1")).to_have_text("no luck")
    tab.picture("job-failed")

    tab.press("Retry")
    tab.page.get_by_label("New work").fill("echo better > better.txt")
    tab.page.get_by_role("dialog").get_by_role("button", name="Retry").click()

    expect(tab.page.locator(".head .badge")).to_have_text("succeeded")
    assert job_of(tab, plan, "bad")["attempts"] == 2
    until(lambda: tab.status(plan)["plan"]["landed"])
    assert tab.desk.repo.files("breaks")["better.txt"] == "better\n"
    tab.page.get_by_role("link", name=re.compile("^Attempts")).click()
    expect(tab.page.locator("main section")).to_have_count(2)


def test_a_plan_is_paused_resumed_canceled_and_deleted(tab: Tab) -> None:
    plan = submitted(tab, "Slow", shell("a", "sleep 60"), shell("b", "true", "a"))
    tab.plan(plan)
    expect(tab.page.locator(".node.n-run")).to_be_visible()
    tab.press("Pause")
    until(lambda: tab.status(plan)["plan"]["status"] == "paused")
    tab.press("Resume")
    until(lambda: tab.status(plan)["plan"]["status"] == "running")

    tab.press("Cancel")
    tab.press("No")
    assert tab.desk.status(plan)["plan"]["status"] == "running"
    tab.press("Cancel")
    tab.page.get_by_label(re.compile("^Why")).fill("it sleeps")
    tab.press("Cancel it")
    expect(tab.page.locator(".head .badge")).to_have_text("canceled")
    assert tab.desk.status(plan)["plan"]["status"] == "canceled"

    tab.go("/")
    tab.page.get_by_label("Pick Slow").check()
    tab.page.get_by_role("toolbar").get_by_role("button", name="Delete").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(tab.page.locator("article.plan", has_text="Slow")).to_have_count(0)
    assert plan not in [one["id"] for one in tab.desk("list", "--json").json]


def test_several_plans_are_canceled_with_one_question(tab: Tab) -> None:
    plans = [submitted(tab, name, shell("a", "sleep 60")) for name in ("Both one", "Both two")]
    tab.go("/")
    for name in ("Both one", "Both two"):
        tab.page.get_by_label(f"Pick {name}").check()
    tab.page.get_by_role("toolbar").get_by_role("button", name="Cancel").click()
    tab.press("Cancel them")

    until(lambda: [tab.status(one)["plan"]["status"] for one in plans] == ["canceled", "canceled"], seconds=20)


def test_a_graph_is_changed_around_a_job_that_has_not_started(tab: Tab) -> None:
    gate = tab.desk.folder / "shape"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done; echo a > a"
    plan = submitted(
        tab,
        "Shape",
        shell("a", wait),
        shell("b", "echo b > b", "a"),
        shell("c", "echo c > c", "b"),
        shell("d", "echo d > d", "a", group="g"),
    )
    tab.job(plan, "b")
    tab.press("Add a job before")
    tab.page.get_by_role("textbox", name="The job").fill("new: echo new > new.txt")
    tab.press("Add it")
    until(lambda: job_of(tab, plan, "b")["needs"] == ["new"], seconds=20)
    tab.plan(plan)
    expect(tab.page.locator("a.node")).to_have_count(6)
    tab.page.locator(".box button").click()
    expect(tab.page.locator("a.node")).to_have_count(5)
    tab.page.locator(".node.folded").click()
    expect(tab.page.locator("a.node")).to_have_count(6)
    tab.job(plan, "c")
    tab.press("Remove")
    tab.press("Remove it")
    expect(tab.page.locator("a.node")).to_have_count(5)
    gate.touch()

    until(lambda: tab.status(plan)["plan"]["landed"], seconds=30)
    files = tab.desk.repo.files("shape")
    assert files["new.txt"] == "new\n" and "c" not in files


def test_a_conflict_is_resolved_by_hand(tab: Tab) -> None:
    """With a file whose name would do harm if it were more than text."""
    name = "<img src=x onerror=window.__pwned=1>.txt"
    sides = [shell(side, f"echo {side} > '{name}'") for side in ("left", "right")]
    plan = submitted(tab, "Two hands", *sides, shell("both", "true", "left", "right"), resolver="fail")
    until(lambda: tab.status(plan)["plan"]["status"] == "failed")
    tab.job(plan, "both")
    tab.press("Resolve by hand")
    tab.says(f"{name}:1")
    tab.picture("conflict")
    tab.press("Give it up")
    tab.page.get_by_role("dialog").get_by_role("button", name="Give it up").click()
    tab.press("Resolve by hand")
    tab.press("Go on with my resolution")
    expect(tab.page.locator(".toast", has_text="marker")).to_be_visible()
    part = tab.page.get_by_label("The conflict")
    folder = Path(part.locator("button[title^=Copy]").inner_text())
    assert "<<<<<<<" in (folder / name).read_text()

    (folder / name).write_text("both\n")
    tab.press("Look again")
    expect(part).to_contain_text("decided")
    tab.press("Go on with my resolution")

    until(lambda: tab.status(plan)["plan"]["landed"])
    assert tab.desk.repo.files("two-hands")[name] == "both\n"
    expect(part).to_have_count(0)
    assert tab.page.evaluate("window.__pwned") is None


# ------------------------------------------------------------------------------------------- people


def test_what_needs_a_person_is_answered_in_the_inbox(tab: Tab) -> None:
    plan = submitted(tab, "Asks", shell("careful", "echo yes > yes.txt", approve=True))
    until(tab.waiting)
    expect(tab.page.locator(".side .pill")).to_have_text("1")
    tab.page.get_by_role("link", name=re.compile("^Inbox")).click()
    tab.says(re.compile("waits for you to approve its changes"))
    tab.press("Show what it changed")
    expect(tab.page.locator(".diff tr.add")).to_contain_text("yes")
    tab.picture("inbox")

    tab.press("Approve")

    tab.says("All clear")
    until(lambda: tab.status(plan)["plan"]["landed"])


def test_comments_on_lines_reject_what_waits_for_approval_and_go_back_to_the_agent(tab: Tab) -> None:
    work = {"agent": "robin", "instructions": "Write it"}
    plan = submitted(tab, "Review", {"id": "draft", "work": work, "approve": True})
    until(tab.waiting)
    tab.job(plan, "draft", "changes")
    tab.page.get_by_title("Comment on this line").first.click()
    tab.page.get_by_role("textbox").fill("Say what was done")
    tab.press("Add comment")
    tab.press("Side by side")
    tab.page.get_by_title("Comment on this line").first.click()
    tab.page.get_by_role("textbox").fill("And why")
    tab.job(plan, "draft", "log")
    tab.says("Changes · 2 comments not sent")
    tab.page.reload()
    tab.job(plan, "draft", "changes")
    expect(tab.page.get_by_role("textbox")).to_have_value("And why")
    tab.press("Leave it")
    tab.picture("review")

    tab.press("Reject with these comments")

    until(lambda: job_of(tab, plan, "draft")["attempts"] == 2 and tab.waiting())
    found = tab.daemon.ask("GET", f"/api/v1/plans/{plan}/jobs/draft", tab.daemon.bearer)
    first = found.json["attempts_detail"][0]
    assert first["failure"]["reason"] == "rejected"
    assert "agent.txt:1\n> done\nSay what was done" in first["failure"]["message"]
    expect(tab.page.get_by_text("not sent")).to_have_count(0)
    tab.go("/inbox")
    tab.press("Reject")
    tab.page.get_by_label("What is wrong with it").fill("Not like this")
    tab.page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    until(lambda: job_of(tab, plan, "draft")["attempts"] == 3 and tab.waiting())
    tab.press("Approve")
    until(lambda: tab.status(plan)["plan"]["landed"])


def test_one_talks_with_an_agent_and_calls_it_done(tab: Tab) -> None:
    work = {"agent": "robin", "instructions": "Look at it", "interactive": True}
    plan = submitted(tab, "Talk", {"id": "chat", "work": work})
    until(tab.waiting)
    tab.job(plan, "chat", "talk")
    tab.says("I looked at it.")
    tab.page.get_by_label("A message to the agent").fill("Once more, please")
    tab.press("Send")
    expect(tab.page.locator(".said-by.you", has_text="Once more, please")).to_be_visible()
    expect(tab.page.locator(".said-by", has_text="I looked at it.")).to_have_count(2)
    tab.go("/workers")
    expect(tab.page.locator("article", has_text="chat").locator(".badge")).to_have_text("idle")
    tab.picture("workers")

    tab.press("Call it done")

    until(lambda: tab.status(plan)["plan"]["landed"])
    assert tab.desk.repo.files("talk")["agent.txt"] == "done\ndone\n"


# ------------------------------------------------------------------------------------- keeping up


def test_a_log_is_followed_as_it_grows_and_searched(tab: Tab) -> None:
    gate = tab.desk.folder / "gate"
    work = f"for i in $(seq 1 3000); do echo line $i; done; while [ ! -e {gate} ]; do sleep 0.05; done; echo the end"
    plan = submitted(tab, "Prints", shell("much", work))
    tab.job(plan, "much")
    expect(tab.page.locator(".log .l", has_text="line 3000")).to_be_visible()
    assert tab.page.locator(".log .l").count() < 200, "only what can be seen is drawn"
    gate.touch()
    expect(tab.page.locator(".log .l", has_text="the end")).to_be_visible()

    tab.page.get_by_label("Search the log").fill("line 1234")
    tab.page.get_by_label("Search the log").press("Enter")

    expect(tab.page.locator(".log .l.now")).to_contain_text("line 1234")


def test_after_a_cut_of_the_network_the_page_shows_what_the_command_line_shows(tab: Tab) -> None:
    gate = tab.desk.folder / "cut"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    jobs = shell("a", f"{wait}; echo a > a"), shell("b", "exit 1", "a"), shell("c", "true", "b")
    plan = submitted(tab, "Cut", *jobs)
    tab.plan(plan, "jobs")
    tab.says("pending")
    tab.page.context.set_offline(True)
    tab.says(re.compile("The daemon has not answered"))
    gate.touch()
    until(lambda: tab.status(plan)["plan"]["status"] == "failed", seconds=20)

    tab.page.context.set_offline(False)

    expect(tab.page.locator(".head .badge")).to_have_text("failed")
    shown = tab.page.locator(".jobs [role=cell] .badge").all_inner_texts()
    assert shown == [one["status"] for one in tab.desk.status(plan)["jobs"]]


def test_a_daemon_that_ended_leaves_a_page_that_says_what_to_run(tab: Tab) -> None:
    tab.page.route(
        "**/api/v1/**",
        lambda route: route.fulfill(status=401, json={"detail": "This needs the daemon's token.", "status": 401}),
    )

    tab.page.reload()

    tab.says("This tab needs a new link")
    tab.says("orchard serve")


# ------------------------------------------------------------------------------------- keyboard, eyes


def test_everything_is_reached_by_keys(tab: Tab) -> None:
    plan = submitted(tab, "By keys", shell("only", "echo 1 > keys.txt"))
    until(lambda: tab.status(plan)["plan"]["landed"])
    keys = tab.page.keyboard
    tab.page.locator("body").click(position={"x": 700, "y": 850})
    keys.press("g")
    keys.press("s")
    expect(tab.page.locator("h1")).to_have_text("System")
    keys.press("Control+k")
    keys.type("by keys")
    keys.press("Enter")
    expect(tab.page.locator("h1")).to_have_text("By keys")
    keys.press("Control+k")
    keys.type("only")
    keys.press("Enter")
    expect(tab.page.locator("h1")).to_have_text("only")
    keys.press("Control+k")
    expect(tab.page.get_by_role("dialog")).to_be_visible()
    keys.press("Escape")
    expect(tab.page.get_by_role("dialog")).to_have_count(0)


def test_a_phone_has_everything_that_a_desk_has(tab: Tab) -> None:
    plan = submitted(tab, "Small", shell("s", "echo 1 > small.txt"))
    until(lambda: tab.status(plan)["plan"]["landed"])
    tab.page.set_viewport_size({"width": 400, "height": 800})
    tab.plan(plan)
    expect(tab.page.locator("a.node")).to_have_count(2)
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 400, "nothing is wider than the screen"
    tab.page.get_by_role("button", name="Theme: system").click()
    expect(tab.page.locator("html[data-theme=light]")).to_be_attached()
    tab.page.get_by_role("button", name=re.compile("^Go to")).click()
    tab.page.get_by_role("option", name=re.compile("^Change the theme")).click()
    expect(tab.page.locator("html[data-theme=dark]")).to_be_attached()

    tab.page.set_viewport_size({"width": 1400, "height": 900})

    graph = "document.querySelector('.graph').getBoundingClientRect()"
    node = "document.querySelector('a.node').getBoundingClientRect()"
    middle = f"Math.abs(({graph}.left + {graph}.right) - ({node}.left + {node}.right)) / 2"
    until(lambda: tab.page.evaluate(middle) < 300, "the graph is in the middle of a larger screen", 5)


def serious(tab: Tab) -> list[object]:
    """What of the page as it is now keeps people out who hear or see otherwise."""
    found: list[object] = tab.page.evaluate(
        "async () => (await axe.run({ runOnly: ['wcag2a', 'wcag2aa'] })).violations"
        ".filter(one => ['serious', 'critical'].includes(one.impact))"
        ".map(one => [one.id, one.nodes.slice(0, 3).map(node => node.html.slice(0, 160) + node.failureSummary)])"
    )
    return found


LOOKS = [("light", 1400), ("dark", 1400), ("light", 400), ("dark", 400)]


def looked_at(tab: Tab, scheme: str, width: int) -> None:
    tab.page.set_viewport_size({"width": width, "height": 900})
    tab.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    tab.page.wait_for_timeout(150)


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_no_page_has_a_serious_problem_for_people_who_hear_or_see_otherwise(tab: Tab, scheme: str, width: int) -> None:
    plan = submitted(tab, "Seen", shell("x", "echo 1 > seen.txt", group="g"), shell("y", "exit 1", "g/x"))
    until(lambda: tab.status(plan)["plan"]["status"] == "failed", seconds=20)
    looked_at(tab, scheme, width)
    base = f"/r/{tab.repo}/{plan}"
    pages = [
        "/",
        "/new",
        "/inbox",
        "/workers",
        "/system",
        base,
        *(f"{base}/{one}" for one in ("jobs", "timeline", "changes", "usage", "events")),
    ]
    pages += [f"{base}/jobs/y", *(f"{base}/jobs/g%2Fx/{one}" for one in ("attempts", "changes", "talk", "details"))]
    found = {}
    tab.page.evaluate(AXE.read_text())
    for address in pages:
        tab.go(address)
        expect(tab.page.locator("main h1")).to_be_visible()
        expect(tab.page.locator("main [role=status]")).to_have_count(0)
        time.sleep(0.15)
        if wrong := serious(tab):
            found[address.replace(base, "PLAN")] = wrong
    assert not found, json.dumps(found, indent=1)


CODE = """\
# Greets people.
def greet(name: str, times: int = 3) -> str:
    return "hello, " + name * times
"""


@pytest.mark.slow
def test_what_pages_show_on_demand_has_no_serious_problem_either(tab: Tab) -> None:
    """A conflict, code in colours, what processes use, and an agent that writes a plan: in both themes, on a phone."""
    found = {}

    def look(what: str) -> None:
        for scheme, width in LOOKS:
            looked_at(tab, scheme, width)
            if wrong := serious(tab):
                found[f"{what}, {scheme}, {width}"] = wrong
            across = tab.page.evaluate("document.documentElement.scrollWidth")
            assert across <= width, f"{what} is wider than the screen"
        looked_at(tab, "light", 1400)

    tab.page.evaluate(AXE.read_text())
    sides = [shell(side, f"echo {side} > same.txt") for side in ("left", "right")]
    torn = submitted(tab, "Torn", *sides, shell("both", "true", "left", "right"), resolver="fail")
    until(lambda: tab.status(torn)["plan"]["status"] == "failed")
    tab.job(torn, "both")
    look("a conflict that can be resolved")
    tab.press("Resolve by hand")
    tab.says("same.txt:1")
    look("a conflict that is being resolved")

    code = submitted(tab, "Code", shell("c", f"printf %s '{CODE}' > greet.py"))
    until(lambda: tab.status(code)["plan"]["landed"])
    tab.job(code, "c", "changes")
    expect(tab.page.locator(".s-word").first).to_be_visible()
    look("colours")
    tab.press("Side by side")
    look("colours, side by side")

    busy = submitted(tab, "Busy", shell("b", "while :; do :; done"))
    tab.job(busy, "b", "details")
    expect(tab.page.locator(".spark polyline")).to_have_count(2)
    look("processor and memory")
    tab.daemon.ask(
        "POST", f"/api/v1/plans/{busy}/cancel", {**tab.daemon.bearer, "Content-Type": "application/json"}, b"{}"
    )

    (tab.desk.folder / "slow").unlink(missing_ok=True)
    (tab.desk.folder / "answer").write_text(f"```yaml\n{WRONG}```\n")
    (tab.desk.folder / "better").write_text(f"```yaml\n{GREETING}```\n")
    tab.go("/new")
    goal = tab.page.get_by_label("What do you want to reach?")
    goal.fill("Take your time")
    tab.press("Write a plan")
    until((tab.desk.folder / "slow").exists)
    look("an agent that writes a plan")
    tab.press("Cancel")
    goal.fill("Greet")
    tab.press("Write a plan")
    tab.says(re.compile("Written by robin"))
    look("a plan that was written")
    (tab.desk.folder / "better").write_text("No.")
    tab.press("Write a plan")
    tab.says(re.compile("gave no valid plan"))
    look("a plan that could not be written")
    assert not found, json.dumps(found, indent=1)
