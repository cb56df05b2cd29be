"""Issues on GitHub, by `gh` where it is installed, else by the REST API with a token from the environment.

Both ways ask the same questions of the same API and give back the same three things: status, headers and a document.
A repository's settings say which repository is meant, never which host a token is sent to: that is
`api.github.com`, or what the user's own environment names.
"""

import asyncio
import json
import re
import shutil
import ssl
import time
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct

from orchard.agents.builtin.tool import (
    Answer,
    Json,
    Tool,
    ToolContext,
    ToolError,
    in_thread,
    plain_answer,
    plain_text,
    schema,
    scratch_file,
    text,
    whole,
)
from orchard.agents.builtin.tools.git import Checkout, still
from orchard.git.command import GitError
from orchard.model.limits import Limits
from orchard.process.pipes import Pipes
from orchard.store.logs import read

PUBLIC = "https://api.github.com"
SECONDS = 30.0
MOST_BYTES = 8 * 1024 * 1024
MOST_COMMENTS = 50
LONGEST_COMMENT = 60_000
TOKENS = ("GH_TOKEN", "GITHUB_TOKEN")

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}$")
_REMOTE = re.compile(
    r"^(?:(?:https?|ssh|git)://(?:[^@/\s]*@)?(?P<host>[^/:\s]+)(?::\d+)?/|(?:[^@/\s]+@)?(?P<scp>[^/:\s]+):)"
    r"(?P<name>[^/\s]+/[^/\s]+?)(?:\.git)?/?$"
)


