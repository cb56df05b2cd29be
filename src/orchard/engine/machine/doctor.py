"""What could go wrong here, looked at without changing anything: the findings of `orchard doctor`.

Each part looks at one thing and yields what it found, good or bad. A part that cannot look says so
as a finding of its own; the others still look.
"""

import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct, to_builtins

from orchard.agents.definitions.ignored import ignored_notes
from orchard.config.load import Settings
from orchard.config.places import missing_places
from orchard.config.reach import RIGHTS
from orchard.config.trust import AGREE_FIRST, not_agreed
from orchard.config.user_dirs import UserDirs
from orchard.engine.server.address import LOCK_FILE, is_locked, read_address
from orchard.errors import Hint, Next, OrchardError, Say, steps_of
from orchard.git.command import MINIMUM_VERSION, Blocked
from orchard.git.dependencies.kept import kept_worktrees
from orchard.git.folders import weigh
from orchard.git.hazards import hazards
from orchard.git.landing.claim import Astray, claims, found_again
from orchard.git.landing.intent import DamagedNotes, read_intent
from orchard.git.merge.merge import signing_problem
from orchard.git.refs import list_refs
from orchard.git.repository import FALLBACK_IDENTITY, Repository
from orchard.git.worktree.job_links import linked_worktrees
from orchard.git.worktree.status import refuse_blocked_notes
from orchard.git.worktree.worktrees import TRASH, Worktrees
from orchard.model.events.event import Json
from orchard.model.statuses import OVER, PlanStatus
from orchard.process.families.identity import Identity, is_alive
from orchard.process.sandbox.landlock import gaps
from orchard.process.sandbox.level import Finding as WallFinding
from orchard.process.sandbox.level import walls
from orchard.process.sandbox.policy import Policy, Resources
from orchard.process.sandbox.resources import InForce, in_force
from orchard.store.db import Damaged, explained, open_read_only, way_out
from orchard.store.plan_list import JOURNAL
from orchard.store.reader import read
from orchard.store.slots import SLOTS

Level = Literal["ok", "note", "warning", "problem"]

# The same names as in `opening`, which would bring the whole engine along.
SLOTS_FILE = "slots.db"
MINIMUM_PYTHON = (3, 11)
DISK_PROBLEM = 256 * 1024**2
DISK_WARNING = 2 * 1024**3
JOURNAL_LARGE = 1024**3
LISTED = 10
COUNTED_FILES = 100_000
"""How many files of the trash are looked at before its size is only a lower bound."""

PROGRAM_KEYS = (
    r"^(filter\..*\.(clean|smudge|process)|remote\..*\.(uploadpack|receivepack|vcs)"
    r"|credential\.(.*\.)?helper|core\.(sshcommand|gitproxy))$"
)

OFF = "Jobs run without a wall: the sandbox is off."

# Two connections that write or checkpoint at the same moment could damage the file (fixed in 3.51.3).
WAL_BUG = ((3, 7, 0), (3, 51, 2))


class Finding(Struct, frozen=True):
    level: Level
    topic: str
    message: str
    hint: Hint | None = None
    alarming: bool = False
    """Whether it is shown in red although plans can run."""


class Patient(Struct, frozen=True):
    repo: Repository
    settings: Settings
    dirs: UserDirs
    engine_alive: bool

    @property
    def journal(self) -> Path:
        return self.repo.state / "journal.db"


def examine(repo: Repository, settings: Settings, dirs: UserDirs, *, engine_alive: bool) -> list[Finding]:
    patient = Patient(repo, settings, dirs, engine_alive)
    found: list[Finding] = []
    blocked = None
    for topic, part in PARTS.items():
        try:
            found += part(patient)
        except Blocked as error:
            # Every part that asks git meets the same pipe.
            if blocked is None:
                found.append(Finding("problem", topic, error.message, error.hint))
            blocked = error
        except OrchardError as error:
            found.append(Finding("problem", topic, error.message, error.hint))
        except OSError as error:
            found.append(Finding("problem", topic, f"Cannot look at it: {error}."))
    return found


def healthy(findings: list[Finding]) -> bool:
    return all(finding.level != "problem" for finding in findings)


