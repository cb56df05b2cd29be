"""What jobs leave and what they do: it lands byte by byte, or is refused and nothing of the user's has changed."""

import os
import subprocess
from pathlib import Path

import pytest

from orchard.model.events.plans import LeafMerged
from orchard.testing import Repo
from tests.acceptance.conftest import FILE, LINES, LINK, PROGRAM, Desk, Picture, Ran, Tree, is_clear, picture

A = {b"a.txt": (FILE, b"a\n")}
WORK = "echo a > a.txt"

ODD_NAMES = (
    b"new\nline", b'quo"te', b"apo'strophe", b"-rf", b"--help", b"\xff\xfe.bin", b"back\\slash", "e\u0301".encode(),
    "\u00e9".encode(), "\U0001f333".encode(), b"x" * 200, b"tab\there", b"\x1b[31mred", b" lead", b"trail ",
    b":(glob)**", b"*", b"HEAD", b"@{u}", b"dir\nwith/new\nline", b"-d/-f", b"caf\xe9/\xfe",
)  # fmt: skip


def landed(desk: Desk, ran: Ran, expected: Tree, branch: str = "work") -> None:
    """The plan succeeded, the branch holds exactly this, and the checkout of it follows."""
    assert ran.code == 0, ran.said
    assert desk.tree(branch) == expected
    assert desk.repo("status", "--porcelain", "--ignored") == ""


def refused(desk: Desk, ran: Ran, before: Picture, *words: str) -> None:
    """The plan failed with these words and a hint, and all that is the user's is as it was."""
    assert ran.code == 1, ran.said
    failed = [one for one in ran.status["jobs"] if one["status"] == "failed"]
    assert failed and all(one["error"] and one["hint"] for one in failed), failed
    for word in words:
        assert word in " ".join(one["error"] for one in failed)
        assert word in ran.out
    assert desk.picture() == before


# ---------------------------------------------------------------------------------------- contents


def test_odd_names_go_through_jobs_merges_and_the_checkout(desk: Desk) -> None:
    first: Tree = {name: (FILE, b"1 " + name) for name in ODD_NAMES}
    second: Tree = {name: (FILE, b"2 " + name) for name in ODD_NAMES[::2]}
    third: Tree = {b"other/" + name: (FILE, b"3 " + name) for name in ODD_NAMES}
    base = desk.tree("work")

    ran = desk.run(
        {"id": "a", "work": desk.writes(first)},
        {"id": "b", "needs": ["a"], "work": desk.writes(second)},
        {"id": "c", "needs": ["a"], "work": desk.writes(third), "postchecks": desk.writes({b"li\ntter": (FILE, b"")})},
        {"id": "d", "needs": ["b", "c"], "work": desk.writes({}, remove=ODD_NAMES[::2])},
        verify="true",
    )

    kept = {name: first[name] for name in ODD_NAMES[1::2]}
    landed(desk, ran, {**base, **kept, **third})
    for name in kept:
        assert (desk.repo.path / os.fsdecode(name)).read_bytes() == b"1 " + name
    assert "\x1b" not in ran.said


def test_conflicts_at_odd_names_are_told_in_print_and_land_nothing(desk: Desk) -> None:
    before = desk.picture()
    names = (b"\x1b[31mred", b"new\nline", b"\xff\xfe")
    one, two = ({name: (FILE, side + name) for name in names} for side in (b"one ", b"two "))

    ran = desk.run(desk.writes(one), desk.writes(two), resolver="fail")

    refused(desk, ran, before, "[31mred", r"new\nline", r"\377\376")
    assert "\x1b" not in ran.said


