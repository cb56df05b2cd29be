"""`orchard demo`: a real plan in a scratch repository, from the first job to the landing.

Nothing is staged: the jobs write and test a small program, one of them fails because a file is
missing, the file is put there, and the job is retried. The demo asks `App` like any other command.
"""

import asyncio
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from msgspec import Struct

from orchard.app import App, open_app
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.core.views.plans import plan_view
from orchard.engine.server.session import Session
from orchard.errors import EXIT_CANCELED, UsageError
from orchard.git.command import clean_environment, run_git
from orchard.git.history import diff
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.surfaces.cli.followed import Followed, exit_code, stay
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.render.lines import Line, safe, safe_lines
from orchard.surfaces.cli.render.summary import summary_lines
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.next_steps import in_commands

NEEDY_JOB = JobId("measures/rare")
"""The job that fails until the list of rare words is there."""

LOG_COMMITS = 12


class Project(Struct, frozen=True):
    """A scratch folder: the repository, the plan beside it, and what the plan misses at first."""

    folder: Path

    @property
    def top(self) -> Path:
        return self.folder / "textkit"

    @property
    def plan(self) -> Path:
        return self.folder / "plan.yaml"

    @property
    def rare_words(self) -> Path:
        return self.folder / "rare-words.txt"

    @property
    def draft(self) -> Path:
        return self.top / DRAFT[0]

    @property
    def draft_untouched(self) -> bool:
        """Whether the file that was never committed still holds what it held."""
        return self.draft.is_file() and self.draft.read_text() == DRAFT[1]


class Scratch(Struct):
    """Where the demo plays; a temporary folder goes away unless it is kept."""

    folder: Path
    keep: bool


@verb("demo", examples="orchard demo\norchard demo --folder ~/orchard-demo")
@click.option("--folder", type=click.Path(path_type=Path), help="Create the repository in this folder, and keep it.")
@click.option("--keep", is_flag=True, help="Keep the repository.")
def demo(terminal: Terminal, folder: Path | None, keep: bool) -> int:
    """It needs only git and python3: no key and no network. It changes nothing of yours."""
    with scratch_folder(folder, keep) as scratch:
        project = make_project(scratch.folder)
        terminal.say([("A scratch repository with a small Python program is in ", ""), (safe(project.top), "name")])
        terminal.say([("Its plan is ", ""), (safe(project.plan), "name"), (": nine jobs, one of which must fail", "")])
        # Its failure is on purpose, so no agent is asked; and jobs behind a wall see no file beside the repository.
        own = {"heal.enabled": False, "sandbox.expose": [str(project.rare_words)]}
        app = open_app(project.top, in_commands, own)
        followed = asyncio.run(_play(terminal, app, project))
        scratch.keep |= followed.run.landed is None  # something to look into
        if followed.detached:
            return EXIT_CANCELED
        _tell(terminal, app, project, followed.run, scratch.keep)
        return exit_code(str(followed.run.status))


async def _play(terminal: Terminal, app: App, project: Project) -> Followed:
    """Run the plan; when the needy job has failed, give it what it misses and retry it."""
    plan = app.parse_plan(project.plan)
    async with app.session() as session:
        answer = await session.request("create_plan", plan=plan, file=str(project.plan))
        followed = Followed(Run(PlanId(answer["plan"])))
        await stay(terminal, app, session, followed)
        if not followed.detached and _failed_as_planned(followed.run):
            await _mend(terminal, app, session, project, followed)
    return followed


def _failed_as_planned(run: Run) -> bool:
    failed = [job for job, record in run.records.items() if record.state is JobState.FAILED]
    return failed == [NEEDY_JOB]


async def _mend(terminal: Terminal, app: App, session: Session, project: Project, followed: Followed) -> None:
    failure = followed.run.records[NEEDY_JOB].failure
    rows = safe_lines(failure.tail) if failure is not None else []
    said: list[Line] = [[("  | ", "dim"), (row, "")] for row in rows]
    terminal.say(
        [],
        [(f"{NEEDY_JOB} failed, as it should", "bad"), (": its precheck found no list of rare words. It said:", "")],
        *said,
        [("The jobs that need it are blocked; everything else is done and stays done.", "")],
        [("The demo puts the list there and asks for another try: ", ""), (f"orchard retry {NEEDY_JOB}", "strong")],
        [],
    )
    project.rare_words.write_text(RARE_WORDS)
    await session.request("retry_plan", plan=followed.run.id, jobs=[NEEDY_JOB])
    await stay(terminal, app, session, followed)


# ------------------------------------------------------------------------------------- the scene


