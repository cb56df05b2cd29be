"""The shape of the house, held by reading the source: who may import whom, and who may act.

Each rule is a function from a module to what is wrong with it. It is applied to every module of the
package, and to a small bad module of its own, so that a rule which no longer sees anything fails too.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from orchard.model.agent_rows import ACP_AGENTS, BACKENDS
from orchard.surfaces.cli.verbs import VERBS

PACKAGE = Path(__file__).parent.parent / "src" / "orchard"

LAYERS = (
    "errors", "patterns", "text", "files", "own_log", "model", "core", "planfile", "config", "process", "git", "store",
    "forge", "agents", "engine", "operations", "app", "bench", "surfaces",
)  # fmt: skip

# Where nothing happens: values, decisions, and what people wrote made into values.
PURE = (
    "model/", "core/", "planfile/",
    *(f"config/{name}.py" for name in ("layers", "keys", "kinds", "rows", "droppings", "reach")),
)  # fmt: skip

# What decisions may be made with: nothing here reads a clock, a disk, a process or a dice.
CORE_MAY_IMPORT = frozenset({
    "abc", "bisect", "collections", "datetime", "difflib", "enum", "functools", "hashlib", "heapq", "html",
    "importlib.util", "inspect", "itertools", "json", "math", "msgspec", "operator", "posixpath", "re", "string",
    "textwrap", "tomllib", "types", "typing", "unicodedata", "urllib.parse", "pydantic", "pydantic_core", "ruamel",
})  # fmt: skip
CORE_MAY_NOT_CALL = frozenset({"open", "print", "input", "exec", "eval", "breakpoint", "__import__"})
# Pure modules with impure functions: the time of day is an event's, never core's to ask for.
CORE_MAY_NOT_ASK = frozenset({"now", "utcnow", "today"})

TASKS = frozenset({"create_task", "ensure_future", "TaskGroup", "create_task_group"})
# Work is started in one place; a surface may look and draw at the same time, a follower wait for two things, and an
# agent listen and run tools beside each other: its tasks end with its turn. The engine's door answers requests of one
# connection beside each other, and ends no connection before its last answer.
MAY_START_TASKS = (
    "engine/engine.py",
    "engine/server/server.py",
    "process/",
    "store/log_follower.py",
    "agents/",
    "surfaces/cli/",
)

COMMAND_LINE = re.compile(rf"\borchard (?:(?:{'|'.join(VERBS)})\b|$)")
MAY_WRITE_COMMANDS = (
    "surfaces/", "bench/", "testing.py",
    "__main__.py",  # the line of --version, which is answered without any surface
)  # fmt: skip

STARTERS = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "anyio": {"run_process", "open_process"},
    "os": {"system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp"},
    "pty": {"spawn", "fork"},
}
STARTING_PREFIXES = ("exec", "spawn")  # os.execve, os.spawnl, ...
STARTING_MODULES = frozenset({"multiprocessing", "concurrent.futures.process", "pty"})
MAY_START_PROGRAMS = ("process/", "git/command.py")
# A launch is made by a launcher, and a launcher by whoever answers for what it starts: an attempt, a lone agent, a
# question to a program about itself. All others are handed one.
MAY_MAKE_LAUNCHES = ("process/launcher.py", "process/program.py")
MAY_MAKE_LAUNCHERS = (
    "process/launcher.py",
    "engine/workspace.py",
    "agents/planner.py",
    "agents/facts/probe.py",
    "surfaces/cli/commands/machine/agents.py",
)

MAY_CATCH_EVERYTHING = (
    "engine/attempt.py",
    "engine/server/server.py",
    "engine/turns/subtask.py",
    "surfaces/cli/start.py",
    "surfaces/http/",
    "surfaces/mcp/",
)

MAY_IMPORT_TESTING = ("testing.py", "surfaces/cli/commands/machine/demo.py")

# Models, and hosts in which Orchard is installed, are not agents that it starts, though some have the same name.
MAY_NAME_AGENTS = (
    "agents/facts/model_lists.py",
    "model/agent_rows.py",
    "agents/backends/",
    "agents/acp/named.py",
    "surfaces/mcp/hosts.py",
    "surfaces/cli/commands/machine/install.py",
)
# A cursor is also a place in a list.
AGENT_NAMES = frozenset({*BACKENDS, *ACP_AGENTS}) - {"cursor"}

SLOW_TO_IMPORT = ("pydantic", "ruamel", "tomlkit", "rich", "psutil", "asyncio", "click", "mcp", "anthropic", "acp")


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its path below the package, and its syntax tree."""

    path: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    """All of the tree: walking it is what takes time."""

    @property
    def layer(self) -> str:
        return self.path.split("/")[0].removesuffix(".py")

    def is_one_of(self, places: tuple[str, ...]) -> bool:
        return any(self.path == place or (place.endswith("/") and self.path.startswith(place)) for place in places)


