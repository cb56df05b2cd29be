"""The documentation is true where a machine can tell: links, plans, tables and names."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from orchard import errors
from orchard.model.events.plans import event_types
from orchard.model.phases import PHASES, shown_phase
from orchard.model.statuses import JobStatus, PlanStatus
from orchard.operations.operation import Verb
from orchard.operations.table import OPERATIONS
from orchard.planfile.parse import parse
from orchard.surfaces.cli.verbs import VERBS
from tests.surfaces.test_hints import OF_HERE, refusal

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])
LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """The anchors of a page, as code hosts make them."""
    titles = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for target in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        place = page.parent / name if name else page
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in headings(place)):
            broken.append(target)

    assert not broken


def plans_in_pages() -> list[tuple[str, str]]:
    return [(f"{page_name(page)}-{number}", text) for page in PAGES for number, text in enumerate(blocks(page, "yaml"))]


@pytest.mark.parametrize(("name", "text"), plans_in_pages(), ids=lambda value: value.split("\n")[0][:60])
def test_every_plan_in_a_page_can_be_parsed(name: str, text: str) -> None:
    assert parse(text.encode(), name).jobs


@pytest.mark.parametrize("name", ["state_diagram", "config_reference"])
def test_what_is_generated_is_up_to_date(name: str) -> None:
    assert tool(name).main(["--check"]) == 0


@pytest.mark.parametrize("name", ["state_diagram", "config_reference"])
def test_a_stale_page_is_noticed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tool(name)
    stale = tmp_path / "page.md"
    stale.write_text(made.PAGE.read_text("utf-8").replace("JobPicked", "JobChosen").replace("max_parallel", "most"))
    monkeypatch.setattr(made, "PAGE", stale)

    assert made.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().err

    made.main([])
    assert made.main(["--check"]) == 0


def test_every_exit_code_is_on_its_page() -> None:
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "exit-codes.md").read_text("utf-8"), re.MULTILINE)

    assert {int(row) for row in rows} == codes


def test_every_verb_that_follows_a_plan_or_asks_a_person_is_on_the_page_of_exit_codes() -> None:
    follow, ask = (ROOT / "docs" / "exit-codes.md").read_text("utf-8").split("\n\n")[-2:]
    verbs = [one.verb for one in OPERATIONS.values() if isinstance(one.verb, Verb)]

    assert [one.name for one in verbs if one.follows and f"`{one.name}`" not in follow] == []
    assert [one.name for one in verbs if one.asks and f"`{one.name}`" not in ask] == []


def test_every_status_and_phase_is_explained() -> None:
    explained = set(re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / "states.md").read_text("utf-8"), re.MULTILINE))

    assert explained == {*map(str, JobStatus), *map(str, PlanStatus), *map(shown_phase, PHASES)}


def test_the_pages_name_only_commands_that_exist() -> None:
    named = {
        (page_name(page), verb)
        for page in PAGES
        if page.name != "cli.md"
        for verb in re.findall(r"(?:^|[`'\"(])orchard ([a-z][a-z-]+)", page.read_text("utf-8"), re.MULTILINE)
    }

    assert {(page, verb) for page, verb in named if verb not in VERBS} == set()


def command_lines(page: Path) -> list[str]:
    """Every command of ours that stands in a page as one can type it: in quotes of code, or at the start of a line."""
    found = re.findall(r"(?:`|^(?:\$ )?)orchard ([a-z][^`\n]*)", page.read_text("utf-8"), re.MULTILINE)
    return [re.split(r"\s(?:#|&&|\||<|>)|;|  |: ", line)[0].strip() for line in found]


def test_the_pages_name_only_options_that_commands_take() -> None:
    lines = [(page_name(page), line) for page in PAGES if page.name != "cli.md" for line in command_lines(page)]
    assert len(lines) > 100, "the search still finds them"

    wrong = {}
    for page, line in lines:
        try:
            said = refusal(shlex.split(line.translate({ord("["): None, ord("]"): None})))
        except ValueError:
            continue  # a quote that ends on another line
        if said is not None and not any(words in said for words in (*OF_HERE, "Missing argument")):
            wrong[page, line] = said

    assert not wrong


def test_the_pages_name_only_targets_that_the_makefile_has() -> None:
    pages = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "docs/benchmarks.md")
    named = {
        one for page in pages for one in re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / page).read_text("utf-8"), re.M)
    }

    assert named and named <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def test_the_pages_name_only_events_that_exist() -> None:
    text = (ROOT / "docs" / "states.md").read_text("utf-8") + (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = set(re.findall(r"\b((?:Job|Plan|Phase|Landing|Leaf)[A-Z][a-z]+)\b", text))

    assert named - {"JobStatus", "PlanStatus", "JobId", "PlanId", "JobState", "JobRecord"} <= set(event_types())


def test_every_decision_is_listed_and_weighs_alternatives() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")

    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        assert f"decisions/{page.name}" in index
        assert "Alternatives" in page.read_text("utf-8")


def test_every_file_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = set(
        re.findall(
            r"`((?:model|core|planfile|config|process|git|store|agents|engine|operations|surfaces|bench|tools|tests)/[\w/.]+\.py)`",
            text,
        )
    )
    source = ROOT / "src" / "orchard"

    assert named and not [name for name in named if not (source / name).exists() and not (ROOT / name).exists()]
    assert len(text.splitlines()) <= 200


def test_every_promise_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "promises.md").read_text("utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)

    assert [f"P{number}" for number in range(1, 12)] == re.findall(r"^## (P\d+)", text, re.MULTILINE)
    for path, test in named:
        assert (ROOT / path).exists(), path
        assert not test or f"def {test}(" in (ROOT / path).read_text("utf-8"), (path, test)
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert all("tests/" in section for section in sections)


def test_the_picture_is_small_and_made_of_real_output() -> None:
    picture = ROOT / "docs" / "run.svg"

    assert picture.stat().st_size < 200 * 1024
    assert "textkit" in picture.read_text("utf-8").replace("&#160;", " ")


def test_tools_say_how_they_are_used() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "state_diagram.py", "--check"], capture_output=True, timeout=60, check=False
    )

    assert done.returncode == 0