@contextmanager
def scratch_folder(folder: Path | None, keep: bool) -> Iterator[Scratch]:
    """A folder for the demo; one that the user named is theirs, and so is one in which something went wrong."""
    if folder is not None:
        yield Scratch(_new_folder(folder), keep=True)
        return
    scratch = Scratch(Path(tempfile.mkdtemp(prefix="orchard-demo-")).resolve(), keep)
    try:
        yield scratch
    except BaseException:
        scratch.keep = True
        raise
    finally:
        if not scratch.keep:
            shutil.rmtree(scratch.folder, ignore_errors=True)


def _new_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"The folder '{safe(folder)}' is not empty.", "Name a folder that does not exist yet.")
    except OSError as error:
        raise UsageError(f"Cannot use the folder '{safe(folder)}': {error.strerror}.") from error
    return folder.resolve()


def make_project(folder: Path) -> Project:
    project = Project(folder)
    for name, content in FILES.items():
        file = project.top / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    project.plan.write_text(plan_text(str(project.rare_words)))
    _git(project, "init", "-q", "--initial-branch=main")
    for key, value in {"user.name": "Orchard Demo", "user.email": "demo@localhost", "commit.gpgSign": "false"}.items():
        _git(project, "config", key, value)
    _git(project, "add", "-A")
    _git(project, "commit", "-q", "-m", "A program that counts characters")
    project.draft.write_text(DRAFT[1])
    return project


def _git(project: Project, *words: str) -> str:
    done = run_git(words, cwd=project.top, env=clean_environment())
    if done.status != 0:
        raise UsageError(f"Git could not make the scratch repository: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")


# ------------------------------------------------------------------------------------- the words


def _tell(terminal: Terminal, app: App, project: Project, run: Run, stays: bool) -> None:
    document = plan_view(run, in_commands)
    landed = run.landed
    log = _git(project, "log", "--graph", "--format=%h %s", f"-{LOG_COMMITS}", landed.branch) if landed else ""
    files = diff(app.repo, landed.old, landed.new, stat=True).decode(errors="replace") if landed and landed.old else ""
    if terminal.json:
        told: Json = {"folder": str(project.folder), "kept": stays, "draft_untouched": project.draft_untouched}
        terminal.data(
            {"type": "result", "plan": document.plan, "jobs": document.jobs, "demo": {**told, "log": log.splitlines()}}
        )
        return
    terminal.say([], *summary_lines(app, run, document))
    if landed is not None:
        terminal.say([], [("What main looks like now", "strong")], *_indented(log))
        terminal.say([], [("What the plan changed", "strong")], *_indented(files))
        terminal.say([], _draft_line(project))
    terminal.say([], *_next_lines(project, stays))


def _indented(text: str) -> list[Line]:
    return [[("  ", ""), (safe_row, "")] for safe_row in (line.rstrip() for line in text.splitlines()) if safe_row]


def _draft_line(project: Project) -> Line:
    if project.draft_untouched:
        return [("Your checkout followed, and ", ""), (project.draft.name, "name"), (" was left as it is.", "")]
    return [(f"{project.draft.name} was changed: this should not have happened.", "bad")]


def _near(path: Path) -> str:
    """The path as one would type it from here."""
    return min(str(path), os.path.relpath(path), key=len)


def _next_lines(project: Project, stays: bool) -> list[Line]:
    if not stays:
        return [
            [("Look around in it: ", ""), ("orchard demo --keep", "strong")],
            [("Start your own, in one of your repositories: ", ""), ("orchard init", "strong")],
        ]
    steps = {
        f"cd {shlex.quote(_near(project.top))}": "everything below is run there",
        "orchard status": "the tree of jobs, any time later",
        f"orchard attempts {NEEDY_JOB}": "the failure and the second try",
        "orchard diff docs/usage": "what one job changed",
        "orchard graph ../plan.yaml --format svg --output ../plan.svg": "the plan as a picture",
        "orchard undo": "take the landing back",
    }
    width = max(map(len, steps))
    rows: list[Line] = [[(f"  {command:<{width}}", "strong"), (f"  {why}", "dim")] for command, why in steps.items()]
    return [[("What to try next", "strong")], *rows]


FILES: dict[str, str] = {
    ".gitignore": "__pycache__/\n",
    "README.md": "# textkit\n\nMeasures a text: `python3 -m textkit sample.txt`\n",
    "sample.txt": "the quick brown fox\njumps over the lazy dog\nand the dog sleeps on\n",
    "textkit/__init__.py": "",
    "textkit/__main__.py": '''"""python3 -m textkit FILE: print every measure of a text."""

import sys
from pathlib import Path

from textkit.report import report

if __name__ == "__main__":
    print(report(Path(sys.argv[1]).read_text()))
''',
    "textkit/report.py": '''"""A report is one line per measure."""


def report(text: str) -> str:
    return f"characters: {len(text)}"
''',
    "tests/__init__.py": "",
    "tests/test_report.py": """import unittest

from textkit.report import report


class ReportTest(unittest.TestCase):
    def test_characters_are_counted(self) -> None:
        self.assertIn("characters: 3", report("abc"))
""",
}

