"""Tools for files: what they do, and that no path leads them out of their folders."""

import asyncio
import os
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchard.agents.builtin import confine
from orchard.agents.builtin.confine import BadPath, Confines
from orchard.agents.builtin.tool import LONGEST_ANSWER
from orchard.agents.builtin.tools.files import file_tools, glob_matches
from orchard.agents.builtin.tools.git import find_checkout
from orchard.process.families.family import members
from orchard.testing import Repo
from tests.agents.builtin.kit import Box, make_context, open_box

pytestmark = pytest.mark.anyio


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text("the secret\n")
    return folder


@pytest.fixture
async def box(work: Path) -> AsyncIterator[Box]:
    async with open_box(work) as opened:
        yield opened


# ----------------------------------------------------------------------------------- what they do


async def test_a_file_is_written_with_its_folders_and_read_with_line_numbers(box: Box, work: Path) -> None:
    made = await box.use("write_file", path="src/new/a.py", content="one\ntwo\n")
    read = await box.use("read_file", path="src/new/a.py")

    assert (made.failed, made.text) == (False, "Made src/new/a.py: 8 bytes.")
    assert (work / "src/new/a.py").read_text() == "one\ntwo\n"
    assert read.text == "     1\tone\n     2\ttwo"


async def test_replacing_a_file_keeps_its_mode_and_is_one_step(box: Box, work: Path) -> None:
    script = work / "run.sh"
    script.write_text("old")
    script.chmod(0o755)
    other_name = work / "other"
    os.link(script, other_name)

    answer = await box.use("write_file", path="run.sh", content="new")

    assert answer.text.startswith("Replaced")
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert script.read_text() == "new"
    # A new file took its place: whoever had the old one open, or by another name, has all of the old one.
    assert other_name.read_text() == "old"
    assert sorted(path.name for path in work.iterdir()) == ["other", "run.sh"]


async def test_a_part_of_a_long_file_is_read_by_its_lines(box: Box, work: Path) -> None:
    (work / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 5001)))

    part = await box.use("read_file", path="long.txt", offset=100, limit=2)
    beyond = await box.use("read_file", path="long.txt", offset=6000)

    assert part.text == "   100\tline 100\n   101\tline 101\n[... 4,899 more lines: go on with offset 102 ...]"
    assert beyond.failed
    assert "has 5000 lines" in beyond.text


async def test_what_is_read_is_bounded_in_lines_characters_and_bytes(box: Box, work: Path) -> None:
    (work / "wide.txt").write_text("x" * 1_000_000 + "\n" + "y\n")
    (work / "many.txt").write_text(("z" * 1900 + "\n") * 500)
    with (work / "huge.txt").open("wb") as file:
        file.truncate(confine.LARGEST_FILE + 1)

    wide, many, huge = [await box.use("read_file", path=f"{name}.txt") for name in ("wide", "many", "huge")]

    assert "998,000 more" in wide.text
    assert "     2\ty" in wide.text
    assert len(many.text) <= LONGEST_ANSWER
    assert "go on with offset" in many.text
    assert huge.failed
    assert "too large" in huge.text


async def test_binary_files_folders_and_missing_files_are_told_as_such(box: Box, work: Path) -> None:
    (work / "picture.png").write_bytes(b"\x89PNG\0\0\0")

    binary, folder, missing = [await box.use("read_file", path=path) for path in ("picture.png", ".", "no/such")]

    assert binary.text == "picture.png is a binary file of 7 bytes."
    assert "is a folder" in folder.text
    assert missing.failed
    assert "There is no folder" in missing.text


async def test_an_edit_needs_one_place_and_says_how_many_it_found(box: Box, work: Path) -> None:
    place = work / "a.txt"
    place.write_text("one\ntwo\none\n")

    twice = await box.use("edit_file", path="a.txt", old_text="one", new_text="1")
    never = await box.use("edit_file", path="a.txt", old_text="three", new_text="3")
    loose = await box.use("edit_file", path="a.txt", old_text="one two", new_text="3")
    assert place.read_text() == "one\ntwo\none\n"
    once = await box.use("edit_file", path="a.txt", old_text="one\ntwo", new_text="1\n2")
    every = await box.use("edit_file", path="a.txt", old_text="\n", new_text=";\n", replace_all=True)

    assert "found 2 times in a.txt (lines 1, 3)" in twice.text
    assert "found 0 times" in never.text
    assert "other spaces or line ends" in loose.text
    assert once.text == "Edited a.txt: 1 replacement, at line 1."
    assert every.text.startswith("Edited a.txt: 3 replacements")
    assert place.read_text() == "1;\n2;\none;\n"
    assert all(answer.failed for answer in (twice, never, loose))


