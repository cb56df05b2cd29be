"""A job's work becomes one commit under its ref, or is refused with a reason."""

import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from orchard.git.refs import RefMoved
from orchard.git.repository import Repository, Worktree, find_repository
from orchard.git.worktree.commit import Changes, CommitInfo, Committed, Refused, commit_work, worktree_changes
from orchard.git.worktree.review import Finding, review
from orchard.git.worktree.status import display
from orchard.git.worktree.worktrees import Worktrees
from orchard.testing import Repo

REF = "refs/orchard/keep/p1/build/1"
INFO = CommitInfo("Build it", REF, ("Ada Tester", "ada@example.com"))


@pytest.fixture
def worktree(repo: Repo, trees: Worktrees) -> Worktree:
    repo.commit({"a": "a\n", "b": "b\n", "dir/c": "c\n", ".gitignore": "*.o\n"})
    return trees.add(repo.head(), "job")


@pytest.fixture(params=["by git", "by ourselves"], autouse=True)
def way(request: pytest.FixtureRequest, trees: Worktrees, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds in both ways; the second is taken where nobody else wrote to the index."""

    def ours(repo: Repository, worktree: Worktree, base: str, info: CommitInfo) -> Committed | Refused:
        return commit_work(repo, worktree, base, info, made_from=trees.made_from(worktree))

    if request.param == "by ourselves":
        monkeypatch.setattr(sys.modules[__name__], "commit_work_of", ours)


commit_work_of = commit_work


@pytest.fixture
def job(worktree: Worktree) -> Repo:
    """The worktree, as the job sees it."""
    return Repo(worktree.path)


def commit(repository: Repository, worktree: Worktree, base: str, info: CommitInfo = INFO) -> Committed:
    done = commit_work_of(repository, worktree, base, info)
    assert isinstance(done, Committed), done
    return done


def refuse(repository: Repository, worktree: Worktree, base: str, info: CommitInfo = INFO) -> Refused:
    done = commit_work_of(repository, worktree, base, info)
    assert isinstance(done, Refused), done
    assert info.ref not in Repo(worktree.path).refs()
    return done


def test_changes_become_one_commit_under_its_ref(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    job.write({"a": "edited\n", "new": "x\n", "dir/c": None, "x.o": "ignored"})
    info = CommitInfo("Build it", REF, ("Ada", "a@b.c"), "Why.", (("Orchard-Plan", "p1"), ("Orchard-Job", "build\nx")))

    done = commit(repository, worktree, base, info)

    assert (done.changed, done.added, done.modified, done.deleted) == (True, 1, 1, 1)
    assert repo.refs() == {REF: done.commit}
    assert repo("log", "-1", "--format=%an %ae %cn%n%B", done.commit).strip() == (
        "Ada a@b.c Ada\nBuild it\n\nWhy.\n\nOrchard-Plan: p1\nOrchard-Job: build x"
    )
    assert repo.head(f"{done.commit}^") == base
    assert repo.files(done.commit).keys() == {"README.md", ".gitignore", "a", "b", "new"}
    assert job.head() == done.commit and job.run("symbolic-ref", "-q", "HEAD").status == 1
    assert job("status", "--porcelain") == ""


def test_no_change_is_no_commit(repo: Repo, repository: Repository, worktree: Worktree, job: Repo) -> None:
    job.write({"x.o": "ignored"})
    os.utime(worktree.path / "a")

    done = commit(repository, worktree, repo.head())

    assert done == Committed(repo.head(), changed=False)
    assert repo.refs() == {}


def test_a_change_that_was_taken_back_is_no_change(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    job.write({"a": "edited\n"})
    job("add", "a")
    job.write({"a": "a\n"})

    assert not commit(repository, worktree, repo.head()).changed


def test_the_jobs_own_commits_are_the_result(repo: Repo, repository: Repository, worktree: Worktree, job: Repo) -> None:
    base = repo.head()
    mine = job.commit({"mine": "1"})

    done = commit(repository, worktree, base)

    assert (done.commit, done.changed, done.added) == (mine, True, 1)


def test_what_the_job_left_over_goes_on_top_of_its_commits(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    job("checkout", "-q", "-b", "agents-own")
    mine = job.commit({"mine": "1"})
    job.write({"more": "2"})

    done = commit(repository, worktree, base)

    assert repo.head(f"{done.commit}^") == mine
    assert repo.files(done.commit)["more"] == "2"
    assert repo.head("agents-own") == mine
    assert repository.checkouts()[-1].branch is None


def test_the_same_again_is_the_same(repo: Repo, repository: Repository, worktree: Worktree, job: Repo) -> None:
    base = repo.head()
    job.write({"new": "x"})
    first = commit(repository, worktree, base)

    assert commit(repository, worktree, base).commit == first.commit


def test_a_commit_whose_maker_was_killed_before_head_moved_is_found_again(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    job.write({"new": "x"})
    first = commit(repository, worktree, base)
    older = repo("commit-tree", f"{first.commit}^{{tree}}", "-p", base, "-m", "of another time").strip()
    repo("update-ref", REF, older)
    job("reset", "-q", "--soft", base)

    again = commit(repository, worktree, base)

    assert again.commit == older == job.head()


def test_a_ref_that_holds_something_else_is_not_overwritten(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    repo("update-ref", REF, "HEAD")
    job.write({"new": "x"})

    with pytest.raises(RefMoved):
        commit_work_of(repository, worktree, repo.head(), INFO)

    assert repo.refs() == {REF: repo.head()}


def test_a_head_that_does_not_build_on_the_base_is_refused(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    job("checkout", "-q", "--detach", "HEAD~1")
    job.commit({"elsewhere": "x"})

    refused = refuse(repository, worktree, base)

    assert "does not build on" in refused.message


def _conflicting(job: Repo) -> tuple[str, str]:
    """Two commits that change the same line; HEAD is at the second."""
    start = job.head()
    theirs = job.commit({"a": "theirs\n"}, message="theirs")
    job("checkout", "-q", "--detach", start)
    return theirs, job.commit({"a": "ours\n", "part": "1"}, message="ours")


UNFINISHED = {
    "merge": ("merge", "{theirs}"),
    "cherry-pick": ("cherry-pick", "{theirs}"),
    "revert": ("revert", "--no-edit", "HEAD~1"),
    "rebase": ("rebase", "{theirs}"),
    "am": ("am", "-3", "patch"),
    "bisect": ("bisect", "start", "HEAD", "HEAD~2"),
}


@pytest.mark.parametrize("operation", UNFINISHED)
def test_work_that_ends_in_the_middle_of_an_operation_is_refused(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo, operation: str
) -> None:
    base = repo.head()
    theirs, _ = _conflicting(job)
    if operation == "revert":
        job.commit({"a": "again\n"})
        job.commit({"a": "and again\n"})
    if operation == "am":
        (job.path / "patch").write_text(job("format-patch", "-1", "--stdout", theirs))
    job.run(*(word.format(theirs=theirs) for word in UNFINISHED[operation]))

    refused = refuse(repository, worktree, base)

    assert f"in the middle of a git {operation}" in refused.message and refused.unfinished
    assert operation in refused.hint


def test_an_interactive_rebase_that_stopped_without_a_conflict_is_refused(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    for number in range(3):
        job.commit({f"part{number}": "x"})
    job.run("rebase", "-q", "--exec", "false", base)
    assert not (job.path / "part2").exists()

    assert "rebase" in refuse(repository, worktree, base).message


def test_conflicts_that_are_not_resolved_are_refused_also_without_an_operation(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    job.write({"a": "stashed\n"})
    job("stash")
    job.commit({"a": "committed\n"})
    job.run("stash", "pop")

    refused = refuse(repository, worktree, base)

    assert refused.paths == ("a",) and "not resolved" in refused.message


def test_a_merge_that_the_job_finished_is_its_result(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    theirs, ours = _conflicting(job)
    job.run("merge", theirs)
    merged = job.commit({"a": "both\n"})

    assert commit(repository, worktree, base).commit == merged
    assert repo("rev-parse", f"{merged}^1", f"{merged}^2").split() == [ours, theirs]


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("where", ["inner", "dir", "deep/er"])
def test_embedded_repositories_are_refused(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo, where: str, staged: bool
) -> None:
    Repo.make(worktree.path / where)
    if staged:
        job.run("-c", "advice.addEmbeddedRepo=false", "add", where)

    refused = refuse(repository, worktree, repo.head())

    assert refused.paths[0].startswith(where) and refused.hint


def test_a_gitlink_that_the_job_committed_is_refused(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    job("update-index", "--add", "--cacheinfo", f"160000,{base},sub")
    job("commit", "-q", "-m", "a submodule")

    assert refuse(repository, worktree, base).paths == ("sub",)


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../x", "dir/../../x", ".git/config", "dir/../.GIT/hooks", "a/..", "../../../../../etc"]
)
def test_links_that_lead_out_are_refused(repo: Repo, repository: Repository, worktree: Worktree, target: str) -> None:
    (worktree.path / "link").symlink_to(target)

    assert refuse(repository, worktree, repo.head()).paths == ("link",)


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ([".venv/bin/python"], "'.venv' looks like a folder of installed packages: add '.venv' to .gitignore"),
        (["web/node_modules/x/.bin/y"], "add 'web/node_modules' to .gitignore"),
        (["node_modules"], "add 'node_modules' to .gitignore"),
        (["py/bin/python"], "add 'py' to .gitignore"),
        ([".venv/bin/python", "node_modules/x"], "add '.venv' and 'node_modules' to .gitignore"),
        ([".venv/bin/python", "link"], "relative links"),
        (["venv.d/link"], "relative links"),
    ],
)
def test_links_among_installed_packages_are_to_be_ignored(
    repo: Repo, repository: Repository, worktree: Worktree, links: list[str], said: str
) -> None:
    for name in links:
        (worktree.path / name).parent.mkdir(parents=True, exist_ok=True)
        (worktree.path / name).symlink_to("/usr/bin/python3")
    if links[0].startswith("py/"):
        (worktree.path / "py" / "pyvenv.cfg").write_text("home = /usr/bin\n")

    refused = refuse(repository, worktree, repo.head())

    assert said in str(refused.hint) and ("gitignore" in str(refused.hint)) == ("gitignore" in said)


@pytest.mark.parametrize(("name", "target"), [("link", "a"), ("dir/link", "../a"), ("dir/l2", "./c"), ("broken", "no")])
def test_links_that_stay_inside_are_fine(
    repo: Repo, repository: Repository, worktree: Worktree, name: str, target: str
) -> None:
    (worktree.path / name).symlink_to(target)

    assert repo("cat-file", "blob", f"{commit(repository, worktree, repo.head()).commit}:{name}") == target


def test_links_that_were_there_before_are_not_the_jobs_fault(repo: Repo, trees: Worktrees) -> None:
    (repo.path / "old").symlink_to("/etc/passwd")
    base = repo.commit()
    worktree = trees.add(base, "job")
    Repo(worktree.path).write({"new": "x"})

    assert commit(trees.repo, worktree, base).changed


@pytest.mark.parametrize("where", ["fixture/", "Deep/er/", ""])
@pytest.mark.parametrize("last", ["refs/heads/main", "config"])
def test_planted_bare_repositories_are_refused(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo, where: str, last: str
) -> None:
    job.write({f"{where}HEAD": "ref: refs/heads/main\n", f"{where}objects/x": "", f"{where}{last}": "y"})

    refused = refuse(repository, worktree, repo.head())

    assert refused.paths == (where.rstrip("/") or ".",)


def test_a_bare_repository_that_is_completed_by_the_job_is_refused(repo: Repo, trees: Worktrees) -> None:
    base = repo.commit({"x/HEAD": "h", "x/refs/keep": ""})
    worktree = trees.add(base, "job")
    Repo(worktree.path).write({"x/objects/info/keep": ""})

    assert refuse(trees.repo, worktree, base).paths == ("x",)


@pytest.mark.parametrize(
    "name",
    [".GIT/x", "sub/.Git", "git~1/x", ".git /x", ".g\u200cit/x", "a\\.git", ".git\\x", ".git::$INDEX_ALLOCATION/x"],
)
def test_names_that_pass_for_git_are_refused(repo: Repo, repository: Repository, name: str) -> None:
    blob = repo("hash-object", "-w", "--stdin", stdin=b"evil").strip()
    parts = name.split("/")
    tree = repo("mktree", stdin=f"100644 blob {blob}\t{parts[-1]}\n".encode()).strip()
    for part in reversed(parts[:-1]):
        tree = repo("mktree", stdin=f"040000 tree {tree}\t{part}\n".encode()).strip()

    found = review(repository, repo.head(), tree)

    assert isinstance(found, Finding) and found.paths == (display(name.encode()),)


@pytest.mark.parametrize("name", ["git~1", ".GIT/notes", ".git\\x", "link .gitmodules"])
@pytest.mark.parametrize("beside", ["a link", "nothing", "many files"])
def test_names_that_git_ignores_are_refused_and_never_left_out(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo, name: str, beside: str
) -> None:
    name = name.removeprefix("link ")
    if name == ".gitmodules":
        (worktree.path / name).symlink_to("a")
    else:
        job.write({name: "precious"})
    job.write({"x.txt": "x"})
    if beside == "a link":
        (worktree.path / "link").symlink_to("x.txt")
    elif beside == "many files":
        job.write({f"n{number}": "x" for number in range(120)})

    assert refuse(repository, worktree, repo.head()).paths == (display(name.encode()),)


@pytest.mark.parametrize("more", [{}, {"x": "x"}])
@pytest.mark.parametrize("target", ["a", "other"])
def test_a_folder_that_became_a_link_is_committed(
    repo: Repo, trees: Worktrees, more: dict[str, str], target: str
) -> None:
    base = repo.commit({"a": "a", "n/c": "c", "n/d/e": "e", "other/c": "c"})
    worktree = trees.add(base, "job")
    shutil.rmtree(worktree.path / "n")
    (worktree.path / "n").symlink_to(target)
    Repo(worktree.path).write(more)

    files = repo.files(commit(trees.repo, worktree, base).commit)

    assert files["n"] == target and not [name for name in files if name.startswith("n/")]
    assert files.keys() >= more.keys() and files["other/c"] == "c"


def test_paths_that_differ_only_in_case_are_refused_where_that_matters(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    job.write({"A": "x", "DIR/d": "y"})
    repo("config", "core.ignorecase", "true")
    git = repository.worktree_git(worktree.name, worktree.path)
    git("-c", "core.ignorecase=false", "add", "-A")

    assert set(refuse(find_repository(repo.path), worktree, repo.head()).paths) >= {"A", "a"}


def test_the_same_paths_are_fine_elsewhere(repo: Repo, repository: Repository, worktree: Worktree, job: Repo) -> None:
    job.write({"A": "x"})

    assert commit(repository, worktree, repo.head()).added == 1


def test_odd_names_and_modes_are_committed(repo: Repo, repository: Repository, worktree: Worktree) -> None:
    names = [b"new\nline", b"quote\"'", b"-dash", b"\xff\xfe", b" space ", b"glob*[a]"]
    for name in names:
        (worktree.path / os.fsdecode(name)).write_bytes(name)
    (worktree.path / "b").chmod(0o755)

    done = commit(repository, worktree, repo.head())

    assert (done.added, done.modified) == (len(names), 1)
    assert {os.fsdecode(name) for name in names} <= set(repo("ls-tree", "-z", "--name-only", done.commit).split("\0"))
    assert repo("ls-tree", done.commit, "b").startswith("100755")


def test_line_endings_follow_the_users_setting(repo: Repo, trees: Worktrees) -> None:
    repo("config", "core.autocrlf", "true")
    base = repo.commit({"text": "one\r\ntwo\r\n"})
    worktree = trees.add(base, "job")
    assert (worktree.path / "text").read_bytes() == b"one\r\ntwo\r\n"
    assert not commit(trees.repo, worktree, base).changed
    (worktree.path / "text").write_bytes(b"one\r\ntwo\r\nthree\r\n")

    done = commit(trees.repo, worktree, base)

    assert repo.run("cat-file", "blob", f"{done.commit}:text").stdout == b"one\ntwo\nthree\n"


def test_a_filter_of_the_users_is_honoured(repo: Repo, tmp_path: Path) -> None:
    repo("config", "filter.up.clean", "tr a-z A-Z")
    repo("config", "filter.up.smudge", "tr A-Z a-z")
    base = repo.commit({".gitattributes": "*.up filter=up\n", "x.up": "hello\n"})
    found = find_repository(repo.path)
    trees = Worktrees(found, found.worktree_root(".worktrees"))
    worktree = trees.add(base, "job")
    assert (worktree.path / "x.up").read_text() == "hello\n"
    Repo(worktree.path).write({"y.up": "more\n"})

    done = commit(found, worktree, base)

    assert repo.files(done.commit)["y.up"] == "MORE\n"


def test_a_stale_index_lock_in_our_worktree_does_not_stop_us(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    (repository.common_dir / "worktrees" / worktree.name / "index.lock").touch()
    job.write({"new": "x"})

    assert commit(repository, worktree, repo.head()).changed


def test_a_refusal_of_gits_names_its_cause(repo: Repo, repository: Repository, worktree: Worktree, job: Repo) -> None:
    job.write({"a": "edited\n"})
    blob = repo("hash-object", "--stdin", stdin=b"edited\n").strip()
    (repo.path / ".git" / "objects" / blob[:2]).write_text("in the way of a folder")

    refused = commit_work(repository, worktree, repo.head(), INFO)

    assert isinstance(refused, Refused)
    assert "Not a directory" in refused.message or "File exists" in refused.message, refused.message


def test_objects_that_vanished_are_written_again(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    job.write({"new": "pruned by a gc beside us"})
    job("add", "new")
    blob = job("rev-parse", ":new").strip()
    (repository.common_dir / "objects" / blob[:2] / blob[2:]).unlink()

    done = commit(repository, worktree, repo.head())

    assert repo.files(done.commit)["new"] == "pruned by a gc beside us"


def test_commits_survive_gc_beside_and_after_them(repo: Repo, trees: Worktrees) -> None:
    base = repo.commit({"a": "a"})
    stop = threading.Event()

    def collect() -> None:
        while not stop.is_set():
            repo.run("gc", "-q", "--prune=now")

    collector = threading.Thread(target=collect)
    collector.start()
    results = {}
    try:
        for number in range(10):
            worktree = trees.add(base, "job")
            Repo(worktree.path).write({f"new{number}": str(number)})
            info = CommitInfo("x", f"refs/orchard/keep/p/j/{number}", INFO.author)
            results[number] = commit(trees.repo, worktree, base, info).commit
    finally:
        stop.set()
        collector.join(60)
    repo("gc", "-q", "--prune=now")

    assert all(repo.files(made)[f"new{number}"] == str(number) for number, made in results.items())
    assert repo.run("fsck", "--strict").status == 0


def test_what_checks_changed_is_listed_for_people(
    repo: Repo, repository: Repository, worktree: Worktree, job: Repo
) -> None:
    assert worktree_changes(repository, worktree) == Changes(0)
    job.write({"a": "edited\n", "new\nline": "x", "x.o": "ignored"})

    assert worktree_changes(repository, worktree) == Changes(2, ("a", "new\\nline"), ("a",))
    job.write({f"many/{number}": "" for number in range(1200)})
    changes = worktree_changes(repository, worktree)
    assert changes.total == 1202 and len(changes.paths) == 1000
