"""What an agent may do: one value, made of what a configuration row, a job, a work and a subtask say.

    read-only   it changes nothing: it reads, searches and lists files, and reads git
    edit        it also changes files of its worktree, and commits them; it runs no commands
    all         all that the agent has

Instead of a word there can be a list of names, of beginnings (`mcp__docs__*`), and of these words. Tools have one name
each here, whichever agent is meant; what agents call them is translated (`Read`, `view` and `cat` are `read_file`).
A tool of an MCP server is `mcp__SERVER__TOOL`. It belongs to `all` only, whatever the server says of it.

Values are only ever put on top of each other, and each of them has to permit a call. So nothing that is handed on has
more than whoever hands it on: `narrowed` can take away, and has no way to give.
"""

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Literal

from msgspec import Struct

Mode = Literal["read-only", "edit", "all"]
MODES: tuple[Mode, ...] = ("read-only", "edit", "all")
ASK = "ask"
"""A word for `tools`: all, but a person is asked before each call that does more than read."""

Kind = Literal["read", "edit", "run", "other", "own"]
"""What a call does. `own`: it asks something of Orchard, which narrows what it hands on: only `deny` takes it away."""

KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(
        ("read_file", "list_files", "search_files", "git_status", "git_diff", "git_log",
         "github_get_issue", "github_list_issues", "todo", "read_skill"), "read"
    ),
    **dict.fromkeys(("write_file", "edit_file", "git_add", "git_commit"), "edit"),
    "bash": "run",
    **dict.fromkeys(("git_branch", "github_create_comment", "web_fetch", "web_search", "subagent"), "other"),
}  # fmt: skip
"""The tools that have a name of ours. A branch is made in the user's repository, so it is no edit of a worktree."""

_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "read_file": ("read", "view", "cat", "readmanyfiles", "notebookread", "open"),
    "list_files": ("ls", "list", "listdir", "listdirectory", "glob", "find"),
    "search_files": ("grep", "rg", "search", "searchfilecontent", "grepsearch", "codesearch", "codebase", "usages"),
    "write_file": ("write", "create", "createfile"),
    "edit_file": ("edit", "editfiles", "multiedit", "replace", "strreplace", "patch", "applypatch", "notebookedit"),
    "bash": (
        "shell", "bashoutput", "killshell", "killbash", "runshellcommand", "runcommand", "runcommands", "execute",
        "exec", "execcommand", "terminal", "runinterminal", "powershell", "localshell",
    ),
    "git_diff": ("changes",),
    "web_fetch": ("fetch", "fetchurl", "webreader"),
    "web_search": ("googlewebsearch",),
    "todo": ("todos", "todowrite", "todoread", "writetodos", "updateplan"),
    "subagent": ("task", "agent"),
    "read_skill": ("skill",),
}  # fmt: skip
_NAMES: Mapping[str, str] = {
    **{name.replace("_", ""): name for name in KINDS},
    **{other: name for name, others in _OTHER_NAMES.items() for other in others},
}

ALIASES: Mapping[str, tuple[str, ...]] = {
    "read": ("read_file", "list_files"),
    "edit": ("write_file", "edit_file"),
    "search": ("search_files", "list_files"),
    "execute": ("bash",),
    "shell": ("bash",),
    "web": ("web_fetch", "web_search"),
    "agent": ("subagent",),
    "custom-agent": ("subagent",),
    "todo": ("todo",),
}
"""Words by which Copilot's definitions name whole groups of tools, in any letters. In those of other programs the same
words are names of single tools: `Edit` of Claude Code makes no file."""

ENTRY = r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}\*?|\*"
"""How a tool may be named: a name, or its beginning and `*`. A part of a tool, such as `Bash(git:*)`, is none."""
_DENIED = re.compile(r"(?<![^\s])([A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}|)(?:(\*)\S*|\([^)]*\)?|(?=\s|$))")
"""The names in an entry that is none: whole tools of which it has a part, and beginnings."""
MOST = 200
"""Names in one list."""
_SERVER = "mcp__"


