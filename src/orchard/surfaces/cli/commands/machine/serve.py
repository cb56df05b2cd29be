"""`orchard serve` and `orchard stop`: the daemon, seen from a terminal."""

import asyncio
import ipaddress
import json
import os
import shlex
import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import click

from orchard.app import App, open_app
from orchard.config.trust import not_agreed
from orchard.config.user_dirs import make_state_dir, user_dirs
from orchard.engine.server.address import read_address
from orchard.engine.server.server import decode_error, encode_error
from orchard.errors import NeedsPerson, NotFound, OrchardError, UsageError
from orchard.process.detached import start_detached
from orchard.process.families.exits import send, wait_exit
from orchard.store.repositories import known_repositories
from orchard.surfaces.cli.group import VerbCommand, verb
from orchard.surfaces.cli.options import app_for_work
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import safe
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.http.daemon.address import HttpAddress, daemons, read_http_address
from orchard.surfaces.next_steps import in_commands, told

START_SECONDS = 45.0
LOG_BYTES = 1024 * 1024
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

EXAMPLES = """
orchard serve                          # this repository, until ctrl-c
orchard serve --background             # and go on working here; orchard stop ends it
orchard serve --repo ../a --repo ../b  # two repositories
orchard serve --all --port 8700        # every repository that you have used Orchard in
"""


class ServeCommand(VerbCommand):
    """The one command that takes several repositories: `--repo` is an option of its own here."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params = [one for one in self.params if one.name != "repo" or one.expose_value]


@verb("serve", cls=ServeCommand, examples=EXAMPLES)
@click.option("-C", "--repo", multiple=True, type=FOLDER, metavar="DIR", help="Serve the repository of this folder.")
@click.option("--all", "every", is_flag=True, help="Serve every repository that you have used Orchard in.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Listen at this port (default: any that is free).",
)
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Listen at this address; needs TLS if not local.")
@click.option("--name", "names", multiple=True, metavar="NAME", help="An additional host name to accept.")
@click.option("--tls-cert", type=FILE, metavar="FILE", help="The certificate, as PEM.")
@click.option("--tls-key", type=FILE, metavar="FILE", help="Its key, as PEM.")
@click.option(
    "--on-stop",
    type=click.Choice(["finish", "stop"]),
    default="finish",
    help="When it ends, running jobs finish, or are stopped.",
)
@click.option(
    "--until-idle", type=click.FloatRange(0, 1e9), metavar="SECONDS", help="Exit after this many idle seconds."
)
@click.option("--background", is_flag=True, help="Run in the background; return when it is ready.")
def serve(terminal: Terminal, /, repo: tuple[Path, ...], every: bool, background: bool, **options: Any) -> int:
    """It prints a link that opens the dashboard in a browser, once and within ten minutes; run it again for a new link.
    The first ctrl-c or SIGTERM lets running jobs finish and starts nothing new, the second stops them, and the third
    stops everything at once.
    """
    ready = _ready_descriptor()
    try:
        check(options)
        apps = _apps(terminal, repo, every)
        if background:
            return _in_background(terminal, apps, options)
        return _in_foreground(terminal, apps, options, ready)
    except OrchardError as error:
        if ready is not None:
            with suppress(OSError):
                os.write(ready, json.dumps(encode_error(error)).encode())
        raise


@verb(
    "stop",
    examples="""
