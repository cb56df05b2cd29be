"""What a job leaves becomes one commit, or is refused with a reason.

The commit is made by plumbing: no hook runs, no filter that a job brought along, nothing inside a
submodule. Before it gets a name, every path that differs from where the job started is looked at:
a result that would make a later git run something, or write outside of its folder, is refused.
"""

import itertools
from dataclasses import dataclass, field

from orchard.errors import OrchardError
from orchard.git.command import Git, GitError
from orchard.git.contents import Contents, display, look, stage, submodule_problems, try_again
from orchard.git.refs import ANY, RefMoved, Update, hold, update_refs
from orchard.git.repository import Repository, Worktree
from orchard.git.review import Finding, review

SIGN_TIMEOUT = 30.0
LISTED_PATHS = 1000


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """How the commit of a job's work looks, and which ref keeps it."""

    name: str
    ref: str
    author: tuple[str, str]
    """Name and email, see `Repository.identity`."""
    body: str = ""
    trailers: tuple[tuple[str, str], ...] = ()
    sign: bool = False
    allow_submodule_updates: bool = False

    @property
    def message(self) -> bytes:
        """Title, body and trailers, each only as far as there is one."""
        trailers = "\n".join(f"{key}: {' '.join(value.split())}" for key, value in self.trailers)
        title = " ".join(self.name.split()) or "work"
        parts = (title, self.body.strip(), trailers)
        text = "\n\n".join(part for part in parts if part) + "\n"
        return text.replace("\0", " ").encode(errors="replace")


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a job is under its ref, and was read back."""

    commit: str
    changed: bool
    """False: the job left everything as it was, and `commit` is where it started."""
    added: int = 0
    modified: int = 0
    deleted: int = 0
    lines_added: int = 0
    lines_deleted: int = 0
    own_commits: bool = False
    """The job committed by itself, so that there may be more commits than the one made here."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The job's work cannot become a commit as it is; it still lies in the worktree."""

    message: str
    hint: str
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Changes:
    """What lies in a worktree beyond its HEAD."""

    total: int
    paths: tuple[str, ...] = field(default=())
    """At most LISTED_PATHS of them, escaped for people."""


class SigningFailed(OrchardError):
    """The user wants signed commits, and signing did not work."""


def commit_work(repo: Repository, worktree: Worktree, base: str, info: CommitInfo) -> Committed | Refused:
    """Turn what a job left in its worktree, and what it committed itself, into one result."""
    if worktree.path.is_symlink() or not worktree.path.is_dir():
        # Behind a link lies what is not the job's to commit.
        return Refused(f"The job's folder {worktree.path} is gone.", "Retry the job with '--fresh'.")
    git = repo.worktree_git(worktree.name, worktree.path)
    (git.git_dir / "index.lock").unlink(missing_ok=True)  # of a git that the job's end has killed
    try:
        contents = look(git, worktree.path)
    except (GitError, OSError) as error:
        return Refused(f"The worktree cannot be read: {error}", "Retry the job with '--fresh'.")
    head = contents.head or base
    if contents.nested:
        names = tuple(display(name) for name in contents.nested)
        said = f"The job left git repositories inside its folder ({', '.join(names[:5])})."
        return Refused(said, "Have the job remove their '.git', or put them outside of the worktree.", names)
    for name, problem in submodule_problems(repo, worktree, contents, head):
        said = f"Submodule {name} {problem}, and plans do not commit submodules."
        return Refused(said, "Change submodules in a commit of your own, before the plan.", (name,))
    if head != base and not _descends(repo.git, base, head):
        return Refused(
            f"The job moved HEAD to {head:.12}, which does not build on the commit it was given, {base:.12}",
            "Have the job commit on top of what it was given, or not commit at all.",
        )
    if contents.clean and head == base:
        return Committed(base, changed=False)
    return _commit_once_more_if_objects_vanished(repo, worktree, contents, (base, head, info))