def health(findings: list[Finding], say: Say) -> Json:
    rows = [
        {
            "level": one.level,
            "topic": one.topic,
            "message": one.message,
            "hint": say(one.hint) if one.hint else None,
            "next": to_builtins(steps_of(one.hint)),
        }
        for one in findings
    ]
    return {"healthy": healthy(findings), "findings": rows}


# ---------------------------------------------------------------------------------- the programs


def _python(patient: Patient) -> Iterator[Finding]:
    yield _version("python", "Python", sys.version_info[:3], MINIMUM_PYTHON)


def _git(patient: Patient) -> Iterator[Finding]:
    yield _version("git", "git", patient.repo.version, MINIMUM_VERSION)


def _version(topic: str, name: str, found: tuple[int, ...], least: tuple[int, ...]) -> Finding:
    version, wanted = (".".join(map(str, numbers)) for numbers in (found, least))
    if found < least:
        said = f"{name.capitalize()} {version} is too old."
        return Finding("problem", topic, said, f"Install {name} {wanted} or newer.")
    return Finding("ok", topic, f"{name} {version}")


def _sqlite(patient: Patient) -> Iterator[Finding]:
    version = sqlite3.sqlite_version
    if WAL_BUG[0] <= sqlite3.sqlite_version_info <= WAL_BUG[1]:
        said = f"SQLite {version} can damage a database that two connections write at once (fixed in 3.51.3)."
        yield Finding("note", "sqlite", f"{said} The journal has one writer, so it is not affected.")
    else:
        yield Finding("ok", "sqlite", f"SQLite {version}")


def _agents(patient: Patient) -> Iterator[Finding]:
    if patient.settings.config.sandbox.level == "off":
        hint = 'Set sandbox = "auto", or give plans of strangers to agents only in a container or a virtual machine.'
        yield Finding("note", "agents", RIGHTS, hint)
    yield from (Finding("note", "agents", said) for said in ignored_notes(patient.repo, patient.settings.config))


def _sandbox(patient: Patient) -> Iterator[Finding]:
    """Which walls can be built here, tried for real; what the one in force does not stop, and which limits hold."""
    config = patient.settings.config.sandbox
    for finding in walls().findings:
        said = f"The wall '{finding.level}' "
        yield Finding("ok" if finding.works else "note", "sandbox", f"{said}{_works(finding)}")
    level = walls().choose(config.level)
    if level == "off":
        yield Finding(
            "warning", "sandbox", OFF, 'Remove sandbox = "off" from your settings; the default is "auto".', True
        )
        return
    yield Finding("ok", "sandbox", f"Jobs run behind the wall '{level}'.")
    if level == "landlock":
        place = patient.repo.home
        policy = Policy(home=place, temporary=place, writable=(place,), protected=(place / ".git",), network="proxy")
        yield from (Finding("note", "sandbox", f"It does not stop this: {gap}") for gap in gaps(policy))
    hint = "Create it, or remove it from your settings."
    yield from (Finding("warning", "sandbox", said, hint) for said in missing_places(config))
    limits = Resources(memory=config.memory, processes=config.processes, files=config.files, disk=config.disk)
    yield from _limits(in_force(limits))


def _limits(held: InForce) -> Iterator[Finding]:
    """Limits that hold, those that were asked for and do not hold, and in one line those that nobody set."""
    hint = "Start it where a cgroup is delegated: systemd-run --user --scope -p Delegate=yes, and then the command."
    for said in held.asked:
        yield Finding("warning", "sandbox", said, hint) if said in held.weak else Finding("ok", "sandbox", said)
    if held.unset:
        keys = {"Memory": "memory", "Processes": "processes", "Open files": "files", "Disk": "disk"}
        named = ", ".join(f"sandbox.{keys[kind]}" for kind in held.unset)
        yield Finding("ok", "sandbox", f"Jobs have no limit where you set none: {named}.")


def _works(finding: WallFinding) -> str:
    stops = {
        "bwrap": "works here: it keeps programs from everything outside the worktree, from other processes, namespaces "
        "and devices, and from the network except through the proxy.",
        "landlock": "works here: it keeps programs from reading and writing elsewhere, from sending signals, and from "
        "the network except through the proxy.",
    }
    return stops.get(finding.level, "works here.") if finding.works else f"cannot be built here: {finding.reason}"


