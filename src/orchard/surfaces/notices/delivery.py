"""The ways in which a notice leaves: a desktop, a command, a webhook.

Each delivery has a thread of its own, which ends with the process at the latest. So nothing that hangs at the other
end holds a plan or an engine up; the notifier decides how long the process waits for the last ones.
"""

import hashlib
import hmac
import json
import shutil
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from html import escape
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError, URLError

from msgspec import Struct

from orchard.config.layers import Notify
from orchard.process.errand import run_errand
from orchard.surfaces.notices.notice import Notice

WEBHOOK_SECONDS = 5.0
COMMAND_SECONDS = 30.0
UNDER_WAY = 16
"""Deliveries at once; more of them mean that the other end hangs, and are dropped."""

Way = Callable[[Notice], str | None]
"""Delivers a notice, or says why it could not: the end of a sentence that begins with the name of the way."""


def ways_of(settings: Notify, env: Mapping[str, str]) -> dict[str, Way]:
    """What the settings ask for, by a name for messages."""
    ways: dict[str, Way] = {}
    if settings.desktop:
        ways["The desktop notification"] = lambda notice: _desktop(notice, env)
    if settings.command:
        command = settings.command
        ways["The command of 'notify.command'"] = lambda notice: _command(command, notice, env)
    if settings.webhook:
        hook = Webhook(settings.webhook, env.get(settings.secret_env or "", ""))
        ways["The webhook of 'notify.webhook'"] = hook.send
    return ways


def missing_secret(settings: Notify, env: Mapping[str, str]) -> str | None:
    if not settings.webhook or settings.secret_env is None or env.get(settings.secret_env):
        return None
    return f"Webhooks are not sent: the variable {settings.secret_env} ('notify.secret_env') is not set."


# ---------------------------------------------------------------------------------------- the ways


def _desktop(notice: Notice, env: Mapping[str, str]) -> str | None:
    path = env.get("PATH")
    if sys.platform == "darwin" and (program := shutil.which("osascript", path=path)):
        script = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")
        words = [word for line in script for word in ("-e", line)]
        return run_errand([program, *words, notice.title, notice.message], b"", env, COMMAND_SECONDS)
    if program := shutil.which("notify-send", path=path):
        # The text of a notification may hold markup.
        words = ["--app-name=Orchard", "--", notice.title, escape(notice.message, quote=False)]
        return run_errand([program, *words], b"", env, COMMAND_SECONDS)
    return "needs notify-send, or osascript on macOS; neither is installed"


def _command(command: str, notice: Notice, env: Mapping[str, str]) -> str | None:
    told = {"ORCHARD_EVENT": notice.event, "ORCHARD_PLAN": notice.plan, "ORCHARD_MESSAGE": notice.message}
    return run_errand(["/bin/sh", "-c", command], body_of(notice), {**env, **told}, COMMAND_SECONDS)


def body_of(notice: Notice) -> bytes:
    return json.dumps(notice.document).encode()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A signed body goes where the user said, and nowhere else."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


class Webhook(Struct, frozen=True):
    url: str
    secret: str = ""

    def send(self, notice: Notice) -> str | None:
        body, moment = body_of(notice), str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "orchard",
            "X-Orchard-Event": notice.event,
            "X-Orchard-Timestamp": moment,
        }
        if self.secret:
            headers["X-Orchard-Signature"] = f"sha256={signature(self.secret, moment, body)}"
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=WEBHOOK_SECONDS):
                return None
        except HTTPError as error:
            with error:
                return f"answered {error.code}"
        except (URLError, HTTPException, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
            return f"was not reached: {reason or type(error).__name__}"


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """What proves who sent a body, and when: a receiver computes the same."""
    return hmac.new(
        secret.encode(errors="surrogateescape"), f"{timestamp}.".encode() + body, hashlib.sha256
    ).hexdigest()


# ---------------------------------------------------------------------------------------- threads


class Deliveries:
    """Notices on their way."""

    def __init__(self, ways: Mapping[str, Way]) -> None:
        self._ways = ways
        self._threads: list[tuple[str, threading.Thread]] = []
        self._problems: dict[str, None] = {}

    def send(self, notice: Notice) -> None:
        self._threads = [one for one in self._threads if one[1].is_alive()]
        for name, way in self._ways.items():
            if sum(other == name for other, _ in self._threads) >= UNDER_WAY:
                self._problems[f"{name} hangs, and some notices were dropped."] = None
                continue
            thread = threading.Thread(target=self._deliver, args=(name, way, notice), name="notice", daemon=True)
            thread.start()
            self._threads.append((name, thread))

    def _deliver(self, name: str, way: Way, notice: Notice) -> None:
        problem = way(notice)
        if problem is not None:
            self._problems[f"{name} {problem}."] = None

    def close(self, seconds: float) -> list[str]:
        """Wait for the last ones, so long at most; what a person should know of them."""
        deadline = time.monotonic() + seconds
        for _, thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = dict.fromkeys(f"{name} has not ended yet." for name, thread in self._threads if thread.is_alive())
        return [*self._problems, *late]