async def test_an_edit_keeps_the_line_ends_of_the_file(box: Box, work: Path) -> None:
    (work / "dos.txt").write_bytes(b"a\r\nb\r\nc\r\n")

    answer = await box.use("edit_file", path="dos.txt", old_text="a\nb", new_text="x\ny")

    assert not answer.failed
    assert (work / "dos.txt").read_bytes() == b"x\r\ny\r\nc\r\n"


async def test_an_edit_of_a_file_that_is_not_there_makes_nothing(box: Box, work: Path) -> None:
    answer = await box.use("edit_file", path="no/such/file.txt", old_text="a", new_text="b")

    assert answer.failed
    assert list(work.iterdir()) == []


async def test_text_that_cannot_be_written_is_refused(box: Box, work: Path) -> None:
    half = await box.use("write_file", path="a", content="\ud800")
    large = await box.use("write_file", path="b", content="x" * (4 * 1024 * 1024 + 1))

    assert half.failed
    assert large.failed
    assert list(work.iterdir()) == []


async def test_files_are_listed_without_what_git_ignores(tmp_path: Path) -> None:
    files = {".gitignore": "build/\n*.log\n", "src/a.py": "", "src/deep/b.py": "", "readme": "", "gone.py": ""}
    repo = Repo.make(tmp_path / "repo", files=files)
    repo.write({"build/out.o": "", "x.log": "", "src/new.py": "", "gone.py": None})

    async with open_box(repo.path) as box:
        everything = await box.use("list_files")
        python = await box.use("list_files", glob="*.py")
        below = await box.use("list_files", path="src", glob="deep/*.py")
        ignored = await box.use("list_files", path="build")

    assert everything.text.split("\n") == [".gitignore", "readme", "src/a.py", "src/deep/b.py", "src/new.py"]
    assert python.text.split("\n") == ["src/a.py", "src/deep/b.py", "src/new.py"]
    assert below.text == "src/deep/b.py"
    assert ignored.text == "build/out.o"


async def test_files_are_listed_where_there_is_no_repository_and_links_are_not_followed(box: Box, work: Path) -> None:
    (work / "sub").mkdir()
    (work / "sub" / "b.txt").write_text("")
    (work / "a.txt").write_text("")
    (work / "out").symlink_to("../secret")

    assert (await box.use("list_files")).text.split("\n") == ["a.txt", "sub/b.txt"]


async def test_a_list_that_is_too_long_is_cut_and_says_so(box: Box, work: Path) -> None:
    for number in range(1200):
        (work / f"file-{number:04}").touch()

    lines = (await box.use("list_files")).text.split("\n")

    assert len(lines) == 1001
    assert lines[-1] == "[... 200 more: narrow it by a path or a glob ...]"


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.py", "a/b/c.py", True),
        ("a/*.py", "a/b.py", True),
        ("a/*.py", "a/b/c.py", False),
        ("a/**/c.py", "a/c.py", True),
        ("a/**/c.py", "a/x/y/c.py", True),
        ("**/t_*.ts", "t_a.ts", True),
        ("src/**", "src/a/b", True),
        ("src/**", "lib/a", False),
        ("[ab].c", "x/b.c", True),
        ("*a" * 60 + "b", "a" * 4000, False),
        ("/".join(["**"] * 60) + "/b", "/".join("a" * 99), False),
    ],
)
def test_globs_mean_what_people_expect_and_never_take_long(glob: str, path: str, fits: bool) -> None:
    began = time.process_time()

    assert glob_matches(glob, path) is fits
    assert time.process_time() - began < 2


