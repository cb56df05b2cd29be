"""Texts of which the journal has a part say so, and are known by it."""

from collections.abc import Callable

import pytest

from orchard.text import ending, is_cut, shortened


@pytest.mark.parametrize("most", [100, 4000])
@pytest.mark.parametrize("cut", [ending, shortened])
def test_a_text_that_was_cut_is_known_and_a_whole_one_is_not(cut: Callable[[str, int], str], most: int) -> None:
    assert not is_cut(cut("x" * most, most))
    assert is_cut(cut("x" * (most + 1), most)) and is_cut(cut("a line\n" * most, most))


def test_words_about_a_cut_within_a_line_are_no_cut() -> None:
    assert not is_cut("It said [3 characters before this are left out; the log has all of them] once.")
    assert not is_cut("It said [... 3 characters left out ...] once.")