orchard stop          # running jobs are left to finish
orchard stop --now    # running jobs are stopped; what they wrote is kept
orchard stop --all    # every daemon of yours
""",
)
@click.option("--now", is_flag=True, help="Stop running jobs, and do not wait for their end.")
@click.option("--all", "every", is_flag=True, help="Stop every daemon, whichever repositories it serves.")
def stop(terminal: Terminal, now: bool, every: bool) -> int:
    """Running jobs finish first, unless it was started with '--on-stop stop'. Press ctrl-c to stop waiting; the daemon
    still shuts down.
    """
    if every:
        found = list(daemons(user_dirs().runtime))
    else:
        address = read_http_address(open_app(terminal.repo, in_commands).repo.state)
        found = [address] if address is not None else []
    for address in found:
        _stop(terminal, address, now=now)
    done = [{"pid": address.pid, "repositories": address.repositories} for address in found]
    said = [f"Stopped: {_names(address.repositories)}" for address in found] or ["No daemon runs here."]
    if not found and not every and read_address(open_app(terminal.repo, in_commands).repo.state) is not None:
        said.append(
            "An engine works on plans here, without a daemon: 'orchard pause' or 'orchard cancel' stops a plan."
        )
    terminal.answer({"stopped": done}, *(text.done(line) for line in said))
    return 0


def _stop(terminal: Terminal, address: HttpAddress, *, now: bool) -> None:
    from orchard.surfaces.http.daemon.shutdown import BEGIN, BEGIN_STOP

    if not send(address.identity, BEGIN_STOP if now else BEGIN):
        raise OrchardError(f"Process {address.pid} may not be stopped by you.", "Stop it as the user who started it.")
    if not wait_exit(address.identity, 1.0):
        terminal.note(text.done(f"Waiting for running jobs of {_names(address.repositories)}"))
        while not wait_exit(address.identity, 3600.0):
            pass


# ------------------------------------------------------------------------------------- beginning


def check(options: dict[str, Any]) -> None:
    """Refuse what must not be: the door of a machine is opened to others only with TLS."""
    cert, key = options["tls_cert"], options["tls_key"]
    if (cert is None) != (key is None):
        raise UsageError("TLS needs both a certificate and its key.", "Give --tls-cert and --tls-key.")
    for name in options["names"]:
        if not name or not name.isascii() or any(one in name for one in " /:@?#*\\"):
            raise UsageError(f"'{safe(name)}' is not the name of a host.", "For example: --name box.example.org")
    if cert is None and not _is_local(options["host"]):
        raise UsageError(
            f"'{safe(options['host'])}' can be reached from other machines, and nothing would be encrypted.",
            "Give --tls-cert and --tls-key, or listen at 127.0.0.1 and forward the port with ssh.",
        )


def _is_local(host: str) -> bool:
    """Whether only this machine can come in by this address; a name counts by all that it means."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"There is no address '{safe(host)}' here.", "For example: --host 127.0.0.1") from error
    return all(ipaddress.ip_address(str(one[4][0]).split("%")[0]).is_loopback for one in found)


def _apps(terminal: Terminal, given: tuple[Path, ...], every: bool) -> list[App]:
    """The repositories that are meant, each once and opened; those named by the user need their consent."""
    found: dict[Path, App] = {}
    for folder in given or (() if every else (Path(),)):
        app = app_for_work(Terminal(terminal.repo / folder, terminal.json, terminal.quiet, terminal.no_color))
        found.setdefault(app.repo.common_dir, app)
    for folder in known_repositories(user_dirs().state) if every else ():
        try:
            app = open_app(folder, in_commands)
            if app.settings.untrusted:
                raise NeedsPerson(not_agreed(app.settings.untrusted), f"orchard trust -C {shlex.quote(str(folder))}")
        except OrchardError as error:
            terminal.note(text.warning(f"{safe(folder)} is not served: {safe(told(error), 2000)}"))
            continue
        found.setdefault(app.repo.common_dir, app)
    if not found:
        raise NotFound("You have not used Orchard in any repository yet.", "orchard serve --repo DIR")
    return list(found.values())


def _in_foreground(terminal: Terminal, apps: list[App], options: dict[str, Any], ready: int | None) -> int:
    """Be the daemon for those that nobody serves yet."""
    from orchard.surfaces.http.daemon.server import Daemon, Options, claim

    tls = (options["tls_cert"], options["tls_key"]) if options["tls_cert"] else None
    how = Options(options["host"], options["port"], options["names"], tls, options["on_stop"], options["until_idle"])
    with ExitStack() as stack:
        mine = []
        for app in apps:
            lock = claim(app)
            if lock is not None:
                stack.callback(lock.release)
                mine.append(app)
        if not mine:
            _tell_where(terminal, apps, already=True)
            _say_ready(ready)
            return 0
        for app in apps:
            if app not in mine:
                terminal.note(text.warning(f"{safe(_folder(app))} is served by another daemon already."))
        daemon = Daemon(mine, how)

        def begin(address: HttpAddress) -> None:
            for kept in daemon.kept:
                if kept.problem is not None:
                    terminal.note(text.warning(f"{safe(_folder(kept.app))}: {safe(kept.problem.message)}"))
            if ready is None:
                tell(terminal, address, already=False)
            _say_ready(ready)

        daemon.stopping.listen(lambda: terminal.note(text.done(WORDS[daemon.stopping.haste])))
        asyncio.run(daemon.run(begin))
    return 0