DRAFT = ("draft.txt", "a note that is not committed: orchard must not touch it\n")

PLAN = '''# The plan of `orchard demo`. The sleeps are there so that you can watch.
name: Teach textkit to measure
target: main
verify: python3 -m unittest discover -q
env:
  PYTHONDONTWRITEBYTECODE: "1"
  RARE_WORDS: {rare_words}
jobs:
  - id: interface
    name: Make room for measures
    work: |
      mkdir -p textkit/measures
      cat > textkit/measures/__init__.py <<'END'
      """Every module here is a measure: it has a function `measure(text)`."""
      END
      cat > textkit/report.py <<'END'
      """A report is one line per measure."""

      from importlib import import_module
      from pkgutil import iter_modules

      import textkit.measures


      def report(text: str) -> str:
          names = sorted(module.name for module in iter_modules(textkit.measures.__path__))
          lines = [f"characters: {{len(text)}}"]
          for name in names:
              lines.append(f"{{name}}: {{import_module('textkit.measures.' + name).measure(text)}}")
          return "\\n".join(lines)
      END
    postchecks: python3 -m unittest discover -q

groups:
  - name: measures
    jobs:
      - id: words
        name: Count words
        needs: [interface]
        work: |
          sleep 1
          cat > textkit/measures/words.py <<'END'
          def measure(text: str) -> int:
              return len(text.split())
          END
        postchecks: python3 -c 'from textkit.measures.words import measure; assert measure("a b  c") == 3'
      - id: lines
        name: Count lines
        needs: [interface]
        work: |
          sleep 1
          cat > textkit/measures/lines.py <<'END'
          def measure(text: str) -> int:
              return len(text.splitlines())
          END
        postchecks: python3 -c 'from textkit.measures.lines import measure; assert measure("a\\nb") == 2'
      - id: longest
        name: Find the longest word
        needs: [interface]
        work: |
          sleep 2
          cat > textkit/measures/longest.py <<'END'
          def measure(text: str) -> str:
              return max(text.split(), key=len, default="")
          END
      - id: rare
        name: Count rare words
        needs: [interface]
        # The list is not there at first: this job fails, no agent is asked to heal it, and what needs it is blocked.
        heal: false
        prechecks: test -e "$RARE_WORDS" || {{ echo "the list of rare words is missing"; exit 1; }}
        work: |
          cp "$RARE_WORDS" textkit/rare.txt
          cat > textkit/measures/rare.py <<'END'
          from pathlib import Path

          RARE = set((Path(__file__).parent.parent / "rare.txt").read_text().split())


          def measure(text: str) -> int:
              return sum(word in RARE for word in text.split())
          END

  - name: tests
    jobs:
      - id: counting
        name: Test the counting
        needs: [measures/words, measures/lines]
        work: |
          sleep 1
          cat > tests/test_counting.py <<'END'
          import unittest

          from textkit.report import report


          class CountingTest(unittest.TestCase):
              def test_words_and_lines_are_counted(self) -> None:
                  self.assertIn("lines: 2\\n", report("one two\\nthree") + "\\n")
                  self.assertIn("words: 3\\n", report("one two\\nthree") + "\\n")
          END
        postchecks: python3 -m unittest -q tests.test_counting
      - id: clean
        name: Parse every file
        needs: [measures/words, measures/lines, measures/longest]
        changes: forbidden
        work: python3 -c 'import ast, pathlib; [ast.parse(p.read_text()) for p in pathlib.Path(".").rglob("*.py")]'

  - name: docs
    jobs:
      - id: usage
        name: Document all measures
        needs: [tests/clean, measures/rare]
        work: |
          mkdir -p docs
          (echo "# What textkit says"; echo; python3 -m textkit sample.txt | sed 's/^/    /') > docs/usage.md
      - id: changes
        name: List the changes
        needs: [interface]
        work: printf '%s\\n' '# Changes' '' '- textkit measures more than characters' > CHANGES.md
'''

RARE_WORDS = "quick lazy jumps\n"


def plan_text(rare_words: str) -> str:
    """The plan file, which is told where the list of rare words will be."""
    # A JSON string is a YAML string, whatever the folder is called.
    return PLAN.format(rare_words=json.dumps(rare_words))