# -------------------------------------------------------------------------------- the repository


def _repository(patient: Patient) -> Iterator[Finding]:
    levels: dict[str, Level] = {"error": "problem", "warning": "warning", "note": "note"}
    refuse_blocked_notes(patient.repo.git, thorough=True)
    found = hazards(patient.repo)
    for hazard in found:
        hint = None if hazard.hint == "Nothing to do." else hazard.hint
        yield Finding(levels[hazard.severity], f"git/{hazard.kind}", hazard.message, hint)
    if not found:
        yield Finding("ok", "repository", f"{patient.repo.main_top or patient.repo.common_dir} has nothing unusual")


def _programs(patient: Patient) -> Iterator[Finding]:
    """A clone brings none; a repository that came with its `.git`, from an archive or a shared disk, may."""
    keys = patient.repo.git("config", "-z", "--local", "--name-only", "--get-regexp", PROGRAM_KEYS, ok=(0, 1)).fields
    if keys:
        listed = ", ".join(sorted({key.decode(errors="replace") for key in keys})[:LISTED])
        said = f"The git config of this repository names programs, which git runs with your rights: {listed}."
        hint = "Look at them with 'git config --local --list'; those that are not yours: git config --local --edit"
        yield Finding("note", "programs", said, hint)


def _commits(patient: Patient) -> Iterator[Finding]:
    name, email = patient.repo.identity()
    if (name, email) == FALLBACK_IDENTITY:
        said = f"Git does not know who you are here: what lands is by {name} <{email}>."
        yield Finding("warning", "identity", said, "git config --global user.name NAME, and user.email ADDRESS")
    else:
        yield Finding("ok", "identity", f"commits are by {name} <{email}>")
    if patient.repo.wants_signing():
        problem = signing_problem(patient.repo)
        if problem is not None:
            yield Finding("problem", "signing", problem.message, problem.hint)
        else:
            yield Finding("ok", "signing", "a commit can be signed without asking")


def _settings(patient: Patient) -> Iterator[Finding]:
    for warning in patient.settings.warnings:
        yield Finding("warning", "settings", warning)
    if patient.settings.untrusted:
        yield Finding("warning", "trust", not_agreed(patient.settings.untrusted), AGREE_FIRST)
    else:
        yield Finding("ok", "settings", "the settings are valid, and none waits for your agreement")


def _disk(patient: Patient) -> Iterator[Finding]:
    free = shutil.disk_usage(patient.repo.common_dir).free
    said = f"{_size(free)} free on the repository's disk"
    if free < DISK_PROBLEM:
        yield Finding("problem", "disk", f"Only {said}.", "Make room: a full disk stops every plan.")
    elif free < DISK_WARNING:
        yield Finding("warning", "disk", f"Only {said}.", "Each job needs room for a checkout.")
    else:
        yield Finding("ok", "disk", said)


# ------------------------------------------------------------------------------------- our state


def _state(patient: Patient) -> Iterator[Finding]:
    try:
        found = patient.repo.state.lstat()
    except FileNotFoundError:
        yield Finding("ok", "state", "no plan has run here yet")
        return
    path = patient.repo.state
    if not stat.S_ISDIR(found.st_mode):
        yield Finding("problem", "state", f"{path} is not a folder.", "Move it away.")
    elif found.st_uid != os.getuid():
        yield Finding("problem", "state", f"{path} belongs to user {found.st_uid}, not to you.", "Change its owner.")
    elif found.st_mode & 0o022:
        said = f"Others can write into {path}, which holds logs and the journal."
        yield Finding("warning", "state", said, f"Run: chmod 700 '{path}'")
    elif not os.access(path, os.W_OK | os.X_OK):
        yield Finding("problem", "state", f"You cannot write into {path}", "Change its permissions.")
    else:
        yield Finding("ok", "state", f"{path} is yours")


