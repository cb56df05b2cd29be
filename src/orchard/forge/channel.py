"""One question to the API of a forge: with a token from the environment, else by a tool that knows the user."""

import json
import re
import shutil
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError, URLError

from msgspec import Struct

from orchard.errors import OrchardError
from orchard.forge.servers import Server
from orchard.process.errand import ask_errand
from orchard.text import one_line, without_credentials

SECONDS = 30.0
LOGIN_SECONDS = 10.0
"""How long a tool may take to say that it knows the user."""
MOST_BYTES = 8 * 1024 * 1024
QUIET = {"GH_PROMPT_DISABLED": "1", "NO_PROMPT": "1", "NO_COLOR": "1", "GH_NO_UPDATE_NOTIFIER": "1", "GH_PAGER": ""}


class ForgeProblem(OrchardError):
    """A forge did not do what it was asked for."""


class Answer(Struct, frozen=True):
    status: int
    body: bytes

    @property
    def document(self) -> Any:
        try:
            return json.loads(self.body) if self.body.strip() else None
        except ValueError:
            return None


class Channel(Struct, frozen=True):
    """How a forge is asked: exactly one of the two is there."""

    server: Server
    env: Mapping[str, str]
    token: str = ""
    tool: str = ""
    """The path of the program."""

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """What the API answers with; ForgeProblem in words for all that is no success. It blocks."""
        content = json.dumps(body).encode() if body is not None else b""
        answer = self._by_token(method, path, content) if self.token else self._by_tool(method, path, content)
        if 200 <= answer.status < 300 and isinstance(answer.document, dict | list):
            return answer.document
        raise self._problem(answer)

    def check_login(self) -> None:
        """ForgeProblem where a tool is there that nobody has logged in with; of a token nothing is asked. It blocks."""
        if not self.tool:
            return
        answer = self._by_tool("GET", "user", b"", LOGIN_SECONDS)
        if answer.status == 401:
            raise self._problem(answer)

    def _by_token(self, method: str, path: str, content: bytes) -> Answer:
        headers = {
            "Accept": self.server.kind.accepts,
            "Authorization": f"Bearer {self.token}",
            "User-Agent": "orchard",
            **({"Content-Type": "application/json"} if content else {}),
        }
        request = urllib.request.Request(f"{self.server.api}/{path}", content or None, headers, method=method)
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=SECONDS) as reply:
                return Answer(reply.status, _bounded(reply.read(MOST_BYTES + 1)))
        except HTTPError as error:
            with error:
                return Answer(error.code, _bounded(error.read(MOST_BYTES + 1)))
        except (URLError, HTTPException, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
            raise ForgeProblem(
                f"{self.server.kind.title} was not reached at {self.server.host}: {one_line(str(reason))}.",
                hint="Try again when it can be reached.",
            ) from None

    def _by_tool(self, method: str, path: str, content: bytes, seconds: float = SECONDS) -> Answer:
        kind = self.server.kind
        given = ("--input", "-", "-H", "Content-Type: application/json") if content else ()
        argv = (self.tool, "api", "--include", "--method", method, "-H", f"Accept: {kind.accepts}", *given, path)
        env = {**self.env, **QUIET, kind.tool_host: self.server.host}
        done = ask_errand(argv, content, env, seconds, MOST_BYTES)
        head, _, body = done.output.replace(b"\r\n", b"\n").partition(b"\n\n")
        status = re.match(rb"HTTP/[\d.]+ (\d{3})", head)
        if status is None:
            said = one_line(without_credentials(done.complaint.decode(errors="replace")), 500) or done.problem
            raise ForgeProblem(
                f"'{kind.tool}' could not ask {self.server.host}: {said}", hint=how_to_log_in(self.server)
            )
        return Answer(int(status[1]), body)

    def _problem(self, answer: Answer) -> ForgeProblem:
        who = f"{self.server.kind.title} ({self.server.host})"
        said = _reason(answer.document)
        told = f": {said}" if said else ""
        by = f"the token in {self._variable}" if self.token else f"the login of '{self.server.kind.tool}'"
        if answer.status == 401:
            return ForgeProblem(f"{who} does not accept {by}{told}.", hint=how_to_log_in(self.server))
        if answer.status in (403, 404):
            return ForgeProblem(
                f"{who} does not let {by} do this, or does not show it the repository ({answer.status}){told}.",
                hint="Give it the right to read the repository and to write pull requests.",
            )
        if 300 <= answer.status < 400:
            return ForgeProblem(
                f"{who} says that the repository has moved, and a token is sent nowhere else.",
                hint="Give the remote its new address: git remote set-url REMOTE ADDRESS",
            )
        if answer.status in (400, 409, 422):
            return ForgeProblem(f"{who} refuses the {self.server.kind.request}{told or f' ({answer.status})'}.")
        if 200 <= answer.status < 300:
            return ForgeProblem(f"{who} gave an answer that is not JSON.")
        return ForgeProblem(f"{who} answered {answer.status}{told}.", hint="Try again later.")

    @property
    def _variable(self) -> str:
        return next((name for name in self.server.tokens if self.env.get(name)), "")


def channel_to(server: Server, env: Mapping[str, str]) -> Channel:
    """The way to a forge; ForgeProblem where the user has given none."""
    token = next((env[name].strip() for name in server.tokens if env.get(name, "").strip()), "")
    if token and token.isprintable() and " " not in token:
        return Channel(server, env, token=token)
    tool = shutil.which(server.kind.tool, path=env.get("PATH", ""))
    if tool is not None:
        return Channel(server, env, tool=tool)
    raise ForgeProblem(
        f"There is no token for {server.kind.title} ({server.host}): the engine's environment has none of "
        f"{', '.join(server.tokens)}, and '{server.kind.tool}' is not installed.",
        hint=how_to_log_in(server),
    )


def how_to_log_in(server: Server) -> str:
    host = "" if server.public else f" --hostname {server.host}"
    return f"Set {server.kind.tokens[0]} where the engine starts, or run: {server.kind.login}{host}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token goes to the forge that the remote names, and nowhere else."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


def _bounded(body: bytes) -> bytes:
    return body if len(body) <= MOST_BYTES else b""


def _reason(document: Any) -> str:
    """What a forge says in its own words, of all the forms that there are; in one plain line."""
    if not isinstance(document, dict):
        return ""
    said = [document.get(name) for name in ("message", "error", "error_description")]
    rows = document.get("errors")
    said += (
        [row.get("message") or row.get("code") for row in rows if isinstance(row, dict)]
        if isinstance(rows, list)
        else []
    )
    words = [" ".join(map(str, one)) if isinstance(one, list) else str(one) for one in said if one]
    return one_line("; ".join(dict.fromkeys(words)), 500).rstrip(".")