async def test_a_search_finds_lines_in_files_that_git_does_not_ignore(tmp_path: Path) -> None:
    repo = Repo.make(
        tmp_path / "repo", files={".gitignore": "x.log\n", "a.py": "import os\nfoo = 1\n", "b.txt": "FOO\n"}
    )
    repo.write({"x.log": "foo", "bin.dat": b"foo\0", "new.py": "\x1b[31mfoo()\n"})

    async with open_box(repo.path) as box:
        plain = await box.use("search_files", pattern=r"fo+\b")
        any_case = await box.use("search_files", pattern="^foo", ignore_case=True, glob="*.txt")
        one_file = await box.use("search_files", pattern="import", path="a.py")
        limited = await box.use("search_files", pattern=".", limit=1)
        nothing = await box.use("search_files", pattern="nowhere")
        wrong = await box.use("search_files", pattern="(")

    assert plain.text.split("\n") == ["a.py:2: foo = 1", "new.py:1: foo()"]
    assert any_case.text == "b.txt:1: FOO"
    assert one_file.text == "a.py:1: import os"
    assert "there is more" in limited.text
    assert nothing.text == "No matches."
    assert wrong.failed
    assert "not a regular expression" in wrong.text


async def test_an_expression_that_would_take_for_ever_is_stopped_and_what_was_found_is_kept(work: Path) -> None:
    (work / "a.txt").write_text("aaaaaaab\n")
    (work / "b.txt").write_text("a" * 60 + "!\n")
    context = make_context(work)
    search = next(t for t in file_tools(context, find_checkout(work), search_seconds=3) if t.name == "search_files")

    answer = await asyncio.wait_for(search.execute(context, {"pattern": r"^(a+)+b?$|aab$"}), 30)

    assert answer.failed
    assert "a.txt:1: aaaaaaab" in answer.text
    assert "stopped after 3 s" in answer.text
    assert members(context.launcher.token) == []


# ------------------------------------------------------------------------------- no way out


ESCAPES = {
    "dots": "../secret/key.txt",
    "dots in between": "sub/../../secret/key.txt",
    "absolute": "{outside}/key.txt",
    "a link to the file": "link-to-file",
    "a link to the folder": "link-to-folder/key.txt",
    "an absolute link": "absolute-link/key.txt",
    "a link to a link": "sub/chain/key.txt",
    "dots behind a link": "inner-link/../../../secret/key.txt",
    "the process's own folder": "/proc/self/cwd/key.txt",
    "a link to the process's own folder": "proc-link/key.txt",
    "the process's root": "/proc/self/root{outside}/key.txt",
}


@pytest.fixture
def trapped(work: Path) -> Path:
    outside = work.parent / "secret"
    (work / "sub" / "deep").mkdir(parents=True)
    (work / "link-to-file").symlink_to("../secret/key.txt")
    (work / "link-to-folder").symlink_to("../secret")
    (work / "absolute-link").symlink_to(outside)
    (work / "sub" / "chain").symlink_to("../link-to-folder")
    (work / "inner-link").symlink_to("sub/deep")
    (work / "proc-link").symlink_to("/proc/self/cwd")
    return work