def test_a_side_settles_conflicts_at_odd_names_and_kinds(desk: Desk) -> None:
    one: Tree = {name: (FILE, b"one" + name) for name in ODD_NAMES}
    two: Tree = {name: (PROGRAM, b"two\0" + name) for name in ODD_NAMES}
    two[b"HEAD"] = (LINK, b"shared.txt")
    base = desk.tree("work")

    ran = desk.run(desk.writes(one), desk.writes(two), resolver="theirs", max_parallel=1)

    landed(desk, ran, {**base, **two})
    assert set(desk.events(LeafMerged)[-1].resolved) > {"-rf", "HEAD"}


def test_modes_links_binaries_and_empty_files_land_as_they_are(desk: Desk) -> None:
    desk.repo.write({"off.sh": "#!/bin/sh\n", "was-file": "x", "big.bin": bytes(range(256)) * 64})
    (desk.repo.path / "off.sh").chmod(0o755)
    (desk.repo.path / "was-link").symlink_to("README.md")
    desk.repo.commit()
    base = desk.tree("work")
    one: Tree = {
        b"off.sh": (FILE, b"#!/bin/sh\n"),
        b"on.sh": (PROGRAM, b"#!/bin/sh\n"),
        b"README.md": (PROGRAM, b"# small\n"),
        b"was-file": (LINK, b"dir"),
        b"was-link": (FILE, b"now a file"),
        b"dangling": (LINK, b"nothing/here"),
        b"dir/up": (LINK, b"../shared.txt"),
        b"odd-link": (LINK, b"\xff\n\x1b"),
    }
    two: Tree = {
        b"empty": (FILE, b""),
        b"big.bin": (FILE, b"\0" + bytes(range(256)) * 64),
        b"no-end": (FILE, b"no newline"),
        b"nul.bin": (PROGRAM, b"\0\r\n\0"),
    }

    ran = desk.run(desk.writes(one), desk.writes(two))

    landed(desk, ran, {**base, **one, **two})


@pytest.mark.parametrize(
    "target", [b"/etc/passwd", b"..", b"../outside", b"dir/../../outside", b".git/config", b"dir/../.git/hooks"]
)
def test_a_link_that_leaves_the_folder_is_refused(desk: Desk, target: bytes) -> None:
    before = desk.picture()

    ran = desk.run(desk.writes({b"escape": (LINK, target)}))

    refused(desk, ran, before, "links that point outside", "escape")


def test_a_link_to_a_folder_is_not_followed_by_what_another_job_writes_below_it(desk: Desk, tmp_path: Path) -> None:
    before = desk.picture()
    (tmp_path / "victim").mkdir()

    ran = desk.run(
        f"rm -r dir; ln -s {tmp_path}/victim dir; git add -A; git -c user.name=J -c user.email=j@x commit -qm link",
        "echo x > dir/planted",
        resolver="theirs",
    )

    refused(desk, ran, before, "links that point outside")
    assert list((tmp_path / "victim").iterdir()) == []


def test_a_rename_meets_an_edit_and_both_land(desk: Desk) -> None:
    base = desk.tree("work")

    ran = desk.run("git mv shared.txt moved.txt", "sed -i s/^20/twenty/ shared.txt; git mv dir/in.txt dir/out.txt")

    del base[b"shared.txt"], base[b"dir/in.txt"]
    moved = LINES.replace("\n20\n", "\ntwenty\n").encode()
    landed(desk, ran, {**base, b"moved.txt": (FILE, moved), b"dir/out.txt": (FILE, b"in\n")})


def test_two_renames_of_one_file_are_a_conflict_that_names_it(desk: Desk) -> None:
    before = desk.picture()

    ran = desk.run("git mv shared.txt one.txt", "git mv shared.txt two.txt", resolver="fail")

    refused(desk, ran, before, "shared.txt")


def test_names_that_differ_in_case_land_unless_the_file_system_cannot_hold_both(desk: Desk) -> None:
    base = desk.tree("work")
    pair: Tree = {b"readme.MD": (FILE, b"other"), b"DIR/IN.TXT": (FILE, b"IN")}

    ran = desk.run(desk.writes(pair))
    landed(desk, ran, {**base, **pair})

    desk.repo("config", "core.ignorecase", "true")
    before = desk.picture()
    again = desk.run(desk.writes({b"New.txt": (FILE, b"1"), b"new.txt": (FILE, b"2")}))
    refused(desk, again, before, "upper and lower case", "New.txt")


