"""Doubles and real things for tests: shipped, so that others can test their plans as we test ours."""

from collections.abc import Mapping
from pathlib import Path

from orchard.git.command import Output, clean_environment, run_git

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
        repo("config", "user.name", "Ada Tester")
        repo("config", "user.email", "ada@example.com")
        repo.commit(files if files is not None else {"README.md": "# A small repository\n"}, message="first")
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
        self.write(files or {})
        self("add", "-A")
        self("commit", "-q", "--allow-empty", "-m", message)
        return self.head()

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
