"""Which repositories' settings the user has agreed to."""

import multiprocessing
import os
import stat
from datetime import date
from pathlib import Path

import pytest

from orchard.config.trust import RECORD, digest, trust, trusted
from orchard.errors import OrchardError

AGREED = digest({"setup": ["make"]})


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "orchard"


def test_nothing_is_trusted_before_it_was_agreed_to_and_asking_makes_no_file(top: Path, state: Path) -> None:
    assert not trusted(top, AGREED, state)
    assert not state.exists()


def test_what_was_agreed_to_is_trusted_and_nothing_else(top: Path, state: Path) -> None:
    trust(top, AGREED, state)

    assert trusted(top, AGREED, state)
    assert not trusted(top, digest({"setup": ["make "]}), state)
    assert not trusted(top.parent, AGREED, state)


def test_a_later_agreement_replaces_the_earlier_one(top: Path, state: Path) -> None:
    trust(top, AGREED, state)
    trust(top, "other", state)

    assert trusted(top, "other", state)
    assert not trusted(top, AGREED, state)


def test_another_folder_at_the_same_path_is_not_meant(top: Path, state: Path) -> None:
    trust(top, AGREED, state)
    top.rename(top.with_name("moved"))
    top.mkdir()

    assert not trusted(top, AGREED, state)


def test_a_folder_is_the_same_through_a_link(top: Path, state: Path) -> None:
    link = top.with_name("link")
    link.symlink_to(top)

    trust(link, AGREED, state)

    assert trusted(top, AGREED, state)


def test_a_folder_with_a_name_that_is_not_text_can_be_trusted(tmp_path: Path, state: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff\n")
    odd.mkdir()

    trust(odd, AGREED, state)

    assert trusted(odd, AGREED, state)


def test_the_record_is_for_the_user_alone(top: Path, state: Path) -> None:
    old = os.umask(0)
    try:
        trust(top, AGREED, state)
    finally:
        os.umask(old)

    assert stat.S_IMODE((state / RECORD).stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert sorted(path.name for path in state.iterdir() if not path.name.endswith(".lock")) == [RECORD]


def test_a_record_that_others_can_write_is_not_believed(top: Path, state: Path) -> None:
    trust(top, AGREED, state)
    (state / RECORD).chmod(0o622)

    assert not trusted(top, AGREED, state)
    with pytest.raises(OrchardError, match="others can write to it"):
        trust(top, AGREED, state)


def test_a_record_that_is_a_link_is_not_believed(top: Path, state: Path) -> None:
    trust(top, AGREED, state)
    (state / RECORD).rename(state / "elsewhere")
    (state / RECORD).symlink_to(state / "elsewhere")

    assert not trusted(top, AGREED, state)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"x": 1}', b"[" * 100_000, b" " * 5_000_000])
def test_a_broken_record_means_that_nothing_is_trusted(top: Path, state: Path, content: bytes) -> None:
    state.mkdir(parents=True)
    (state / RECORD).write_bytes(content)
    (state / RECORD).chmod(0o600)

    assert not trusted(top, AGREED, state)


def test_a_broken_record_is_kept_and_reported_not_overwritten(top: Path, state: Path) -> None:
    state.mkdir(parents=True)
    (state / RECORD).write_bytes(b"{")
    (state / RECORD).chmod(0o600)

    with pytest.raises(OrchardError) as caught:
        trust(top, AGREED, state)

    assert str(state / RECORD) in caught.value.message
    assert (state / RECORD).read_bytes() == b"{"


def test_a_file_left_by_a_killed_writer_is_no_obstacle(top: Path, state: Path) -> None:
    state.mkdir(parents=True)
    (state / "trust.new").symlink_to(top / "victim")

    trust(top, AGREED, state)

    assert trusted(top, AGREED, state)
    assert not (top / "victim").exists()


def _agree(top: Path, state: Path) -> None:
    trust(top, AGREED, state)


def test_agreements_made_at_the_same_time_are_all_kept(tmp_path: Path, state: Path) -> None:
    tops = [tmp_path / f"repo{number}" for number in range(6)]
    for top in tops:
        top.mkdir()
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_agree, args=(top, state)) for top in tops]

    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)

    assert [writer.exitcode for writer in writers] == [0] * 6
    assert all(trusted(top, AGREED, state) for top in tops)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"setup": ["a"]}, {"setup": ["a", ""]}),
        ({"setup": ["a", "b"]}, {"setup": ["b", "a"]}),
        ({"setup": ["a"]}, {"pass_env": ["a"]}),
        ({"setup": [{"x": 1}]}, {"setup": [{"x": True}]}),
        ({"setup": [{"x": 1}]}, {"setup": [{"x": 1.0}]}),
        ({"setup": [{"x": date(2026, 1, 1)}]}, {"setup": [{"x": "2026-01-01"}]}),
    ],
)
def test_a_digest_tells_any_two_contents_apart(one: dict[str, object], other: dict[str, object]) -> None:
    assert digest(one) != digest(other)


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"setup": ["a"], "pass_env": ["B"]}) == digest({"pass_env": ["B"], "setup": ["a"]})
