"""`--summary` and `--junit`: what a run leaves for a CI server, whatever is in names and in output."""

import signal
from collections.abc import Iterator
from html import escape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from orchard.core.views.markdown import in_code
from tests.acceptance.program import Desk, desks, until

SECRET = "correct-horse-battery-staple"
MIXED = """
name: Release
target: goal
jobs:
  - {id: good, group: back, work: "echo 1 > one.txt"}
  - {id: bad, work: "echo first; echo the last words; exit 3"}
  - {id: after, needs: [bad], work: "echo 2 > two.txt"}
  - {id: loose, allow_failure: true, work: "exit 1"}
"""
HOSTILE = r"""
name: "a | b <img src=x> `tick` ]]> & \\| @team #1 SECRET"
target: goal
env: {DEPLOY_TOKEN: SECRET}
jobs:
  - id: bad
    work: |
      printf '%s\n' '```' '# heading' '<script>alert(1)</script>' ']]>' "$DEPLOY_TOKEN"
      printf '\033[31mred\033[0m \001\002\377\376 \357\277\276 end\n'
      exit 1
""".replace("SECRET", SECRET)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def cases(path: Path) -> dict[str, ElementTree.Element]:
    return {f"{one.get('classname')}:{one.get('name')}": one for one in ElementTree.parse(path).iter("testcase")}


def test_a_run_that_fails_writes_both_reports(desk: Desk) -> None:
    page, xml = desk.folder / "summary.md", desk.folder / "jobs.xml"

    done = desk("run", desk.plan(MIXED), "--summary", page, "--junit", xml)

    assert done.code == 1
    shown = page.read_text()
    assert "## ❌ `Release`" in shown
    assert "**Failed** after" in shown
    assert "| `back/good` | ✅ succeeded |" in shown
    assert "| `bad` | ❌ failed in work |" in shown
    assert "| `loose` | ❌ failed in work (allowed) |" in shown
    assert "Nothing landed." in shown
    assert "```text\nfirst\nthe last words\n```" in shown
    assert "Next: `orchard retry" in shown
    found = cases(xml)
    assert set(found) == {"Release/back:good", "Release:bad", "Release:after", "Release:loose", "Release:validation"}
    assert len(found["Release/back:good"]) == 0
    failure = found["Release:bad"].find("failure")
    assert failure is not None
    assert failure.text == "first\nthe last words"
    assert "exited with 3" in (failure.get("message") or "")
    for name in ("after", "loose", "validation"):
        assert found[f"Release:{name}"].find("skipped") is not None, name
    suite = ElementTree.parse(xml).getroot()[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5", "failures": "1", "errors": "0", "skipped": "3",
    }  # fmt: skip


def test_a_run_that_lands_says_where_and_what_changed(desk: Desk) -> None:
    page, xml = desk.folder / "summary.md", desk.folder / "jobs.xml"
    plan = desk.plan('name: Good\ntarget: goal\njobs:\n  - {id: one, work: "echo 1 > one.txt"}\n')

    assert desk("run", plan, "--summary", page, "--junit", xml).code == 0

    shown = page.read_text()
    assert f"Landed on `goal` at `{desk.repo.head('goal')[:10]}`. 1 file changed (1 added)." in shown
    assert all(len(case) == 0 for case in cases(xml).values())


def test_hostile_text_stays_text_and_secrets_are_hidden(desk: Desk) -> None:
    page, xml = desk.folder / "summary.md", desk.folder / "jobs.xml"

    desk("run", desk.plan(HOSTILE), "--summary", page, "--junit", xml)

    assert SECRET not in page.read_text()
    assert SECRET not in xml.read_text()
    html = MarkdownIt("gfm-like", {"linkify": False}).render(page.read_text())
    assert "<img" not in html
    assert "<script" not in html
    assert "<h1" not in html
    assert html.count("<h2") == 1
    assert html.count("<h3") == 1
    assert html.count("<tr") == 3
    assert "[redacted]" in html
    root = ElementTree.parse(xml).getroot()
    assert root.get("name") == "a | b <img src=x> `tick` ]]> & \\| @team #1 [redacted]"
    assert "<script>alert(1)</script>\n]]>\n[redacted]\nred" in ElementTree.tostring(root, "unicode", "text")