Rule = Callable[[Module], Iterator[tuple[int, str]]]


@cache
def modules() -> list[Module]:
    """Every module of the package; read once."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return [module(path.relative_to(PACKAGE).as_posix(), path.read_text("utf-8")) for path in paths]


def module(path: str, text: str) -> Module:
    tree = ast.parse(text)
    return Module(path, tree, tuple(ast.walk(tree)))


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Every module that is imported anywhere, inside functions as well; `from a import b` gives `a.b`."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)


def is_within(name: str, allowed: frozenset[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:length]) in allowed for length in range(1, len(parts) + 1))


def imports_only_to_the_left(module: Module) -> Iterator[tuple[int, str]]:
    if module.layer not in LAYERS:
        return
    allowed = LAYERS[: LAYERS.index(module.layer) + 1]
    for line, name in imports(module):
        target = name.split(".")[1:2]
        if name.split(".")[0] == "orchard" and target and target[0] in LAYERS and target[0] not in allowed:
            yield line, f"imports {name}, which lies to its right"


def leaves_testing_alone(module: Module) -> Iterator[tuple[int, str]]:
    for line, name in imports(module):
        if name.startswith("orchard.testing") and not module.is_one_of(MAY_IMPORT_TESTING):
            yield line, "imports orchard.testing, which is for tests"


def is_in_a_layer(module: Module) -> Iterator[tuple[int, str]]:
    if module.layer not in (*LAYERS, "__init__", "__main__", "testing"):
        yield 1, "is in no layer"


def imports_plainly(module: Module) -> Iterator[tuple[int, str]]:
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "imports relatively"
        if isinstance(node, ast.ImportFrom) and any(name.name == "*" for name in node.names):
            yield node.lineno, "imports everything"
        if (isinstance(node, ast.Name) and node.id == "TYPE_CHECKING") or (
            isinstance(node, ast.Attribute) and node.attr == "TYPE_CHECKING"
        ):
            yield node.lineno, "asks for TYPE_CHECKING"


def decides_without_acting(module: Module) -> Iterator[tuple[int, str]]:
    if module.layer != "core":
        return
    for line, name in imports(module):
        if not name.startswith("orchard.") and not is_within(name, CORE_MAY_IMPORT):
            yield line, f"imports {name}"
    for node in module.nodes:
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncWith | ast.AsyncFor):
            yield node.lineno, "waits"
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in CORE_MAY_NOT_CALL:
                yield node.lineno, f"calls {node.func.id}"
            if isinstance(node.func, ast.Attribute) and node.func.attr in CORE_MAY_NOT_ASK:
                yield node.lineno, f"asks what time it is by {node.func.attr}"


def starts_tasks_in_one_place(module: Module) -> Iterator[tuple[int, str]]:
    if module.is_one_of(MAY_START_TASKS):
        return
    for node in module.nodes:
        called = node.func if isinstance(node, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name in TASKS:
            yield called.lineno if called is not None else 0, f"starts tasks by {name}"


def starts_programs_in_one_place(module: Module) -> Iterator[tuple[int, str]]:
    if module.is_one_of(MAY_START_PROGRAMS):
        return
    for line, name in imports(module):
        owner, _, rest = name.rpartition(".")
        if is_within(name, STARTING_MODULES) or _starts(owner, rest):
            yield line, f"imports {name}"
    for node in module.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            owner, rest = node.func.value.id, node.func.attr
            if _starts(owner, rest):
                yield node.lineno, f"calls {owner}.{rest}"


def _starts(owner: str, name: str) -> bool:
    return name in STARTERS.get(owner, ()) or (owner == "os" and name.startswith(STARTING_PREFIXES))


def makes_launches_in_one_place(module: Module) -> Iterator[tuple[int, str]]:
    if not module.is_one_of(MAY_MAKE_LAUNCHES):
        yield from ((line, f"imports {name}") for line, name in imports(module) if name.endswith("program.Launch"))
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and node.attr == "Launch":
                yield node.lineno, "names Launch"
    for node in module.nodes:
        made = isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Launcher"
        if isinstance(node, ast.Call) and made and not module.is_one_of(MAY_MAKE_LAUNCHERS):
            yield node.lineno, "makes a launcher of its own"


def names_git_in_one_place(module: Module) -> Iterator[tuple[int, str]]:
    if module.path == "git/command.py":
        return
    for node in module.nodes:
        # Only a list is a command line; in a tuple, such as one of hosts or folders, the word is a name.
        if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "'git'":
            yield node.lineno, "writes a git command line"


def catches_what_it_expects(module: Module) -> Iterator[tuple[int, str]]:
    """Whoever catches everything raises it again, except where a bug must become a report."""
    if module.is_one_of(MAY_CATCH_EVERYTHING):
        return
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler) and _is_everything(node.type):
            if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
                yield node.lineno, "catches everything and does not raise it again"
        elif isinstance(node, ast.Call) and any(_is_everything(argument) for argument in node.args):
            called = ast.unparse(node.func)
            if called.split(".")[-1] == "suppress":
                yield node.lineno, "suppresses everything"


def _is_everything(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(isinstance(name, ast.Name) and name.id in ("Exception", "BaseException") for name in names)


def names_agents_in_one_place(module: Module) -> Iterator[tuple[int, str]]:
    """A backend is a module, and an agent behind the protocol a value, each with a line in a dict; no other table."""
    if module.is_one_of(MAY_NAME_AGENTS):
        return
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lstrip(".") in AGENT_NAMES:
            yield node.lineno, node.value
    for line, name in imports(module):
        if name.startswith(tuple(BACKENDS.values())):
            yield line, name


def writes_no_command_line(module: Module) -> Iterator[tuple[int, str]]:
    """What to do next is a value (`Next`); only surfaces know how one asks for it. Docstrings are for us."""
    if module.is_one_of(MAY_WRITE_COMMANDS):
        return
    docstrings = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from ((node.lineno, found[0]) for found in COMMAND_LINE.finditer(node.value))


RULES: dict[Rule, list[tuple[str, str]]] = {
    writes_no_command_line: [
        ("engine/x.py", "raise NotFound('No.', hint='orchard list')"),
        ("core/x.py", "hint = f\"Run 'orchard retry {job} --plan {plan}'.\""),
        ("store/x.py", "hint = f'orchard {verb} {plan}'"),
        ("planfile/x.py", "TOLD = 'Deployed by `orchard deploy`.'"),
    ],
    names_agents_in_one_place: [
        ("agents/x.py", "TABLE = {'claude': 1}"),
        ("engine/x.py", "if agent == 'goose':\n    pass"),
        ("engine/x.py", "SECRET = ('.codex',)"),
        ("agents/x.py", "from orchard.agents.backends import qwen"),
        ("agents/acp/x.py", "from orchard.agents.backends.copilot import KEYS"),
    ],
    imports_only_to_the_left: [
        ("core/x.py", "from orchard.store import journal"),
        ("git/x.py", "def f():\n    import orchard.engine.engine"),
        ("errors.py", "from orchard.model.plan import Plan"),
        ("app.py", "from orchard.surfaces.cli import start"),
    ],
    leaves_testing_alone: [("engine/x.py", "from orchard.testing import Repo")],
    is_in_a_layer: [("helpers/x.py", ""), ("util.py", "")],
    imports_plainly: [
        ("core/x.py", "from . import y"),
        ("core/x.py", "from orchard.model.plan import *"),
        ("git/x.py", "import typing\nif typing.TYPE_CHECKING:\n    pass"),
        ("git/x.py", "if TYPE_CHECKING:\n    pass"),
    ],
    decides_without_acting: [
        ("core/x.py", "import os"),
        ("core/x.py", "from pathlib import Path"),
        ("core/x.py", "def f():\n    from time import time"),
        ("core/x.py", "import random"),
        ("core/x.py", "import importlib"),
        ("core/x.py", "async def f():\n    pass"),
        ("core/x.py", "open('x')"),
        ("core/x.py", "datetime.now()"),
    ],
    starts_tasks_in_one_place: [
        ("surfaces/x.py", "asyncio.create_task(f())"),
        ("engine/x.py", "async def f():\n    async with TaskGroup() as group:\n        pass"),
        ("store/x.py", "loop.create_task(f())"),
    ],
    starts_programs_in_one_place: [
        ("engine/x.py", "import subprocess\nsubprocess.run(['x'])"),
        ("git/merge/merge.py", "from subprocess import Popen"),
        ("store/x.py", "import os\nos.execvp('x', [])"),
        ("store/x.py", "from os import posix_spawn"),
        ("agents/x.py", "import asyncio\nasync def f():\n    await asyncio.create_subprocess_exec('x')"),
        ("store/x.py", "import multiprocessing"),
    ],
    makes_launches_in_one_place: [
        ("agents/x.py", "from orchard.process.program import Launch, run_program"),
        ("engine/x.py", "from orchard.process.program import Launch as Start"),
        ("engine/x.py", "from orchard.process import program\nprogram.Launch(())"),
        ("agents/builtin/x.py", "from orchard.process.launcher import Launcher\nLauncher('of-nobody')"),
    ],
    names_git_in_one_place: [("engine/x.py", "run(['git', 'status'])")],
    catches_what_it_expects: [
        ("store/x.py", "try:\n    f()\nexcept Exception:\n    pass"),
        ("store/x.py", "try:\n    f()\nexcept:\n    pass"),
        ("store/x.py", "try:\n    f()\nexcept (OSError, BaseException) as e:\n    log(e)"),
        ("store/x.py", "with contextlib.suppress(Exception):\n    f()"),
    ],
}


def test_every_module_keeps_the_rules() -> None:
    """One test for all of them: reading the whole source is what takes time."""
    found = ((module, rule, broken) for module in modules() for rule in RULES for broken in rule(module))
    broken = [f"{module.path}:{line} {rule.__name__}: {what}" for module, rule, (line, what) in found]

    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("rule", "path", "source"), [(rule, path, source) for rule, bad in RULES.items() for path, source in bad]
)
def test_the_rule_sees_what_breaks_it(rule: Rule, path: str, source: str) -> None:
    assert list(rule(module(path, source)))


# ----------------------------------------------------------------------------------------- circles


def graph(found: list[Module]) -> dict[str, set[str]]:
    """Which modules each module imports, by their paths; an import inside a function counts as well."""
    names = {"orchard." + module.path.removesuffix(".py").replace("/", "."): module.path for module in found}
    names |= {name.removesuffix(".__init__"): path for name, path in names.items() if name.endswith(".__init__")}

    def meant(name: str) -> str | None:
        parts = name.split(".")
        return next((names[one] for n in range(len(parts), 1, -1) if (one := ".".join(parts[:n])) in names), None)

    wanted = {module.path: {meant(name) for _, name in imports(module)} for module in found}
    return {path: {one for one in targets if one not in (None, path)} for path, targets in wanted.items()}


def circles(edges: dict[str, set[str]]) -> list[str]:
    """What is left when all modules that import only what is done, or that only such import, are taken away."""
    left = {path: set(targets) for path, targets in edges.items()}
    while True:
        imported = {one for targets in left.values() for one in targets}
        done = {path for path, targets in left.items() if not targets or path not in imported}
        if not done:
            return [f"{path} imports {', '.join(sorted(targets))}" for path, targets in sorted(left.items())]
        left = {path: targets - done for path, targets in left.items() if path not in done}


def test_no_module_imports_another_that_leads_back_to_it() -> None:
    edges = graph(modules())

    assert sum(map(len, edges.values())) > 1000
    assert not circles(edges), "\n".join(circles(edges))


@pytest.mark.parametrize(
    "sources",
    [
        {"core/a.py": "import orchard.core.b", "core/b.py": "from orchard.core.a import A"},
        {"core/a.py": "from orchard.core import b", "core/b.py": "def f():\n    from orchard.core.a import A"},
        {"git/a.py": "if X:\n    import orchard.git.b", "git/b.py": "from orchard.git.c import C",
         "git/c.py": "import orchard.git.a"},
    ],
    ids=["two", "in-a-function", "three"],
)  # fmt: skip
def test_a_circle_of_modules_is_seen_and_what_only_leads_to_it_is_not_blamed(sources: dict[str, str]) -> None:
    beside = {"app.py": "from orchard.core.a import A\nimport orchard.git.a", "errors.py": ""}

    found = circles(graph([module(path, text) for path, text in {**sources, **beside}.items()]))

    assert [row.split()[0] for row in found] == sorted(sources)


def test_init_files_hold_a_page_of_theory_or_nothing_but_for_the_top_one() -> None:
    trees = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE}

    assert not [path for path, tree in trees.items() if len(tree.body) > (ast.get_docstring(tree) is not None)]


def imported_by(*command: str) -> set[str]:
    """The modules, by their whole names, that a fresh Python imports on its way through `command`."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True, timeout=60, check=True
    )
    rows = [line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert len(rows) > 10, done.stderr
    return set(rows)


def packages_imported_by(*command: str) -> set[str]:
    return {name.split(".")[0] for name in imported_by(*command)}


@pytest.mark.parametrize(
    "command",
    [("-c", "import orchard.__main__"), ("-m", "orchard", "--version")],
    ids=["import", "version"],
)
def test_asking_for_the_version_imports_nothing_slow(command: tuple[str, ...]) -> None:
    assert not packages_imported_by(*command) & set(SLOW_TO_IMPORT)


def test_commands_that_read_settings_import_nothing_slow_for_it() -> None:
    assert not packages_imported_by("-c", "import orchard.config.load, orchard.config.user_dirs") & set(SLOW_TO_IMPORT)


def test_an_engine_without_walls_imports_nothing_that_builds_them_or_leads_out_of_them() -> None:
    built = {"proxy.doors", "proxy.visits", "proxy.nets", "sandbox.spawn", "sandbox.bwrap", "sandbox.landlock"}

    found = imported_by("-c", "import orchard.engine.attempt, orchard.engine.workspace, orchard.engine.turns.turn")

    assert not found & {f"orchard.process.{name}" for name in built}