def _journal(patient: Patient) -> Iterator[Finding]:
    if not os.path.lexists(patient.journal):
        return
    # Only SQLite may open the file: closing any other descriptor of it would drop an engine's locks.
    with explained(patient.journal, JOURNAL.what):
        connection = open_read_only(patient.journal, JOURNAL)
        try:
            rows = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)")]
            events = int(connection.execute("SELECT count(*) FROM events").fetchone()[0])
        finally:
            connection.close()
    size = patient.journal.stat().st_size
    if rows != ["ok"]:
        said = f"The journal {patient.journal} is damaged: {'; '.join(rows)}."
        yield Finding(
            "problem",
            "journal",
            said,
            ("Copy that folder before anything else. ", *way_out(patient.journal, JOURNAL.what)),
        )
    elif size > JOURNAL_LARGE:
        said = f"The journal holds {events:,} events in {_size(size)}."
        yield Finding("warning", "journal", said, ("Run '", Next("purge_plan"), "' for plans that you no longer need."))
    else:
        yield Finding("ok", "journal", f"the journal is sound: {events:,} events in {_size(size)}")


def _engine(patient: Patient) -> Iterator[Finding]:
    address = read_address(patient.repo.state)
    if patient.engine_alive and address is not None and not Path(address.socket).exists():
        said = f"The engine (process {address.pid}) runs, but its socket {address.socket} is gone."
        yield Finding("warning", "engine", said, "Let its plans finish; the next engine makes a new one.")
    elif address is not None:
        yield Finding("ok", "engine", f"an engine is running (process {address.pid})")
    elif is_locked(patient.repo.state / LOCK_FILE):
        said = "A process holds the engine's lock, but cannot be seen: it is starting, stuck, or in another container."
        yield Finding("warning", "engine", said, f"Look again; if it stays, see who has {LOCK_FILE} open and end it.")
    elif patient.engine_alive:
        yield Finding("ok", "engine", "an engine is running")
    else:
        yield Finding("ok", "engine", "no engine is running")


def _plans(patient: Patient) -> Iterator[Finding]:
    with read(patient.journal) as journal:
        unsettled = [row for row in journal.plans() if not row.settled]
    # A plan that is over is unsettled while its branch is being moved, also one that was deleted since.
    half = [row for row in unsettled if row.status in OVER and not patient.engine_alive]
    for row in half[-LISTED:]:
        said = f"A landing or an undo of plan '{row.name}' ({row.id}) was interrupted: its checkout may be half-way."
        yield Finding("warning", "plans", said, ("Run '", Next("resume_plan", row.id), "'."))
    rows = [row for row in unsettled if not row.summary.deleted]
    going = (PlanStatus.RUNNING, PlanStatus.PENDING)
    left = [row for row in rows if row.status in going and not patient.engine_alive]
    for row in left[-LISTED:]:
        said = f"Plan '{row.name}' ({row.id}) was interrupted: no engine works on it."
        yield Finding("warning", "plans", said, ("Run '", Next("resume_plan", row.id), "'."))
    for row in [row for row in rows if row.status == PlanStatus.WAITING][-LISTED:]:
        hint = row.summary.hint
        yield Finding(
            "note", "plans", f"Plan '{row.name}' ({row.id}) waits for you.", f"Run '{hint}'." if hint else None
        )


def _landings(patient: Patient) -> Iterator[Finding]:
    """Notes about landings that cannot be read keep every engine from starting; others wait for their checkout."""
    with suppress(FileNotFoundError):
        for claim in sorted(claims(patient.repo).iterdir()):
            try:
                intent = read_intent(claim)
                if intent is not None and not intent.done:
                    found_again(patient.repo, claim, intent)
            except (DamagedNotes, Astray) as error:
                yield Finding("problem", "landings", error.message, error.hint)


