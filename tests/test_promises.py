"""The table of promises in the README is the one that the page and the tests make."""

from pathlib import Path

import pytest

from tests.test_docs import tool


def test_the_readme_shows_the_promises_and_every_test_they_name_exists() -> None:
    assert tool("promises").main(["--check"]) == 0


def test_a_stale_table_is_noticed_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tool("promises")
    stale = tmp_path / "README.md"
    stale.write_text(made.PAGE.read_text("utf-8").replace("No lost commit", "No lost comet"))
    monkeypatch.setattr(made, "PAGE", stale)

    assert made.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().err

    assert made.main([]) == 0
    assert made.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("## P7 At most once per attempt", "## At most once per attempt", "promise P7 is not there"),
        ("test_zoo.py::test_a_canceled_program", "test_zoo.py::test_a_cancelled_program", "there is no"),
        ("`tests/proof/test_crash_matrix.py`", "`tests/proof/test_crush_matrix.py`", "there is no"),
    ],
    ids=["promise", "test", "file"],
)
def test_a_page_that_is_not_true_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    made = tool("promises")
    page = tmp_path / "promises.md"
    text = made.SOURCE.read_text("utf-8")
    assert old in text
    page.write_text(text.replace(old, new))
    monkeypatch.setattr(made, "SOURCE", page)

    assert made.main(["--check"]) == 1
    assert said in capsys.readouterr().err
