"""Folders for agents that git ignores: a job's worktree does not have them, and its agent does without.

Many repositories ignore `.claude` as a whole. Whoever has commands and skills there finds out late that no job saw
them; a line in `.worktreeinclude` brings them along.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from orchard.agents.definitions.skills import PLACES as SKILLS
from orchard.agents.facts.programs import all_known, known_of
from orchard.config.layers import Config
from orchard.config.load import INCLUDE_FILE
from orchard.git.repository import Repository
from orchard.git.worktree.untracked import brought_along, ignored_entries
from orchard.model.agent_rows import AGENTS, BUILTIN

KINDS = ("agents", "commands", "skills", "rules", "prompts")
"""What in such a folder is a loss. Settings and caches of one machine are ignored on purpose."""
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "AGENT.md", "GEMINI.md")


def folders_of(agents: Iterable[str]) -> tuple[str, ...]:
    """The folders at the top of a repository that these agents read."""
    reads = dict.fromkeys(path for name in agents for path in _reads(name))
    return tuple(dict.fromkeys(path.partition("/")[0] for path in reads if path.startswith(".")))


def _reads(name: str) -> Iterable[str]:
    """What an agent reads. Of one that nobody knows it may be what any of them reads."""
    if name == BUILTIN:
        return SKILLS
    known = known_of(name)
    return known.reads if known is not None else (*SKILLS, *(path for one in all_known() for path in one.reads))


def ignored_notes(repo: Repository, config: Config, agents: Iterable[str] = AGENTS) -> list[str]:
    """What jobs for these agents will miss because git ignores it: one note, with what brings it. For a thread."""
    top = repo.main_top
    lost = _lost(repo, top, folders_of(agents)) if top is not None else {}
    if top is None or not lost:
        return []
    roots = (repo.worktree_root(config.worktree_root),)
    brought = brought_along(repo, top, config.worktree.include, roots)
    folders = (*config.worktree.copy, *config.worktree.link)
    missed = {path: said for path, said in lost.items() if not _is_brought(path, brought, folders)}
    return [_note(missed)] if missed else []


def _note(missed: Mapping[str, str]) -> str:
    them, lines = ("it", "This line in {} brings") if len(missed) == 1 else ("them", "These lines in {} bring")
    told = f"git ignores {_and(missed.values())}, so the worktrees of jobs do not have {them}."
    if any("agents" in said.partition("(")[2] or path.endswith("/agents/") for path, said in missed.items()):
        told += " Definitions that a plan names are read from your checkout all the same."
    return f"{told} {lines.format(INCLUDE_FILE)} {them} along: {_and(f'/{path}' for path in missed)}"


def _and(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _lost(repo: Repository, top: Path, folders: Sequence[str]) -> dict[str, str]:
    """What is ignored and matters, by its path (a folder's ends in a slash), in words."""
    wanted = [place for folder in folders for place in _places(folder)]
    found: dict[str, str] = {}
    for entry in ignored_entries(repo, top, [*wanted, *INSTRUCTIONS]):
        parts = entry.rstrip("/").split("/")
        if len(parts) == 1 and entry.endswith("/"):
            kinds = [kind for kind in KINDS if _holds(top / entry / kind)]
            if kinds:
                found[entry] = f"'{entry}' ({', '.join(kinds)})"
        elif len(parts) == 1:
            found[entry] = f"'{entry}'"
        elif parts[1] in KINDS:
            place = f"{parts[0]}/{parts[1]}/"
            some = "" if entry == place else "some of "
            found[place] = f"{some}'{place}'"
    return found


def _places(folder: str) -> Iterable[str]:
    """Of a folder that holds more than what is for agents only that part is looked at."""
    return [f"{folder}/{kind}" for kind in KINDS] if folder == ".github" else [folder]


def _holds(folder: Path) -> bool:
    try:
        return not folder.is_symlink() and any(True for _ in folder.iterdir())
    except OSError:
        return False


def _is_brought(path: str, brought: Collection[str], links: Sequence[str]) -> bool:
    name = path.rstrip("/")
    if any(name == link.strip("/") or name.startswith(f"{link.strip('/')}/") for link in links):
        return True
    return path in brought or any(one.startswith(path) for one in brought if path.endswith("/"))