@pytest.mark.parametrize("way", ESCAPES)
async def test_no_path_leads_out(way: str, trapped: Path, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = trapped.parent / "secret"
    monkeypatch.chdir(outside)
    path = ESCAPES[way].format(outside=outside)

    read = await box.use("read_file", path=path)
    written = await box.use("write_file", path=path, content="overwritten")
    edited = await box.use("edit_file", path=path, old_text="secret", new_text="overwritten")
    beside = await box.use("write_file", path=path.replace("key.txt", "new.txt"), content="made")
    listed = await box.use("list_files", path=path.rpartition("/")[0] or path)
    searched = await box.use("search_files", pattern="secret", path=path)

    for answer in (read, written, edited, listed, searched):
        assert answer.failed
        assert "the secret" not in answer.text
    assert [path.name for path in outside.iterdir()] == ["key.txt"]
    assert (outside / "key.txt").read_text() == "the secret\n"
    assert beside.failed or way == "a link to the file"


async def test_links_that_stay_inside_and_absolute_paths_into_the_folder_are_followed(box: Box, work: Path) -> None:
    (work / "real").mkdir()
    (work / "link").symlink_to("real")
    (work / "absolute").symlink_to(work / "real")
    (work / "over-the-top").symlink_to(f"../{work.name}/real")
    (work / "dangling").symlink_to("real/later.txt")

    by_link = await box.use("write_file", path="link/a.txt", content="a")
    dangling = await box.use("write_file", path="dangling", content="later")

    assert not by_link.failed
    assert not dangling.failed
    for path in ("real/a.txt", "absolute/a.txt", "over-the-top/a.txt", f"{work}/link/a.txt", "link/../real/./a.txt"):
        assert (await box.use("read_file", path=path)).text == "     1\ta"
    assert (work / "dangling").is_symlink()
    assert (work / "real" / "later.txt").read_text() == "later"


async def test_allowed_folders_are_reached_and_nothing_beside_them(work: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()

    async with open_box(work, allowed_folders=(shared,)) as box:
        made = await box.use("write_file", path=f"{shared}/a.txt", content="x")
        relative = await box.use("read_file", path="../shared/a.txt")
        listed = await box.use("list_files", path=str(shared))
        beside = await box.use("read_file", path="../secret/key.txt")
        longer_name = await box.use("write_file", path=f"{shared}-not/a.txt", content="x")

    assert not made.failed
    assert relative.text == "     1\tx"
    assert listed.text == f"{shared}/a.txt"
    assert beside.failed
    assert longer_name.failed


async def test_a_link_that_is_put_in_place_while_a_path_is_walked_leads_nowhere(work: Path) -> None:
    """A folder and a link to outside swap places all the time: whatever is read is never the outside."""
    inside, secret = work / "door", work.parent / "secret"
    inside.mkdir()
    (inside / "key.txt").write_text("harmless\n")
    link = work / "link"
    link.symlink_to(secret)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for old, new in (("door", "parked"), ("link", "door"), ("door", "link"), ("parked", "door")):
                (work / old).rename(work / new)

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[bytes | str] = set()
    confines = Confines([work])
    try:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            try:
                with confines.reach("door/key.txt") as place:
                    seen.add(place.read())
                # Not `writing`, which would make the folder in the moments when there is none, and end the swapping.
                with confines.reach("door/made.txt") as place:
                    place.write(b"x")
            except BadPath:
                seen.add("refused")
    finally:
        done.set()
        swapping.join()

    assert b"harmless\n" in seen
    assert "refused" in seen
    assert b"the secret\n" not in seen
    assert [path.name for path in secret.iterdir()] == ["key.txt"]


async def test_gits_own_folder_is_not_written_to_in_any_way(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo")
    (repo.path / "link").symlink_to(".git")
    config = (repo.path / ".git" / "config").read_text()

    async with open_box(repo.path) as box:
        for path in (".git/config", "link/config", ".GIT/config", ".git/hooks/pre-commit", "sub/.git", "./.git/../x"):
            assert (await box.use("write_file", path=path, content="[core]")).failed
            assert (await box.use("edit_file", path=path, old_text="core", new_text="x")).failed

    assert (repo.path / ".git" / "config").read_text() == config
    assert not (repo.path / ".git" / "hooks" / "pre-commit").exists()
    assert not (repo.path / "sub" / ".git").exists()


async def test_pipes_and_devices_are_not_opened(box: Box, work: Path) -> None:
    os.mkfifo(work / "pipe")
    (work / "zero").symlink_to("/dev/zero")

    for path in ("pipe", "zero", "/dev/zero"):
        answers = [
            await asyncio.wait_for(box.use("read_file", path=path), 20),
            await asyncio.wait_for(box.use("write_file", path=path, content="x"), 20),
            await asyncio.wait_for(box.use("search_files", pattern="x", path=path), 20),
        ]
        assert all(answer.failed for answer in answers)
    found = await asyncio.wait_for(box.use("search_files", pattern="x"), 20)
    assert found.text == "No matches."


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000, "y" * 300, "/".join("a" * 500), "\ud800", "loop/x"])
async def test_paths_that_are_none_are_answered_in_words(path: str, box: Box, work: Path) -> None:
    (work / "loop").symlink_to("loop")

    answer = await box.use("write_file", path=path, content="x")

    assert answer.failed
    assert len(answer.text) < 6000


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
def test_walking_leaves_no_descriptor_open(work: Path) -> None:
    (work / "a" / "b").mkdir(parents=True)
    confines = Confines([work])
    before = len(list(Path("/proc/self/fd").iterdir()))

    for path in ("a/b/c", "a/../a/b/../../x", "../out", "/etc/passwd", "no/such/thing"):
        try:
            with confines.reach(path):
                pass
        except BadPath:
            continue

    assert len(list(Path("/proc/self/fd").iterdir())) == before