class Reply(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    """Their names in lower case."""
    body: bytes

    @property
    def document(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return None


def github_tools(checkout: Checkout) -> list[Tool]:
    made = _GitHubTools(checkout)
    repository = text("As 'owner/name'; the one that 'origin' points to if left out.", maxLength=140)
    number = whole("Its number.", 1, 10**9)
    return [
        Tool(
            "github_get_issue",
            "An issue or pull request on GitHub, with its comments.",
            schema(("number",), number=number, repository=repository),
            made.get_issue,
            parallel=True,
        ),
        Tool(
            "github_list_issues",
            "Issues on GitHub, the newest first; pull requests are left out.",
            schema(
                state={"type": "string", "enum": ["open", "closed", "all"], "description": "`open` if left out."},
                labels=text("Only issues with all of these, as 'bug,help wanted'.", maxLength=500),
                limit=whole("How many; 30 if left out.", 1, 100),
                repository=repository,
            ),
            made.list_issues,
            parallel=True,
        ),
        Tool(
            "github_create_comment",
            "Write a comment on an issue or pull request on GitHub. Everybody can read it; it cannot be undone.",
            schema(
                ("number", "body"),
                number=number,
                body=text("Markdown.", minLength=1, maxLength=LONGEST_COMMENT),
                repository=repository,
            ),
            made.create_comment,
        ),
    ]


class _GitHubTools:
    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout

    async def get_issue(self, context: ToolContext, arguments: Json) -> Answer:
        name, number = await self._repository(context, arguments), int(arguments["number"])
        issue = await _ask(context, "GET", f"repos/{name}/issues/{number}", about=f"issue #{number} in {name}")
        said = [_heading(issue), "", _text(issue, "body") or "(no description)"]
        if issue.get("comments"):
            path = f"repos/{name}/issues/{number}/comments?per_page={MOST_COMMENTS}"
            for each in _rows(await _ask(context, "GET", path, about=f"comments of #{number} in {name}")):
                said += ["", f"--- {_person(each)} on {_text(each, 'created_at')}:", _text(each, "body")]
            if isinstance(issue["comments"], int) and issue["comments"] > MOST_COMMENTS:
                said += ["", f"[... {issue['comments'] - MOST_COMMENTS} more comments ...]"]
        return plain_answer("\n".join(said))

    async def list_issues(self, context: ToolContext, arguments: Json) -> Answer:
        name, limit = await self._repository(context, arguments), int(arguments.get("limit", 30))
        # Pull requests come in the same list: ask for more than is wanted.
        query = {"state": arguments.get("state", "open"), "per_page": str(min(100, limit + 30))}
        if labels := arguments.get("labels"):
            query["labels"] = labels
        rows = _rows(await _ask(context, "GET", f"repos/{name}/issues?{urlencode(query)}", about=f"issues of {name}"))
        issues = [row for row in rows if "pull_request" not in row][:limit]
        return plain_answer("\n".join(map(_heading, issues)), f"No such issues in {name}.")

    async def create_comment(self, context: ToolContext, arguments: Json) -> Answer:
        name, number = await self._repository(context, arguments), int(arguments["number"])
        path, about = f"repos/{name}/issues/{number}/comments", f"issue #{number} in {name}"
        made = await _ask(context, "POST", path, about=about, body={"body": arguments["body"]})
        return Answer(f"Commented: {plain_text(_text(made, 'html_url'))}")

    async def _repository(self, context: ToolContext, arguments: Json) -> str:
        name = arguments.get("repository") or await self._origin(context)
        if not _NAME.match(name) or name.endswith(("/.", "/..")):
            raise ToolError(f"'{plain_text(name)}' is not a repository: give it as 'owner/name'.")
        return quote(name)

    async def _origin(self, context: ToolContext) -> str:
        def look() -> str:
            git = self._checkout.git(context)
            return git("config", "--get", "remote.origin.url", ok=(0, 1)).text

        try:
            async with still(context):
                url = await in_thread(look)
        except GitError as error:
            raise ToolError(str(error)) from error
        found = _REMOTE.match(url)
        if not found:
            raise ToolError("There is no remote 'origin' that points to GitHub: name the repository as 'owner/name'.")
        host = (found["host"] or found["scp"]).lower()
        if host not in _hosts(context.env):
            known = context.env.get("GITHUB_API_URL")
            why = (
                f"GITHUB_API_URL, {plain_text(known)}, is not for that host: name the repository as 'owner/name', or "
                "have GITHUB_SERVER_URL name the host that the API is for."
                if known
                else "the API for that host is not known: name the repository as 'owner/name', or have "
                "GITHUB_API_URL set."
            )
            raise ToolError(f"'origin' is on {plain_text(host)}, and {why}")
        return found["name"]


def _hosts(env: Mapping[str, str]) -> set[str]:
    if url := env.get("GITHUB_API_URL"):
        host = (urlsplit(url).hostname or "").lower()
        named = (urlsplit(env.get("GITHUB_SERVER_URL", "")).hostname or "").lower()
        return {host, host.removeprefix("api."), named} - {""}
    return {"github.com", "ssh.github.com", "www.github.com", env.get("GH_HOST", "github.com").lower()}


async def _ask(context: ToolContext, method: str, path: str, *, about: str, body: Json | None = None) -> Any:
    """The document that the API answers with; ToolError in words for all that is no success."""
    content = json.dumps(body).encode() if body is not None else b""
    try:
        async with asyncio.timeout(SECONDS):
            gh = None if "GITHUB_API_URL" in context.env else shutil.which("gh", path=context.env.get("PATH", ""))
            reply = await (
                _by_gh(context, gh, method, path, content) if gh else _by_http(context, method, path, content)
            )
    except TimeoutError as error:
        raise ToolError(f"GitHub did not answer within {SECONDS:g} s.") from error
    document = reply.document
    if 200 <= reply.status < 300:
        if not isinstance(document, dict | list):
            raise ToolError("GitHub's answer is not JSON.")
        return document
    raise ToolError(_problem(reply, about, document if isinstance(document, dict) else {}))


async def _by_http(context: ToolContext, method: str, path: str, content: bytes) -> Reply:
    await in_thread(import_module, "httpx2")  # slow to import, and most turns never ask for an issue
    import httpx2

    base = context.env.get("GITHUB_API_URL", PUBLIC).rstrip("/")
    token = next((context.env[name] for name in TOKENS if context.env.get(name)), None)
    if token is None and method != "GET":
        raise ToolError(
            f"There is no token to write to GitHub with: have one of {' or '.join(TOKENS)} set and passed on."
        )
    headers = {
        "Accept": "application/vnd.github+json",
        "Accept-Encoding": "identity",
        "X-GitHub-Api-Version": "2022-11-28",
        "User-Agent": "orchard",
    }
    if token:
        headers["Authorization"] = f"Bearer {token}"
    url = f"{base}/{path}"
    try:
        async with (
            httpx2.AsyncClient(
                trust_env=False,
                proxy=proxy_for(url, context.env),
                verify=await trust(context.env),
                follow_redirects=True,
                max_redirects=3,
                timeout=None,  # there is one around all of it
            ) as client,
            client.stream(method, url, headers=headers, content=content or None) as response,
        ):
            parts, size = [], 0
            async for block in response.aiter_raw():
                parts.append(block)
                size += len(block)
                if size > MOST_BYTES:
                    raise ToolError(f"GitHub's answer is larger than {MOST_BYTES:,} bytes.")
            return Reply(response.status_code, dict(response.headers), b"".join(parts))
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError) as error:
        raise ToolError(f"GitHub cannot be reached at {plain_text(base)}: {plain_text(str(error))}") from error


async def trust(env: Mapping[str, str]) -> ssl.SSLContext:
    """Whose certificates are good: those that the task names, as its proxies are, and not ours.

    Reading them takes a while, so it happens in a thread, and once.
    """
    return await in_thread(_certificates, env.get("SSL_CERT_FILE"))


@lru_cache(maxsize=8)
def _certificates(file: str | None) -> ssl.SSLContext:
    import httpx2

    return ssl.create_default_context(cafile=file) if file else httpx2.create_ssl_context(trust_env=False)


def proxy_for(url: str, env: Mapping[str, str]) -> str | None:
    parts = urlsplit(url)
    wanted = {name.lower(): value for name, value in env.items() if name.lower().endswith("_proxy") and value}
    host = f".{(parts.hostname or '').lower()}"
    direct = [name.strip().lower().lstrip(".") for name in wanted.get("no_proxy", "").split(",")]
    if any(name == "*" or (name and host.endswith(f".{name}")) for name in direct):
        return None
    return wanted.get(f"{parts.scheme}_proxy") or wanted.get("all_proxy")


async def _by_gh(context: ToolContext, gh: str, method: str, path: str, content: bytes) -> Reply:
    """`gh api`, which knows the token and where to send it; with `--include` it tells status and headers too."""
    given = ("--input", "-") if content else ()
    argv = (gh, "api", "--include", "--method", method, "-H", "Accept: application/vnd.github+json", path, *given)
    env = {**context.env, "GH_PROMPT_DISABLED": "1", "NO_COLOR": "1", "GH_NO_UPDATE_NOTIFIER": "1"}
    parts: list[bytes] = []

    async def converse(pipes: Pipes) -> None:
        await pipes.write(content)
        pipes.close_input()
        while block := await pipes.read():
            parts.append(block)

    with scratch_file(context) as log:
        limits = Limits(wall=SECONDS, log_bytes=MOST_BYTES, grace=1.0)
        ended = await context.run(argv, env, log, limits, converse)
        complaint = plain_text(read(log, 0, 2000).data).strip()
    head, _, body = b"".join(parts).replace(b"\r\n", b"\n").partition(b"\n\n")
    first, *rest = head.decode(errors="replace").split("\n")
    status = re.match(r"^HTTP/[\d.]+ (\d{3})", first)
    if status is None:
        hint = " Log in with 'gh auth login', or have GH_TOKEN passed on." if ended.exit_code == 4 else ""
        raise ToolError(f"gh: {complaint or ended.message}{hint}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    return Reply(int(status[1]), headers, body)


def _problem(reply: Reply, about: str, document: Json) -> str:
    said = plain_text(_text(document, "message"))[:500]
    if reply.status in (403, 429) and (
        reply.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in reply.headers
    ):
        return f"GitHub's rate limit is used up: {_until(reply.headers)} ({said})"
    known = {
        401: "GitHub does not accept the token (401)",
        403: f"The token may not do that for {about} (403)",
        404: f"There is no {about}, or the token may not see it (404)",
        410: f"There is no {about} any more, or the repository has no issues (410)",
        422: f"GitHub does not accept this for {about} (422)",
    }
    return f"{known.get(reply.status, f'GitHub answered {reply.status} for {about}')}: {said or 'it said nothing'}"


def _until(headers: Mapping[str, str]) -> str:
    try:
        seconds = (
            int(headers["retry-after"]) if "retry-after" in headers else int(headers["x-ratelimit-reset"]) - time.time()
        )
    except (KeyError, ValueError):
        return "try again later"
    return f"try again in {max(1, round(seconds))} s"


def _rows(document: Any) -> list[Json]:
    return [row for row in document if isinstance(row, dict)] if isinstance(document, list) else []


def _heading(issue: Json) -> str:
    labels = ", ".join(_text(each, "name") for each in _rows(issue.get("labels")))
    kind = "pull request " if "pull_request" in issue else ""
    title = _text(issue, "title").replace("\n", " ")
    state = "; ".join(filter(None, (_text(issue, "state"), labels)))
    return f"{kind}#{issue.get('number')} {title} [{state}] by {_person(issue)}"


def _person(row: Json) -> str:
    user = row.get("user")
    return _text(user, "login") if isinstance(user, dict) else "an unknown user"


def _text(row: Json, key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""