class Tools(Struct, frozen=True, omit_defaults=True):
    """What every one of `lists` covers may be used, but for `deny`. A person is asked before what `ask` covers."""

    lists: tuple[tuple[str, ...], ...] = ()
    """None of them: everything. An empty one: nothing."""
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()

    def permits(self, name: str, kind: Kind | None = None) -> bool:
        """Whether a tool may be used at all; `kind` is what is known of one that has no name of ours."""
        name = canonical(name)
        found = kind_of(name) if kind is None else kind
        if any(covers(rule, name) for rule in self.deny):
            return False
        return found == "own" or all(any(covers(rule, name, found) for rule in each) for each in self.lists)

    def asks(self, name: str, kind: Kind | None = None) -> bool:
        """Whether a person is asked before each use of a tool that is permitted."""
        name = canonical(name)
        found = kind_of(name) if kind is None else kind
        if found == "own":
            return False
        return any(found != "read" if rule == ASK else covers(rule, name) for rule in self.ask)

    def permits_own(self, tool: str) -> bool:
        """Whether a tool of the orchestrator may be used: it is, unless it is denied."""
        return self.permits(f"{_SERVER}orchard__{tool}", "own")

    def permits_server(self, server: str) -> bool:
        """Whether any tool of an MCP server could be used: if none can, nobody starts it."""
        prefix = canonical(f"{_SERVER}{server}__")
        if any(rule.endswith("*") and prefix.startswith(canonical(rule)[:-1]) for rule in self.deny):
            return False
        return all(any(_reaches(rule, prefix) for rule in each) for each in self.lists)

    @property
    def limits(self) -> bool:
        """Whether anything is taken away."""
        return bool(self.lists or self.deny)

    @property
    def may_edit(self) -> bool:
        return self.permits("write_file") or self.permits("edit_file")

    @property
    def may_run(self) -> bool:
        return self.permits("bash")

    @property
    def only_reads(self) -> bool:
        """Whether nothing that is permitted can change a worktree. Of a server's tools nobody knows what they do."""
        if any(self.permits(name) for name, kind in KINDS.items() if kind in ("edit", "run")):
            return False
        return any(not any(_reaches(rule, _SERVER) for rule in each) for each in self.lists)

    @property
    def mode(self) -> Mode:
        """The smallest of the words that holds all the tools with names of ours that are permitted."""
        if self.may_run:
            return "all"
        found = {kind for name, kind in KINDS.items() if self.permits(name)}
        return "all" if "other" in found else "edit" if "edit" in found else "read-only"

    @property
    def words(self) -> str:
        """In a line, for people: `edit, without git_commit; asks before all that does more than read`."""
        lists = [", ".join(each) or "none" for each in self.lists]
        said = " and only ".join(lists) or "all"
        if self.deny:
            said += f", without {', '.join(self.deny)}"
        if self.ask:
            before = ["all that does more than read" if rule == ASK else rule for rule in self.ask]
            said += f"; asks before {', '.join(before)}"
        return said


ALL = Tools()


class Source(Struct, frozen=True):
    """Who says what may be used."""

    origin: str
    tools: Tools


def narrowed(parent: Tools, child: Tools) -> Tools:
    """What a child may use: whatever both permit. A person is asked wherever either of them says so."""
    return Tools(_smallest((*parent.lists, *child.lists)), _once(parent.deny, child.deny), _once(parent.ask, child.ask))


def all_of(sources: Iterable[Source]) -> Tools:
    """What is left when everybody has said something."""
    return reduce(narrowed, (source.tools for source in sources), ALL)


def made(tools: Iterable[str] | str | None = None, deny: Iterable[str] = (), ask: Iterable[str] = ()) -> Tools:
    """The value of what somebody wrote for `tools`, `deny_tools` and `ask_tools`; `wrong` says what may be written."""
    given = (tools,) if isinstance(tools, str) else tuple(tools) if tools is not None else None
    lists: tuple[tuple[str, ...], ...] = ()
    asking = tuple(entry(rule) for rule in ask)
    if given is not None:
        asking = (ASK, *asking) if ASK in given else asking
        entries = tuple(rule if rule in MODES else entry(rule) for rule in given if rule != ASK)
        # `ask` alone takes nothing away; `all` and `*` neither.
        lists = (entries,) if (entries or {*given} != {ASK}) and not {"all", "*"} & {*entries} else ()
    return Tools(_smallest(lists), _once(tuple(entry(rule) for rule in deny)), _once(asking))


FIELDS = ("tools", "deny_tools", "ask_tools")
"""What people write it in."""


def written(tools: Tools) -> dict[str, str | list[str]]:
    """The fields that `made` makes this value of, without those that say nothing. It holds one list at most."""
    (given,) = tools.lists or ((),)
    # Beside a list that names nothing, `ask` says no more than which tools are asked about.
    only_asked = not given and bool(tools.lists)
    words = [*([ASK] if ASK in tools.ask and not only_asked else []), *given]
    found: dict[str, str | list[str]] = {}
    if words or tools.lists:
        found["tools"] = words[0] if len(words) == 1 and words[0] in (*MODES, ASK) else words
    if tools.deny:
        found["deny_tools"] = list(tools.deny)
    if asked := [rule for rule in tools.ask if rule != ASK or only_asked]:
        found["ask_tools"] = asked
    return found


def unfolded(names: Iterable[str]) -> tuple[str, ...]:
    """The names of a definition of Copilot's, with the tools that an alias stands for in its place."""
    return _once(*(ALIASES.get(name.casefold(), (name,)) for name in names))


