"""Doubles and real things for tests: shipped, so that others can test their plans as we test ours."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from msgspec import Struct, field

from orchard.agents.builtin.model import Hear, Json, Message, ModelError, Reply, Request, Stop, text_block
from orchard.agents.permissions import Holds
from orchard.agents.protocol import Result, Task, Watch
from orchard.git.command import Output, clean_environment, run_git
from orchard.model.usage import Usage

Content = str | bytes | None
"""What a file holds; None removes it."""


class Repo:
    """A real repository in a folder, with a fixed identity and none of the user's settings.

    repo = Repo.make(tmp_path / "repo")       # one commit on `main`, holding README.md
    repo.commit({"a.txt": "a"})               # edits the checkout, commits, returns the oid
    repo("status", "--porcelain")             # any git command; returns its text
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(
        cls, path: Path, *, branch: str = "main", files: Mapping[str, Content] | None = None, **options: str
    ) -> "Repo":
        """Make a repository with one commit; `options` go to `git init` (`object_format="sha256"`)."""
        path.mkdir(parents=True, exist_ok=True)
        repo = cls(path)
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        repo("init", "-q", f"--initial-branch={branch}", *flags)
        with (path / ".git" / "config").open("a") as config:
            config.write("[user]\n\tname = Ada Tester\n\temail = ada@example.com\n")
        repo._commit(files if files is not None else {"README.md": "# A small repository\n"}, "first")
        return repo

    def run(self, *args: str | bytes, stdin: bytes = b"") -> Output:
        """Run git here, whatever its status."""
        env = {name: value for name, value in clean_environment({}).items() if name != "GIT_OPTIONAL_LOCKS"}
        env.update(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1")
        env.update(GIT_AUTHOR_DATE="2026-01-01T00:00:00Z", GIT_COMMITTER_DATE="2026-01-01T00:00:00Z")
        return run_git(args, cwd=self.path, env=env, stdin=stdin, timeout=120)

    def __call__(self, *args: str | bytes, stdin: bytes = b"") -> str:
        """Run git here and return what it printed; any status but 0 is an error."""
        done = self.run(*args, stdin=stdin)
        if done.status != 0:
            raise AssertionError(f"git {args} ended with {done.status}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode(errors="surrogateescape")

    def write(self, files: Mapping[str, Content]) -> None:
        """Put files into the checkout without committing them."""
        for name, content in files.items():
            place = self.path / name
            if content is None:
                place.unlink()
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())

    def commit(self, files: Mapping[str, Content] | None = None, *, message: str = "change") -> str:
        """Commit these files (and all else that changed) on what is checked out."""
        self._commit(files or {}, message)
        return self.head()

    def _commit(self, files: Mapping[str, Content], message: str) -> None:
        self.write(files)
        self("add", "-A")
        self("commit", "-q", "--allow-empty", "-m", message)

    def head(self, name: str = "HEAD") -> str:
        """The commit that a name means."""
        return self("rev-parse", "--verify", f"{name}^{{commit}}").strip()

    def exists(self, name: str) -> bool:
        """Whether a revision can be resolved here."""
        return self.run("rev-parse", "-q", "--verify", f"{name}^{{object}}").status == 0

    def files(self, revision: str = "HEAD") -> dict[str, str]:
        """Every file of a commit or tree, with its content."""
        names = [name for name in self("ls-tree", "-r", "-z", "--name-only", revision).split("\0") if name]
        return {name: self("cat-file", "blob", f"{revision}:{name}") for name in names}

    def refs(self, prefix: str = "refs/orchard") -> dict[str, str]:
        """Every ref below a prefix, with its commit."""
        rows = self("for-each-ref", "--format=%(refname) %(objectname)", prefix).splitlines()
        return dict(row.split(" ", 1) for row in rows)


Step = Reply | ModelError | Callable[[Request], Reply | ModelError]
"""What a scripted model does when it is asked: answer, fail, or look at the question first."""


class ScriptedModel:
    """A model that follows a script, for the built-in agent: no key, no network, no chance.

    model = ScriptedModel([calls(("read_file", {"path": "a.txt"})), says("Done.")])
    await BuiltinAgent(model=model).run(task, watch)
    model.requests[1].messages[-1]            # what the tool answered

    The last step is repeated; every request is kept.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps)
        self.requests: list[Request] = []

    async def reply(self, request: Request, hear: Hear) -> Reply:
        """The next step of the script."""
        self.requests.append(request)
        step = self._steps[min(len(self.requests), len(self._steps)) - 1]
        done = step(request) if callable(step) else step
        if isinstance(done, ModelError):
            raise done
        hear(done.message.text)
        return done


def says(text: str, stop: Stop = "end_turn", *, detail: str = "") -> Reply:
    """The model says something, and stops."""
    return Reply(Message("assistant", (text_block(text),) if text else ()), stop, _USED, detail=detail)


def calls(*wanted: tuple[str, Json], text: str = "", stop: Stop = "tool_use") -> Reply:
    """The model calls tools, each by its name and its input."""
    blocks: list[Json] = [text_block(text)] if text else []
    for name, given in wanted:
        blocks.append({"type": "tool_use", "id": f"toolu_{uuid4().hex[:12]}", "name": name, "input": given})
    return Reply(Message("assistant", tuple(blocks)), stop, _USED)


_USED = Usage(model="scripted", input=100, output=10, requests=1)


Turn = Callable[[Task, Watch], Awaitable[Result] | Result]
"""What an agent does in one turn: a function that works in the task's folder and tells the watch."""


class ScriptedAgent(Struct):
    """Does one turn of its script after the other; the last one is repeated."""

    name: str
    turns: list[Turn]
    variables: tuple[str, ...] = ()
    tasks: list[Task] = field(default_factory=list)
    """What it was given, in order."""
    takes_servers: bool = True
    is_within: bool = False
    holds: Holds = "calls"

    async def run(self, task: Task, watch: Watch) -> Result:
        """Do the next turn of the script."""
        self.tasks.append(task)
        turn = self.turns[min(len(self.tasks), len(self.turns)) - 1]
        answer = turn(task, watch)
        return answer if isinstance(answer, Result) else await answer
