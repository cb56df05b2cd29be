"""Every command that a page shows is run, on a terminal, in the order of the page; or the page says why it is not."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.docs.pages import COMMANDS, DATA, PAGES, ROOT, WORDS, Block, blocks, page_name
from tests.docs.shell import Shell
from tests.docs.stages import STAGES, Stage
from tests.forge.scripted import TOKEN, Forge, running
from tests.surfaces.test_hints import OF_HERE, refusal

WITH_OUTPUT = ("docs/tutorial.md",)
"""Pages whose text blocks are what the commands before them print."""
REFERENCE = "docs/cli.md"
FORGE = "docs/pull-requests.md"


def squeezed(text: str) -> str:
    """A line without what differs from run to run: times, ids of plans and commits, the width of columns."""
    text = re.sub(r"\b\d+(\.\d+)?(ms|s|m\d\ds)\b", "TIME", text)
    text = re.sub(r"\b[0-9a-f]{10}\b", "COMMIT", text)
    text = re.sub(r"\b([a-z]+(?:-[a-z]+)*)-(?=[a-z0-9]*\d|[a-z0-9]{5}\b)[a-z0-9]{5}\b", r"\1-ID", text)
    return " ".join(re.sub(r"\d+(\.\d+){1,2}", "VERSION", text).split())


def assert_prints(block: Block, said: str) -> None:
    """The lines of the block come in this order, with others between them."""
    rest = [squeezed(line) for line in said.splitlines()]
    for line in block.text.splitlines():
        wanted = ".*".join(re.escape(part.strip()) for part in squeezed(line).split("..."))
        while rest and not re.search(wanted, rest[0]):
            rest.pop(0)
        assert rest, f"{block.page}:{block.line} shows '{line}', but the commands print:\n{said}"


def play(shell: Shell, page: str, stage: Stage) -> None:
    """Type every block of a page."""
    number, said = 0, ""
    for block in blocks(ROOT / page):
        if block.language == "text" and page in WITH_OUTPUT:
            assert_prints(block, said)
        if not block.is_commands:
            continue
        if before := stage.before.get(number):
            before(shell)
        number, said = number + 1, ""
        for command in block.commands() if block.not_run is None else []:
            code, printed = shell.run(command, stage.ends(command))
            said += printed
            if stage.ends(command) is None:
                assert code == stage.code(command), f"{page}:{block.line}: {command}\nexit code {code}\n{printed}"


RUN = [page_name(page) for page in PAGES if any(one.is_commands and one.not_run is None for one in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_block_of_a_page_is_run_read_or_says_why_not(page: Path) -> None:
    for block in blocks(page):
        place = f"{block.page}:{block.line}"
        assert block.language in (*COMMANDS, *DATA, *WORDS), f"{place}: a block of '{block.language}'"
        assert block.not_run is None or block.is_commands, f"{place}: only commands are run"
        assert not block.is_commands or block.commands(), f"{place}: no command"
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "json":
            msgspec.json.decode(block.text)


def test_every_page_with_commands_has_a_stage() -> None:
    assert {*RUN} - {REFERENCE} == STAGES.keys()


def test_every_example_of_the_reference_is_understood() -> None:
    """They are many, and of all kinds; what they do is tested verb by verb."""
    lines = [line for block in blocks(ROOT / REFERENCE) for line in block.commands()]
    assert len(lines) > 100
    wrong = {}
    for line in lines:
        words = shlex.split(re.split(r"\s(?:[|<>&]|2>)", line.split("| ")[-1])[0], comments=True)
        words = words[next((at for at, word in enumerate(words) if word == "orchard"), len(words)) + 1 :]
        said = refusal(words) if words else None
        if said is not None and not any(part in said for part in OF_HERE):
            wrong[line] = said
    assert not wrong


@contextmanager
def a_forge(shell: Shell) -> Iterator[Forge]:
    """A forge that the reader has a token for."""
    with running(shell.desk.folder / "forge") as forge:
        forge.make()
        shell.desk.env |= {"GH_TOKEN": TOKEN, "GITHUB_SERVER_URL": forge.url}
        yield forge


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in RUN if page not in (REFERENCE, *WITH_OUTPUT, FORGE)])
def test_the_commands_of_a_page_work(shell: Shell, page: str) -> None:
    play(shell, page, STAGES[page])


@pytest.mark.slow
def test_the_commands_of_the_page_of_pull_requests_work(shell: Shell) -> None:
    with a_forge(shell) as forge:
        shell.run(f"git remote add origin {forge.address()} && git push -q origin main")

        play(shell, FORGE, STAGES[FORGE])

        assert forge.requests[1]["title"] == "Add login"


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(shell: Shell) -> None:
    with a_forge(shell) as forge:
        page = forge.address().removesuffix(".git")
        shell.names = {"https://github.com/YOU/tally.git": forge.address(), "https://github.com/YOU/tally": page}

        play(shell, "docs/tutorial.md", STAGES["docs/tutorial.md"])

        assert forge.requests[1]["title"] == "Add a license"
    assert {"lines.py", "test_lines.py"} <= shell.repo.files("lines").keys()
    assert "LICENSE" not in shell.repo.files("main")
