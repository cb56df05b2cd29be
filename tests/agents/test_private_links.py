"""A job puts links into the folder of its agent between two turns: the engine writes and reads nothing through them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchard.agents.backends.codex import Codex
from orchard.agents.backends.gemini import Gemini
from orchard.agents.backends.qwen import Qwen
from orchard.agents.backends.stream import Totals, private_home, write_private
from orchard.agents.builtin import sessions
from orchard.agents.builtin.model import Message
from orchard.agents.builtin.tool import head_and_tail
from orchard.agents.cli import Backend
from orchard.files import read_below, write_below
from orchard.model.agent_rows import AgentRow
from tests.agents.conftest import Desk, Ear

MINE = "precious settings"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A folder of the user's, with every name that the engine writes in such a folder."""
    folder = tmp_path / "users"
    (folder / ".gemini").mkdir(parents=True)
    for name in ("settings.json", ".gemini/settings.json", "usage.json"):
        (folder / name).write_text(MINE)
    return folder


def unchanged(users: Path) -> bool:
    files = sorted(path.relative_to(users).as_posix() for path in users.rglob("*") if path.is_file())
    return files == [".gemini/settings.json", "settings.json", "usage.json"] and all(
        (users / name).read_text() == MINE for name in files
    )


@pytest.mark.parametrize(
    ("backend", "link", "key", "written"),
    [
        (Qwen(), "qwen", "OPENAI_API_KEY", "qwen/settings.json"),
        (Gemini(), "gemini", "GEMINI_API_KEY", "gemini/.gemini/settings.json"),
        (Gemini(), "gemini/.gemini", "GEMINI_API_KEY", "gemini/.gemini/settings.json"),
        (Codex(), "codex", "CODEX_API_KEY", "codex"),
    ],
)
def test_settings_of_a_program_are_written_through_no_link(
    desk: Desk, ear: Ear, users: Path, backend: Backend, link: str, key: str, written: str
) -> None:
    place = desk.private / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(users)

    backend.prepare("program", AgentRow(), desk.task(env={key: "x"}), ear.told.append)

    assert unchanged(users)
    assert not place.is_symlink() and (desk.private / written).exists()


def save(private: Path) -> None:
    sessions.save(private, sessions.new_id(), [Message("user", ({"type": "text", "text": "x"},))], durable=True)


def forget(private: Path) -> None:
    sessions.forget_old(private, 0)


@pytest.mark.parametrize("act", [save, forget])
def test_conversations_are_kept_and_forgotten_through_no_link(
    tmp_path: Path, users: Path, act: Callable[[Path], None]
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / sessions.FOLDER).symlink_to(users)

    act(private)

    assert unchanged(users)


def test_a_conversation_is_read_through_no_link(tmp_path: Path) -> None:
    private, other, session = tmp_path / "private", tmp_path / "other", sessions.new_id()
    for folder in (private, other):
        folder.mkdir()
    sessions.save(other, session, [Message("user", ({"type": "text", "text": "x"},))])
    (private / sessions.FOLDER).symlink_to(other / sessions.FOLDER)

    assert sessions.read(private, session) is None


@pytest.mark.parametrize("kind", ["link", "folder", "nothing"])
def test_a_file_in_the_way_is_set_aside(tmp_path: Path, users: Path, kind: str) -> None:
    private = tmp_path / "private"
    (private / "a").mkdir(parents=True)
    if kind == "link":
        (private / "a/usage.json").symlink_to(users / "usage.json")
    elif kind == "folder":
        (private / "a/usage.json").mkdir()

    write_private(private, "a/usage.json", "ours")

    assert (private / "a/usage.json").read_text() == "ours" and unchanged(users)
    assert len(list((private / "a").iterdir())) == (2 if kind == "folder" else 1)


def test_what_the_job_may_have_put_there_for_a_reason_is_left_where_that_is_asked_for(
    tmp_path: Path, users: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gemini").symlink_to(users)

    with pytest.raises(OSError, match="in the way"):
        write_below(tmp_path / "home", ".gemini/settings.json", b"ours", aside=False)
    with pytest.raises(OSError, match="Not a directory"):
        read_below(tmp_path / "home", ".gemini/settings.json")

    assert unchanged(users) and (tmp_path / "home/.gemini").is_symlink()


def test_sums_of_a_session_and_a_home_are_made_through_no_link(desk: Desk, users: Path) -> None:
    (desk.private / "sums").symlink_to(users)
    (desk.private / "home").symlink_to(users)

    totals = Totals(desk.private, "sums/usage.json")
    totals.remember("one", {"input": 1})
    home = Path(private_home(desk.task(), "home"))

    assert unchanged(users) and Totals(desk.private, "sums/usage.json").told("one") == {"input": 1}
    assert home.is_dir() and not home.is_symlink()


@pytest.mark.parametrize("link", ["output", "folder"])
def test_what_a_command_printed_is_not_read_from_where_its_program_has_put_a_link(tmp_path: Path, link: str) -> None:
    secret = tmp_path / "users/output"
    secret.parent.mkdir()
    secret.write_text("a key of the user's")
    output = tmp_path / "scratch/tool-1/output"
    output.parent.parent.mkdir()
    if link == "output":
        output.parent.mkdir()
        output.symlink_to(secret)
    else:
        output.parent.symlink_to(secret.parent)

    assert head_and_tail(output, 1000) == b""