def test_a_file_of_fifty_megabytes_lands(desk: Desk) -> None:
    work = desk.script("import os\nblock = os.urandom(1 << 20)\nwith open('huge', 'wb') as file:\n"
                       "    for number in range(50): file.write(block + bytes([number]))\n")  # fmt: skip

    ran = desk.run(work, "echo small > small.txt")

    assert ran.code == 0, ran.said
    huge = desk.repo.path / "huge"
    assert huge.stat().st_size == 50 * ((1 << 20) + 1)
    assert desk.repo("hash-object", "huge") == desk.repo("rev-parse", "work:huge")


@pytest.mark.slow
def test_ten_thousand_files_land(desk: Desk) -> None:
    work = desk.script("import os\nfor n in range(10_000):\n    os.makedirs(f'd{n % 100}', exist_ok=True)\n"
                       "    open(f'd{n % 100}/{n}', 'w').write(str(n))\n")  # fmt: skip

    ran = desk.run(work, "echo small > small.txt")

    assert ran.code == 0, ran.said
    names = desk.repo("ls-tree", "-r", "--name-only", "work").split()
    assert len(names) == 10_000 + 4
    assert (desk.repo.path / "d42/9942").read_text() == "9942"
    assert desk.repo("status", "--porcelain") == ""
    packs = list((desk.repo.path / ".git/objects/pack").glob("*.pack"))
    assert 1 <= len(packs) <= 4, "git was made to end and sync a pack for each file"


@pytest.mark.parametrize(
    ("setting", "attributes"), [("true", None), ("input", None), ("false", "* text=auto\n"), ("true", "*.txt -text\n")]
)
def test_line_ends_are_stored_as_git_itself_would(desk: Desk, setting: str, attributes: str | None) -> None:
    if attributes is not None:
        desk.repo.commit({".gitattributes": attributes})
    desk.repo("config", "core.autocrlf", setting)
    desk.repo("config", "core.safecrlf", "false")
    base = desk.tree("work")
    content = b"one\r\ntwo\r\n"
    stored = content if attributes == "*.txt -text\n" else b"one\ntwo\n"

    names = [b"new.txt", *(b"many/%d.txt" % number for number in range(120))]  # enough to be stored in one pack

    ran = desk.run(
        {"id": "a", "work": desk.writes(dict.fromkeys(names, (FILE, content)))},
        {"id": "b", "needs": ["a"], "work": "true", "expects_no_changes": True},
        {"id": "c", "work": desk.writes({b"shared.txt": (FILE, LINES.replace("\n", "\r\n").encode() + b"21\r\n")})},
    )

    shared = LINES.encode() + b"21\n"
    if attributes == "*.txt -text\n":
        shared = shared.replace(b"\n", b"\r\n")
    landed(desk, ran, {**base, **dict.fromkeys(names, (FILE, stored)), b"shared.txt": (FILE, shared)})
    on_disk = (desk.repo.path / "new.txt").read_bytes()
    assert on_disk == (content if setting == "true" or stored == content else stored)


def test_union_merges_keep_the_lines_of_both(desk: Desk) -> None:
    desk.repo.commit({".gitattributes": "*.log merge=union\n", "a.log": "start\n"})

    ran = desk.run("echo one >> a.log", "echo two >> a.log", max_parallel=1, resolver="fail")

    assert ran.code == 0, ran.said
    assert sorted(desk.repo.files("work")["a.log"].split()) == ["one", "start", "two"]