@pytest.mark.parametrize("name", ["a|b", "a\\|b", "`", "``a`", "a&#124;b|", "*x*", "\\", "a\\"])
def test_a_cell_keeps_bars_and_marks_of_a_name(name: str) -> None:
    table = f"| h | i |\n| --- | --- |\n| {in_code(name)} | end |\n"

    html = MarkdownIt("gfm-like", {"linkify": False}).render(table)

    assert f"<td><code>{escape(name)}</code></td>\n<td>end</td>" in html.replace("&#39;", "'")


def test_the_summary_of_a_workflow_step_is_appended_to_without_being_asked(desk: Desk) -> None:
    step = desk.folder / "step.md"
    step.write_text("before\n")

    desk("run", desk.plan(MIXED), GITHUB_STEP_SUMMARY=str(step))
    desk("wait", GITHUB_STEP_SUMMARY=str(step))

    assert step.read_text().startswith("before\n## ❌ `Release`")
    assert step.read_text().count("## ❌ `Release`") == 2


def test_one_file_that_is_named_twice_is_written_once(desk: Desk) -> None:
    step = desk.folder / "step.md"

    desk("run", desk.plan(MIXED), "--summary", step, GITHUB_STEP_SUMMARY=str(step))

    assert step.read_text().count("## ❌ `Release`") == 1


def test_waiting_for_a_plan_writes_the_same_reports(desk: Desk) -> None:
    xml = desk.folder / "jobs.xml"
    plan = desk.plan('name: Good\ntarget: goal\njobs:\n  - {id: one, work: "echo 1 > one.txt"}\n')
    assert desk("run", plan, "--detach").code == 0

    assert desk("wait", "--junit", xml).code == 0

    assert set(cases(xml)) == {"Good:one", "Good:validation"}
    assert all(len(case) == 0 for case in cases(xml).values())


def test_a_wait_that_times_out_writes_what_is_known(desk: Desk) -> None:
    page = desk.folder / "summary.md"
    desk("run", desk.plan('name: Slow\ntarget: goal\njobs:\n  - {id: slow, work: "sleep 30"}\n'), "--detach")

    assert desk("wait", "--timeout", "0.5", "--summary", page).code == 124

    assert "**Running**" in page.read_text()
    desk("cancel", "--yes")


def test_a_run_that_is_canceled_writes_its_reports(desk: Desk) -> None:
    page = desk.folder / "summary.md"
    plan = desk.plan('name: Slow\ntarget: goal\njobs:\n  - {id: slow, work: "echo begun; sleep 30"}\n')
    running = desk.start("run", plan, "--summary", page)
    until(lambda: desk.events("ProgramStarted"))

    running.signal(signal.SIGINT)

    assert running.end().code == 130
    assert "**Canceled**" in page.read_text()


def test_a_report_that_cannot_be_written_is_said_before_anything_runs(desk: Desk) -> None:
    nowhere = desk.folder / "no" / "such.md"

    done = desk("run", desk.plan(MIXED), "--summary", nowhere)

    assert done.code == 2
    assert "such.md" in done.err
    assert not desk.events()


def test_a_report_of_a_plan_in_the_background_is_refused_with_what_to_do(desk: Desk) -> None:
    done = desk("run", desk.plan(MIXED), "--detach", "--junit", desk.folder / "jobs.xml")

    assert done.code == 2
    assert "orchard wait --junit" in done.err
    assert not desk.events()


def test_a_step_summary_that_cannot_be_written_changes_no_exit_code(desk: Desk) -> None:
    plan = desk.plan('name: Good\ntarget: goal\njobs:\n  - {id: one, work: "echo 1 > one.txt"}\n')

    done = desk("run", plan, GITHUB_STEP_SUMMARY=str(desk.folder / "no" / "step.md"))

    assert done.code == 0
    assert "cannot be written" in done.err