def named(names: Iterable[str]) -> tuple[Tools, tuple[str, ...]]:
    """The value of a list that was written for any program, where no word is a mode; and the names that say too much.

    `Bash(git:*)` is a part of a tool, and is left out: whoever wrote it did not mean all of `bash`.
    """
    given = tuple(names)
    good = tuple(name for name in given if re.fullmatch(ENTRY, name))
    entries = _once(tuple(entry(name) for name in good))
    lists = () if "*" in entries else (entries,)
    return Tools(lists), tuple(name for name in given if name not in good)


def denied(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What a list takes away that was written for any program: the rules; the names that had to be taken for more than
    they say, such as `Bash(rm:*)` for `bash`; and those that name nothing.
    """
    rules: list[str] = []
    wider: list[str] = []
    lost: list[str] = []
    for name in names:
        exact = re.fullmatch(ENTRY, name) is not None
        found = [name] if exact else [a + b for a, b in _DENIED.findall(name) if a or b]
        (lost if not found else [] if exact else wider).append(name)
        rules += [entry(rule) for rule in found]
        # Some programs name a server by itself, and mean all that it has.
        rules += [f"{rule}__*" for rule in found if re.fullmatch(rf"{_SERVER}(?!.*__)[^*]+", rule)]
    return _once(tuple(rules)), tuple(wider), tuple(lost)


def wrong(entries: object, *, modes: bool) -> str | None:
    """What is wrong with a list of tools as somebody wrote it; None: nothing. `modes`: words are taken as well."""
    given = [entries] if isinstance(entries, str) and modes else entries
    if not isinstance(given, list | tuple):
        return "must be read-only, edit, all or ask, or a list of tools" if modes else "must be a list of tools"
    if len(given) > MOST:
        return f"must hold at most {MOST} tools, not {len(given)}"
    for rule in given:
        if not isinstance(rule, str) or not re.fullmatch(ENTRY, rule):
            return "must be the name of a tool, or its beginning and '*'"
        if isinstance(entries, str) and rule not in (*MODES, ASK):
            return "must be one of read-only, edit, all, ask, or a list of tools"
        if modes and rule not in (*MODES, ASK) and rule.casefold() in (*MODES[:1], "readonly", "read_only", ASK):
            return f"must be written as '{ASK if rule.casefold() == ASK else MODES[0]}'"
    return None


def canonical(name: str) -> str:
    """The one name of a tool: ours where we have one, else in small letters, as a model would be told it."""
    plain = re.sub(r"[^a-z0-9_*-]", "_", name.casefold())
    if plain.startswith(_SERVER) or plain.endswith("*"):
        return plain
    return _NAMES.get(re.sub(r"[_-]", "", plain), plain)


def entry(rule: str) -> str:
    """A rule as it is kept: by our name where there is one, else as written, since programs tell letters apart."""
    known = canonical(rule)
    return known if known in KINDS else rule


def kind_of(name: str) -> Kind:
    return KINDS.get(canonical(name), "other")


def covers(rule: str, name: str, kind: Kind | None = None) -> bool:
    """Whether an entry is about a tool; where `kind` is None, words are names like all others."""
    if kind is not None and rule in MODES:
        return rule == "all" or kind == "read" or (rule == "edit" and kind == "edit")
    rule = canonical(rule)
    return name.startswith(rule[:-1]) if rule.endswith("*") else name == rule


def unknown_names(tools: Tools) -> list[tuple[str, str]]:
    """Entries that mean no tool of ours, with the field that they stand in. What a server has nobody knows here."""
    said = [("tools", name) for each in tools.lists for name in each if name not in MODES]
    said += [("deny_tools", name) for name in tools.deny] + [("ask_tools", name) for name in tools.ask]
    return [
        (field, name)
        for field, name in dict.fromkeys(said)
        if name not in (ASK, "*") and not canonical(name).startswith(_SERVER) and not _means_some(name)
    ]


def _means_some(rule: str) -> bool:
    return any(covers(rule, name) for name in KINDS)


def _reaches(rule: str, prefix: str) -> bool:
    """Whether an entry can be about a tool whose name begins so."""
    if rule in MODES:
        return rule == "all"
    rule = canonical(rule)
    return prefix.startswith(rule[:-1]) or rule.startswith(prefix) if rule.endswith("*") else rule.startswith(prefix)


def _smallest(lists: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """The lists without those that others make superfluous: of two modes the smaller one stays."""
    modes = [MODES.index(each[0]) for each in lists if len(each) == 1 and each[0] in MODES]
    kept = [each for each in lists if not (len(each) == 1 and each[0] in MODES)]
    first = [(MODES[min(modes)],)] if modes and min(modes) < len(MODES) - 1 else []
    return tuple(dict.fromkeys([*first, *kept]))


def _once(*rules: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule for each in rules for rule in each))