WORDS = {
    1: "Stopping: running jobs finish, nothing new starts. Press ctrl-c again to stop them.",
    2: "Stopping running jobs; what they wrote is kept. Press ctrl-c again to stop at once.",
    3: "Stopping at once.",
}


def _in_background(terminal: Terminal, apps: list[App], options: dict[str, Any]) -> int:
    """See that a daemon runs that serves them, and say where."""
    if all(read_http_address(app.repo.state) is not None for app in apps):
        _tell_where(terminal, apps, already=True)
        return 0
    words = [word for app in apps for word in ("--repo", str(_folder(app)))]
    words += ["--host", options["host"], "--port", str(options["port"]), "--on-stop", options["on_stop"]]
    words += [word for name in options["names"] for word in ("--name", name)]
    for option in ("tls_cert", "tls_key", "until_idle"):
        if options[option] is not None:
            value = options[option].resolve() if isinstance(options[option], Path) else options[option]
            words += [f"--{option.replace('_', '-')}", str(value)]
    log = make_state_dir(user_dirs().state) / "serve.log"
    if log.is_file() and not log.is_symlink() and log.stat().st_size > LOG_BYTES:
        log.unlink()
    problem = start_detached([sys.executable, "-m", "orchard", "serve", *words], log, dict(os.environ))
    if problem:
        raise decode_error(json.loads(problem)) if problem.startswith("{") else OrchardError(problem)
    _tell_where(terminal, apps, already=False)
    return 0


def _ready_descriptor() -> int | None:
    """Where whoever started us in the background listens, if somebody did."""
    given = os.environ.pop("ORCHARD_READY", "")
    return int(given) if given.isdecimal() else None


def _say_ready(ready: int | None) -> None:
    if ready is not None:
        with suppress(OSError):
            os.close(ready)


# --------------------------------------------------------------------------------------- telling


def _tell_where(terminal: Terminal, apps: list[App], *, already: bool) -> None:
    """Say where these are served, by one daemon or by several; one that is starting is waited for."""
    deadline = time.monotonic() + START_SECONDS
    found: dict[int, HttpAddress] = {}
    for app in apps:
        while (address := read_http_address(app.repo.state)) is None:
            if time.monotonic() > deadline:
                raise OrchardError(
                    "A daemon holds this repository but does not say where it is.", f"See {user_dirs().state}/serve.log"
                )
            time.sleep(0.05)
        found[address.pid] = address
    for address in found.values():
        tell(terminal, address, already=already)


def tell(terminal: Terminal, address: HttpAddress, *, already: bool) -> None:
    from orchard.surfaces.http.daemon.tokens import new_code

    url = f"{address.url}#code={new_code(address.folder)}"
    if terminal.json:
        row = {
            "url": url, "address": address.url, "token_file": address.token_file, "pid": address.pid,
            "repositories": address.repositories, "already": already, "stopping": address.stopping,
        }  # fmt: skip
        terminal.row(row)
        return
    many = text.many(len(address.repositories), "repository", "repositories")
    terminal.show(text.done(f"Orchard serves {many} at {url}"))
    if address.stopping:
        terminal.note(text.warning("It is stopping: it ends when the jobs that run have ended."))


def _folder(app: App) -> Path:
    return app.repo.main_top or app.repo.top or app.repo.common_dir


def _names(folders: list[str]) -> str:
    return ", ".join(safe(folder) for folder in folders)