def test_a_merge_driver_is_never_run(desk: Desk, tmp_path: Path) -> None:
    desk.repo.commit({".gitattributes": "*.txt merge=canary\n"})
    desk.repo("config", "merge.canary.driver", f"touch {tmp_path}/canary; cp %B %A")
    before = desk.picture()

    ran = desk.run("echo one >> shared.txt", "echo two >> shared.txt", resolver="fail")

    assert not (tmp_path / "canary").exists()
    refused(desk, ran, before, "shared.txt")


def test_a_filter_that_a_job_plants_is_never_run(desk: Desk, tmp_path: Path) -> None:
    work = (
        f"git config filter.evil.smudge 'touch {tmp_path}/canary; cat'; "
        f"git config filter.evil.clean 'touch {tmp_path}/canary; cat'; "
        "echo '*.txt filter=evil' > .gitattributes; echo x >> shared.txt"
    )
    before = desk.picture()

    ran = desk.run(work)

    assert not (tmp_path / "canary").exists()
    assert ran.code in (1, 4), ran.said
    after = desk.picture()
    assert (after.files, after.refs, after.index) == (before.files, before.refs, before.index)


# ------------------------------------------------------------------------------- what a job may do


ME = "git -c user.name=J -c user.email=j@x"


def test_a_job_may_commit_and_make_a_branch(desk: Desk) -> None:
    base = desk.tree("work")

    ran = desk.run(
        f"git checkout -q -b mine; echo 1 > one; git add one; {ME} commit -qm own; echo 2 > two", "echo 3 > three"
    )

    landed(desk, ran, {**base, b"one": (FILE, b"1\n"), b"two": (FILE, b"2\n"), b"three": (FILE, b"3\n")})
    assert desk.repo("rev-parse", "--abbrev-ref", "HEAD") == "work\n"
    assert desk.repo("worktree", "list").count("\n") == 1


def test_a_job_that_goes_back_in_history_is_refused(desk: Desk) -> None:
    desk.repo.commit({"second.txt": "2\n"})
    before = desk.picture()

    ran = desk.run("echo x > x.txt; git reset -q --hard HEAD~1; echo y > y.txt")

    refused(desk, ran, before, "does not build on")


def test_a_job_that_ends_in_the_middle_of_a_merge_is_refused_until_it_is_finished(desk: Desk) -> None:
    work = (
        "git checkout -q --detach; echo a > shared.txt; " + f"{ME} commit -qam a; "
        f"git checkout -q --detach HEAD~1; echo b > shared.txt; {ME} commit -qam b; git merge -q HEAD@{{2}}; "
        "echo solved > shared.txt"
    )
    base, before = desk.tree("work"), desk.picture()

    ran = desk.run(work, "echo 2 > other")
    refused(desk, ran, before, "in the middle of a git merge")

    folder = Path(ran.job("j1")["worktree"])
    assert (folder / "shared.txt").read_text() == "solved\n", "the files of the job are kept"
    subprocess.run(f"git add -A && {ME} commit -qm merged", shell=True, check=True, cwd=folder)
    again = desk("retry", "j1", "--from", "commit")
    landed(desk, again, {**base, b"shared.txt": (FILE, b"solved\n"), b"other": (FILE, b"2\n")})


def test_a_job_that_stashes_its_work_is_told_so_and_the_users_stash_stays(desk: Desk) -> None:
    desk.repo.write({"shared.txt": "the user's draft\n"})
    desk.repo("stash")
    draft = desk.repo.head("refs/stash")
    files = desk.picture().files

    ran = desk.run({"id": "j1", "work": f"echo x > README.md; {ME} stash -q", "changes": "required"})

    assert ran.code == 1 and ran.job("j1")["reason"] == "no-changes", ran.said
    assert draft in desk.repo("reflog", "show", "--format=%H", "refs/stash")
    assert desk.picture().files == files