def _leftovers(patient: Patient) -> Iterator[Finding]:
    root = patient.repo.worktree_root(patient.settings.config.worktree_root)
    strays = Worktrees(patient.repo, root).strays(())
    for stray in strays[:LISTED]:
        if stray.kind == "folder":
            said, hint = f"Neither git nor a plan knows the folder {stray.path}", "Remove it if you do not need it."
        else:
            said, hint = f"Git knows a worktree of ours at {stray.path}, which is gone.", "The next engine tidies up."
        yield Finding("note", "leftovers", said, hint)
    kept = kept_worktrees(patient.repo)
    if kept:
        taken = _size(sum(one.size for one in kept))
        said = f"{len(kept)} warm worktrees wait" if len(kept) > 1 else "One warm worktree waits"
        hint = "'worktree.keep_size' says how much of the disk they may take; with 0 the next engine removes them."
        yield Finding("note", "worktrees", f"{said} for the next run ({taken}).", hint)
    yield from _kept_for_people(patient, root)
    files, size = weigh(root / TRASH, COUNTED_FILES)
    if files:
        more = "more than " if files >= COUNTED_FILES else ""
        said = f"The trash in {root / TRASH} holds {more}{files:,} files ({_size(size)})."
        yield Finding("note", "leftovers", said, "The next engine empties it.")
    saved = len(list_refs(patient.repo.git, "refs/orchard/wip"))
    if saved:
        said = (
            f"Orchard keeps {saved:,} pieces of saved work." if saved > 1 else "Orchard keeps one piece of saved work."
        )
        see, let_go = Next("list_saved_work"), Next("purge_plan")
        yield Finding("note", "saved work", said, ("'", see, "' lists it; '", let_go, "' removes it with its plan."))
    if not strays and not files:
        yield Finding("ok", "leftovers", f"there is nothing left over below {root}")


def _kept_for_people(patient: Patient, root: Path) -> Iterator[Finding]:
    """Worktrees of plans that are over: a person may want to look into them, and only a person lets go of them."""
    with read(patient.journal) as journal:
        over = {row.id for row in journal.plans() if row.status in OVER}
    folders = {plan: places for plan, places in linked_worktrees(root).items() if plan in over}
    if not folders:
        return
    weighed = {plan: [weigh(place, COUNTED_FILES) for place in places] for plan, places in folders.items()}
    found = [one for places in weighed.values() for one in places]
    more = "more than " if any(files >= COUNTED_FILES for files, _ in found) else ""
    whose = f"{len(found)} worktrees of plans that have ended take"
    whose = whose if len(found) > 1 else "One worktree of a plan that has ended takes"
    said = f"{whose} {more}{_size(sum(size for _, size in found))} of the disk."
    largest = sorted(weighed, key=lambda plan: -sum(size for _, size in weighed[plan]))[:LISTED]
    steps = [part for plan in largest for part in ("', '", Next("delete_plan", plan))][1:]
    yield Finding("note", "worktrees", said, ("To save what is in there and free the disk: '", *steps, "'."))


def _capacity(patient: Patient) -> Iterator[Finding]:
    total, path = patient.settings.config.capacity.global_, patient.dirs.state / SLOTS_FILE
    if total == 0 or not os.path.lexists(path):
        return
    try:
        with explained(path, SLOTS.what):
            connection = open_read_only(path, SLOTS)
            try:
                rows = connection.execute("SELECT pid, started, boot FROM leases").fetchall()
            finally:
                connection.close()
    except Damaged as error:
        said = f"{error.message} The next engine sets it aside and makes a new one."
        yield Finding("warning", "capacity", said)
        return
    except OrchardError as error:
        said = f"{error.message} Until it is repaired, engines do not know of each other."
        yield Finding("warning", "capacity", said, f"Run, when no plan runs: rm '{path}'")
        return
    taken = sum(is_alive(Identity(*row)) for row in rows)
    yield Finding("ok", "capacity", f"{taken} of {total} slots of this user are taken")


def _user_folders(patient: Patient) -> Iterator[Finding]:
    for name, path in (("state", patient.dirs.state), ("configuration", patient.dirs.config)):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            said = f"The folder of your {name}, {path}, can be written by others."
            yield Finding("warning", "folders", said, f"Run: chmod go-w '{path}'")


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


PARTS: dict[str, Callable[[Patient], Iterator[Finding]]] = {
    "python": _python,
    "git": _git,
    "sqlite": _sqlite,
    "agents": _agents,
    "sandbox": _sandbox,
    "repository": _repository,
    "programs": _programs,
    "commits": _commits,
    "settings": _settings,
    "disk": _disk,
    "state": _state,
    "journal": _journal,
    "engine": _engine,
    "plans": _plans,
    "landings": _landings,
    "leftovers": _leftovers,
    "capacity": _capacity,
    "folders": _user_folders,
}
