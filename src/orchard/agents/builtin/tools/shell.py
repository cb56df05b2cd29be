"""The tool that runs commands: bounded in time and output, and everything that a command started ends with it."""

import re
import shlex
import shutil
from pathlib import PurePosixPath

from orchard.agents.builtin.tool import (
    LONGEST_ANSWER,
    Answer,
    Json,
    Tool,
    ToolContext,
    ToolError,
    head_and_tail,
    in_thread,
    plain_text,
    schema,
    scratch_file,
    text,
)
from orchard.model.limits import Limits
from orchard.text import shortened

MOST_OUTPUT = 64 * 1024 * 1024
"""A command that writes more is stopped."""
GRACE = 2.0
LONGEST_COMMAND = 64 * 1024
LOOKED_AT = 16 * 1024
"""Characters of a command in which danger is looked for: it is a courtesy, and must not take long."""


def shell_tools(context: ToolContext) -> list[Tool]:
    most = int(context.shell_most_seconds)
    return [
        Tool(
            "bash",
            "Run a command in the work folder and see its output and exit status. There is nothing to read from "
            "standard input, no person answers, and what a command leaves in the background is ended with it. "
            "Long output is cut in the middle: filter it.",
            schema(
                ("command",),
                command=text("For the shell.", minLength=1, maxLength=LONGEST_COMMAND),
                description=text("What it is for, in a few words.", maxLength=LONGEST_COMMAND),
                timeout={
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": most,
                    "description": f"Seconds; {context.shell_seconds:g} if left out, at most {most}.",
                },
            ),
            run_command,
        )
    ]


async def run_command(context: ToolContext, arguments: Json) -> Answer:
    command = arguments["command"]
    if "\0" in command:
        raise ToolError("A command has no NUL characters.")
    if reason := danger(command[:LOOKED_AT]):
        raise ToolError(f"Refused: {reason}. If it is really needed, say so at the end and leave it to a person.")
    seconds = min(float(arguments.get("timeout", context.shell_seconds)), context.shell_most_seconds)
    shell = shutil.which("bash", path=context.env.get("PATH")) or "/bin/sh"
    with scratch_file(context) as log:
        limits = Limits(wall=seconds, log_bytes=MOST_OUTPUT, grace=GRACE)
        ended = await context.run((shell, "-c", command), context.for_commands, log, limits)
        if ended.reason == "spawn-failed":
            raise ToolError(ended.message)
        # Escape sequences may be most of it, so more is read than is shown.
        said = await in_thread(head_and_tail, log, 4 * LONGEST_ANSWER)
    output = shortened(plain_text(said).strip("\n"), LONGEST_ANSWER - 400)
    notes = []
    if ended.reason == "timeout":
        notes.append(f"stopped: it ran longer than {seconds:g} s")
    elif ended.reason == "output-limit":
        notes.append(f"stopped: it wrote more than {MOST_OUTPUT:,} bytes")
    elif ended.signal is not None:
        notes.append(f"ended by signal {ended.signal}")
    else:
        notes.append(f"exit status {ended.exit_code}")
    if ended.leftovers:
        notes.append(f"{ended.leftovers} processes in the background were ended")
    return Answer(f"{output}\n[{'; '.join(notes)}]".lstrip("\n"), failed=not ended.ok)


# ------------------------------------------------------------------------ what is refused, as a courtesy

_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish"})
_INTERPRETERS = _SHELLS | {"python", "python3", "node", "perl", "ruby"}
_PREFIXES = frozenset(
    {"sudo", "doas", "env", "nohup", "time", "exec", "command", "nice", "builtin", "then", "do", "else"}
)
_SYSTEM = re.compile(
    r"^(/|/\*|~/?\*?|\$HOME/?\*?|\$\{HOME\}/?\*?|/(bin|boot|dev|etc|home|lib|lib64|opt|proc|root|sbin|sys|usr|var)/?\*?)$"
)
_DISK = re.compile(r"^/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|md|dm-|loop|mem$|kmem$|port$)")
_FORK_BOMB = re.compile(r"([\w:.]{1,32})\s?\(\)\s?\{[^{}]{0,80}?\1\s{0,4}\|\s{0,4}\1[^{}]{0,80}?&")
_OFF = frozenset({"shutdown", "reboot", "halt", "poweroff"})


def danger(command: str, depth: int = 0) -> str | None:
    """Why a command is better not run; None for all others. It is no wall: whoever wants to gets around it."""
    if _FORK_BOMB.search(command):
        return "this is a fork bomb"
    before: list[str] = []
    separator = ""
    for words, ending in _commands(command):
        reason = _danger_of(words, depth)
        if reason is None and separator == "|" and before and words:
            fetches = PurePosixPath(before[0]).name in ("curl", "wget", "fetch")
            if fetches and PurePosixPath(words[0]).name in _INTERPRETERS:
                reason = "it runs what it gets from the network without looking at it (save it to a file first)"
        if reason is not None:
            return reason
        before, separator = words, ending
    return None


def _commands(command: str) -> list[tuple[list[str], str]]:
    """The simple commands of a line as their words, each with what comes after it."""
    joined = command.replace("\\\n", " ").replace("\n", " ; ")
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        tokens = joined.split()
    found: list[tuple[list[str], str]] = []
    words: list[str] = []
    for token in [*tokens, ";"]:
        if token and all(char in ";&|()" for char in token):
            found.append((_without_prefixes(words), token))
            words = []
        else:
            words.append(token)
    return found


def _without_prefixes(words: list[str]) -> list[str]:
    rest = words
    while rest and (rest[0] in _PREFIXES or re.match(r"^\w+=", rest[0]) or rest[0] in ("{", "!")):
        rest = rest[1:]
        while rest and rest[0].startswith("-"):
            rest = rest[1:]
    return rest


def _danger_of(words: list[str], depth: int) -> str | None:
    if not words:
        return None
    name, rest = PurePosixPath(words[0]).name, words[1:]
    flags = "".join(word[1:] for word in rest if re.match(r"^-[A-Za-z]+$", word))
    recursive = "r" in flags or "R" in flags or "--recursive" in rest
    system = next((word for word in rest if _SYSTEM.match(word)), None)
    if name in ("rm", "chmod", "chown") and recursive and system:
        return f"'{name}' would go through all of {system}"
    if name.startswith("mkfs") or name in ("wipefs", "fdisk", "sfdisk", "parted"):
        return f"'{name}' writes file systems or partitions"
    disk = next((word for word in rest if _DISK.match(word.removeprefix("of="))), None)
    if disk and (name in ("dd", "shred", "tee") or any(word in (">", ">>", ">|") for word in rest)):
        return f"it writes to the device {disk.removeprefix('of=')}"
    if name in _OFF or (name in ("systemctl", "init", "telinit") and set(rest) & (_OFF | {"0", "6"})):
        return "it would stop the machine"
    if name == "kill" and "-1" in rest[1:]:
        return "it would end every process of the user"
    if name == "git" and "push" in rest and _forces(rest[rest.index("push") + 1 :]):
        return "a forced push can lose the commits of others"
    if name in _SHELLS and "-c" in rest[:-1] and depth < 3:
        return danger(rest[rest.index("-c") + 1], depth + 1)
    return None


def _forces(words: list[str]) -> bool:
    forced = any(
        re.match(r"^(--force(-with-lease|-if-includes)?(=.*)?|--mirror|-[a-zA-Z]*f[a-zA-Z]*)$", w) for w in words
    )
    return forced or any(word.startswith("+") for word in words)