def test_garbage_collection_and_pruning_by_jobs_lose_nothing(desk: Desk) -> None:
    gc = "git reflog expire --expire=now --all; git gc -q --prune=now; git worktree prune --expire=now"
    base = desk.tree("work")

    ran = desk.run(
        {"id": "a", "work": "echo a > a"},
        {"id": "b", "needs": ["a"], "work": f"echo b > b; {gc}"},
        {"id": "c", "work": f"{gc}; echo c > c"},
        {"id": "d", "work": f"echo d > d; git add d; {gc}; git pack-refs --all --prune", "postchecks": gc},
        {"id": "e", "needs": ["b", "c", "d"], "work": f"{gc}; git prune; echo e > e"},
        verify=f"{gc}; git prune",
    )

    landed(desk, ran, {**base, **{name.encode(): (FILE, f"{name}\n".encode()) for name in "abcde"}})
    assert desk.repo("fsck", "--no-dangling", "--no-progress") == ""


@pytest.mark.parametrize(
    "setting",
    [
        "core.fsmonitor",
        "core.hooksPath",
        "core.pager",
        "core.sshCommand",
        "diff.external",
        "gpg.program",
        "core.editor",
    ],
)
def test_programs_that_a_job_sets_are_not_run(desk: Desk, tmp_path: Path, setting: str) -> None:
    program = tmp_path / "evil"
    program.mkdir()
    for name in ("run", "post-checkout", "reference-transaction", "post-index-change", "pre-commit"):
        (program / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/canary\n")
        (program / name).chmod(0o755)
    value = program if setting == "core.hooksPath" else program / "run"

    # Set as the last thing the job does: its own git would obey.
    ran = desk.run(f"echo a > a.txt; git config {setting} {value}", "echo b > b.txt", verify="cat a.txt b.txt")

    assert not (tmp_path / "canary").exists()
    assert ran.code == 0, ran.said
    desk.repo("config", "--unset", setting)
    assert desk.tree("work")[b"b.txt"] == (FILE, b"b\n")


def test_a_job_that_replaces_its_git_file_by_a_repository_is_refused(desk: Desk) -> None:
    before = desk.picture()

    ran = desk.run("rm .git; git init -q; echo x > x; git add -A; " + f"{ME} commit -qm own")

    refused(desk, ran, before, "git repositories inside its folder")


def test_a_git_file_that_leads_elsewhere_is_not_obeyed(desk: Desk, tmp_path: Path) -> None:
    other = Repo.make(tmp_path / "other")
    before, base = picture(other), desk.tree("work")
    work = f"echo 'gitdir: {other.path}/.git' > .git; echo a > a"

    ran = desk.run({"id": "a", "work": work, "postchecks": "git cat-file -e HEAD:a"}, "echo b > b")

    landed(desk, ran, {**base, b"a": (FILE, b"a\n"), b"b": (FILE, b"b\n")})
    assert picture(other) == before


def test_a_job_that_points_its_git_file_at_the_users_checkout_changes_nothing_there(desk: Desk) -> None:
    base, before = desk.tree("work"), desk.picture()

    ran = desk.run(f"echo 'gitdir: {desk.repo.path}/.git' > .git; echo a > a.txt", target="goal")

    assert ran.code == 0, ran.said
    assert desk.tree("goal") == {**base, b"a.txt": (FILE, b"a\n")}
    assert desk.picture().without_branch("goal") == before


@pytest.mark.parametrize("way", ['rm -rf "$ORCHARD_WORKTREE"', 'cd /; mv "$ORCHARD_WORKTREE" "$ORCHARD_WORKTREE-away"'])
def test_a_job_that_takes_its_folder_away_fails_alone(desk: Desk, way: str) -> None:
    before = desk.picture()

    ran = desk.run(f"echo x > x; {way}", "echo b > b.txt")

    refused(desk, ran, before, "gone")
    assert ran.job("j2")["status"] == "succeeded"
    again = desk("retry", "--fresh")
    assert again.code == 1


def test_a_folder_that_became_a_link_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    before = desk.picture()
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/precious").write_text("p")

    ran = desk.run(f'cd /; rm -rf "$ORCHARD_WORKTREE"; ln -s {tmp_path}/victim "$ORCHARD_WORKTREE"')

    assert ran.code == 1, ran.said
    assert desk.picture() == before
    desk("delete", "--yes")
    assert (tmp_path / "victim/precious").read_text() == "p"


def test_pipes_and_sockets_are_left_out_and_the_folder_is_used_again(desk: Desk) -> None:
    base = desk.tree("work")
    odd = desk.script(
        "import os, socket\nos.mkfifo('pipe')\nsocket.socket(socket.AF_UNIX).bind('sock')\nopen('a', 'w').write('a')\n"
        "os.unlink('README.md')\nos.mkfifo('README.md')\n"
    )

    ran = desk.run({"id": "a", "work": odd}, {"id": "b", "needs": ["a"], "work": "ls > b"}, max_parallel=1)

    del base[b"README.md"]
    assert "pipe" not in desk.repo.files("work")["b"]
    landed(desk, ran, {**base, b"a": (FILE, b"a"), b"b": (FILE, b"a\nb\ndir\nshared.txt\n")})


def test_a_job_that_writes_into_the_users_checkout_cannot_make_the_landing_overwrite_it(desk: Desk) -> None:
    before = desk.picture()
    ran = desk.run(f"echo theirs > new.txt; echo mine > {desk.repo.path}/new.txt")

    assert ran.code == 4, ran.said
    assert "new.txt" in ran.out and "orchard land" in ran.out
    assert (desk.repo.path / "new.txt").read_text() == "mine\n"
    (desk.repo.path / "new.txt").unlink()
    assert desk.picture() == before

    again = desk("land", "--yes")
    assert again.code == 0, again.said
    assert desk.tree("work")[b"new.txt"] == (FILE, b"theirs\n")


def test_core_bare_set_by_a_job_neither_stops_the_plan_nor_unties_the_checkout(desk: Desk) -> None:
    base = desk.tree("work")

    ran = desk.run(
        "echo a > a; git config core.bare true", {"id": "b", "needs": ["j1"], "work": "echo b > b"}, verify="ls"
    )

    desk.repo("config", "core.bare", "false")
    landed(desk, ran, {**base, b"a": (FILE, b"a\n"), b"b": (FILE, b"b\n")})


def test_a_folder_that_a_job_closes_is_refused_and_its_work_is_kept(powerless: Desk) -> None:
    desk = powerless
    before = desk.picture()

    ran = desk.run("mkdir closed; echo x > closed/x; chmod 000 closed", "echo b > b.txt")

    refused(desk, ran, before, "closed")
    folder = Path(ran.job("j1")["worktree"])
    (folder / "closed").chmod(0o700)
    assert (folder / "closed/x").read_text() == "x\n"
    again = desk("retry", "--from", "commit")
    assert again.code == 0, again.said
    assert desk.tree("work")[b"closed/x"] == (FILE, b"x\n")


# -------------------------------------------------------------------------------------- submodules


@pytest.fixture
def with_submodule(desk: Desk, tmp_path: Path) -> Desk:
    inner = Repo.make(tmp_path / "inner")
    desk.repo("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub")
    desk.repo.commit()
    return desk


def test_jobs_work_beside_a_submodule_and_the_users_copy_stays(with_submodule: Desk) -> None:
    desk = with_submodule
    base = desk.tree("work")
    (desk.repo.path / "sub/draft").write_text("the user is typing")

    ran = desk.run(WORK, {"id": "b", "needs": ["j1"], "work": "ls sub > b.txt"})

    assert ran.code == 0, ran.said
    assert desk.tree("work") == {**base, **A, b"b.txt": (FILE, b"")}
    assert (desk.repo.path / "sub/draft").read_text() == "the user is typing"


@pytest.mark.parametrize(
    "work",
    [
        f"git update-index --cacheinfo 160000,$(git rev-parse HEAD),sub; {ME} commit -qm x",
        "git update-index --cacheinfo 160000,$(git rev-parse HEAD),sub; echo x > x",
        f"git -c protocol.file.allow=always submodule --quiet update --init; cd sub; {ME} commit -q --allow-empty -m x",
        "git -c protocol.file.allow=always submodule --quiet update --init; echo edit > sub/README.md",
        "echo loose > sub/loose.txt",
    ],
)
def test_a_job_that_changes_a_submodule_is_refused(with_submodule: Desk, work: str) -> None:
    desk = with_submodule
    before = desk.picture()

    ran = desk.run(work)

    is_clear(ran, 1)
    assert desk.picture() == before


def test_a_submodule_that_becomes_a_file_does_not_take_the_users_files_with_it(with_submodule: Desk) -> None:
    desk = with_submodule
    (desk.repo.path / "sub/draft").write_text("the user is typing")
    before = desk.picture()

    ran = desk.run("rm -r sub; ln -s README.md sub")

    is_clear(ran, 4, "submodule", "git submodule deinit")
    assert desk.picture() == before
    desk.repo("submodule", "--quiet", "deinit", "-f", "sub")
    assert desk("land", "--yes").code == 0
    assert (desk.repo.path / "sub").is_symlink()


# ------------------------------------------------------------------------ hooks and the environment


def test_what_the_environment_says_about_git_is_not_heard(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repo.make(tmp_path / "other")
    hooks = plant_hooks(tmp_path / "hooks", tmp_path, "exit 1")
    before, base = picture(other), desk.tree("work")
    for name, value in {
        "GIT_DIR": f"{other.path}/.git",
        "GIT_WORK_TREE": str(other.path),
        "GIT_INDEX_FILE": f"{other.path}/.git/index",
        "GIT_COMMON_DIR": f"{other.path}/.git",
        "GIT_OBJECT_DIRECTORY": f"{other.path}/.git/objects",
        "GIT_NAMESPACE": "elsewhere",
        "GIT_CEILING_DIRECTORIES": str(tmp_path),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(hooks),
        "GIT_CONFIG_PARAMETERS": f"'core.hooksPath={hooks}'",
        "GIT_EXTERNAL_DIFF": f"{hooks}/pre-commit",
        "GIT_EDITOR": f"{hooks}/pre-commit",
    }.items():
        monkeypatch.setenv(name, value)

    ran = desk.run("git rev-parse --show-toplevel; env | grep -c ^GIT_DIR; echo a > a.txt", verify="cat a.txt")

    assert not (tmp_path / "canary").exists()
    assert ran.code == 0, ran.said
    assert desk.tree("work") == {**base, **A}
    assert picture(other) == before


def plant_hooks(folder: Path, tmp_path: Path, then: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in (
        "pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "post-checkout", "post-merge", "post-rewrite",
        "pre-merge-commit", "reference-transaction", "post-index-change", "pre-auto-gc", "pre-push", "post-update",
    ):  # fmt: skip
        (folder / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/canary\n{then}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("then", ["exit 1", "sleep 1000", "echo evil > README.md; git add -A; exit 0"])
def test_hooks_that_fail_hang_or_write_are_not_run(desk: Desk, tmp_path: Path, then: str) -> None:
    base = desk.tree("work")
    plant_hooks(desk.repo.path / ".git/hooks", tmp_path, then)

    ran = desk.run(WORK, {"id": "b", "needs": ["j1"], "work": "echo b > b.txt"}, "echo c > c.txt", verify="true")

    assert not (tmp_path / "canary").exists()
    assert ran.code == 0, ran.said
    assert desk.tree("work") == {**base, **A, b"b.txt": (FILE, b"b\n"), b"c.txt": (FILE, b"c\n")}
    undone = desk("undo", "--yes")
    assert undone.code == 0 and not (tmp_path / "canary").exists()