def worktree_changes(repo: Repository, worktree: Worktree) -> Changes:
    """What a check changed in a worktree after its work was committed."""
    contents = look(repo.worktree_git(worktree.name, worktree.path), worktree.path)
    names = sorted({*contents.changed, *contents.staged, *contents.untracked})
    return Changes(len(names), tuple(display(name) for name in names[:LISTED_PATHS]))


def _commit_once_more_if_objects_vanished(
    repo: Repository, worktree: Worktree, contents: Contents, plan: tuple[str, str, CommitInfo]
) -> Committed | Refused:
    """A `gc --prune=now` beside us can delete objects before they have a name: hash everything again then."""
    git = repo.worktree_git(worktree.name, worktree.path)
    for number in itertools.count():
        try:
            if number:
                git("read-tree", "--reset", plan[1])
                contents = look(git, worktree.path)
            return _commit(repo, worktree, contents, plan)
        except GitError as error:
            if not try_again(error, number):
                said = error.stderr.strip().splitlines() or [str(error)]
                return Refused(f"Git cannot commit the work: {said[-1]}", "Look at the worktree, then retry the job.")
    raise AssertionError("the last try returns")


def _commit(
    repo: Repository, worktree: Worktree, contents: Contents, plan: tuple[str, str, CommitInfo]
) -> Committed | Refused:
    base, head, info = plan
    git = repo.worktree_git(worktree.name, worktree.path)
    if contents.clean:
        tree = f"{head}^{{tree}}"
    else:
        stage(git, worktree.path, contents)
        tree = git("write-tree").text
    reviewed = review(repo, base, tree, allow_submodule_updates=info.allow_submodule_updates)
    if isinstance(reviewed, Finding):
        return Refused(reviewed.message, reviewed.hint, reviewed.paths)
    if reviewed.total == 0 and head == base:
        return Committed(base, changed=False)
    commit = head if contents.clean else make_commit(repo.git, tree, (head,), info)
    try:
        hold(repo.git, info.ref, commit, base)
    except RefMoved as moved:
        # We may have been here before, and been killed before HEAD moved: the same work with an older date.
        if moved.actual is None or not _is_same_work(repo.git, moved.actual, (tree, head)):
            raise
        commit = moved.actual
    # Not earlier: HEAD's log would name a commit that a gc might have deleted meanwhile.
    update_refs(git, [Update("HEAD", commit, ANY)], "orchard: work committed", deref=False)
    files = (reviewed.added, reviewed.modified, reviewed.deleted)
    lines = (reviewed.lines_added, reviewed.lines_deleted)
    return Committed(commit, True, *files, *lines, own_commits=head != base)


def make_commit(git: Git, tree: str, parents: tuple[str, ...], info: CommitInfo) -> str:
    """Write a commit object; unsigned only where no signature was asked for."""
    name, email = info.author
    named = git.with_environment(
        GIT_AUTHOR_NAME=name, GIT_AUTHOR_EMAIL=email, GIT_COMMITTER_NAME=name, GIT_COMMITTER_EMAIL=email
    )
    words = [word for parent in parents for word in ("-p", parent)]
    if not info.sign:
        return named("commit-tree", tree, *words, "-F", "-", stdin=info.message).text
    try:
        return named("commit-tree", "-S", tree, *words, "-F", "-", stdin=info.message, timeout=SIGN_TIMEOUT).text
    except GitError as error:
        raise SigningFailed(
            f"The commit could not be signed: {error.stderr.strip()}",
            hint="Unlock your signing key, or run: git config commit.gpgSign false",
        ) from error


def _is_same_work(git: Git, commit: str, expected: tuple[str, str]) -> bool:
    """Whether a commit has the expected tree and parent."""
    names = (f"{commit}^{{tree}}", f"{commit}^@", f"{expected[0]}^{{tree}}")
    found = git("rev-parse", *names, ok=(0, 128)).text.split()
    return found == [found[-1], expected[1], found[-1]] if len(found) == 3 else False


def _descends(git: Git, base: str, head: str) -> bool:
    return git("merge-base", "--is-ancestor", base, head, ok=(0, 1)).status == 0
