"""Issues on GitHub, asked of a local server that answers in GitHub's shapes, by HTTP and by a `gh` of our own."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from orchard.agents.builtin.agent import TOKENS, BuiltinAgent
from orchard.agents.builtin.tool import LONGEST_ANSWER, Answer
from orchard.agents.builtin.tools import github
from orchard.agents.builtin.tools.github import proxy_for
from orchard.process.families.family import members
from orchard.testing import Repo
from tests.agents.builtin.kit import Box, open_box

pytestmark = pytest.mark.anyio

ISSUE: dict[str, Any] = {
    "number": 7,
    "title": "It breaks\x1b[31m",
    "state": "open",
    "user": {"login": "ada"},
    "labels": [{"name": "bug"}, {"name": "help wanted"}],
    "body": "When I press *the* button.",
    "comments": 1,
    "html_url": "https://github.com/acme/app/issues/7",
}
PULL = {**ISSUE, "number": 8, "title": "A change", "labels": [], "pull_request": {"url": "..."}, "comments": 0}
COMMENT = {"user": {"login": "bob"}, "created_at": "2026-11-01T10:00:00Z", "body": "Me too."}


@dataclass
class Api:
    """What the server was asked, and what it answers where a test says otherwise."""

    url: str = ""
    asked: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    answers: dict[str, tuple[int, dict[str, str], Any]] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, str], Any]:
        parts = urlsplit(path)
        if parts.path in self.answers:
            return self.answers[parts.path]
        if parts.path == "/repos/acme/app/issues/7":
            return 200, {}, ISSUE
        if parts.path == "/repos/acme/app/issues/7/comments":
            return (
                (201, {}, {**COMMENT, **body, "html_url": "https://github.com/c/1"}) if body else (200, {}, [COMMENT])
            )
        if parts.path == "/repos/acme/app/issues":
            query = parse_qs(parts.query)
            return 200, {}, [PULL, ISSUE] if query["state"] == ["open"] else []
        return 404, {}, {"message": "Not Found", "documentation_url": "https://docs.github.com/rest"}


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.asked.append((self.command, self.path, headers, body))
            status, more, document = made.answer(self.command, self.path, body)
            content = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(content)),
                **more,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


GH = """#!{python}
import json, os, sys, urllib.error, urllib.request
argv = sys.argv[1:]
assert argv[:3] == ["api", "--include", "--method"], argv
if "GH_TOKEN" not in os.environ:
    sys.stderr.write("To get started with GitHub CLI, please run:  gh auth login\\n")
    sys.exit(4)
body = sys.stdin.buffer.read() if argv[-2:] == ["--input", "-"] else None
path = next(word for word in argv if word.startswith("repos/"))
request = urllib.request.Request("{url}/" + path, data=body, method=argv[3])
request.add_header("Authorization", "token " + os.environ["GH_TOKEN"])
try:
    reply = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    reply = error
sys.stdout.write(f"HTTP/2.0 {{reply.status}} Whatever\\r\\n")
for name, value in reply.headers.items():
    sys.stdout.write(f"{{name}}: {{value}}\\r\\n")
sys.stdout.write("\\r\\n" + reply.read().decode())
if reply.status >= 400:
    sys.stderr.write("gh: it did not work\\n")
    sys.exit(1)
"""


@pytest.fixture(params=["http", "gh"])
async def box(request: pytest.FixtureRequest, tmp_path: Path, api: Api) -> AsyncIterator[Box]:
    repo = Repo.make(tmp_path / "repo")
    repo("remote", "add", "origin", "git@github.com:acme/app.git")
    env = {"GH_TOKEN": "token-1", "GITHUB_API_URL": api.url, "GITHUB_SERVER_URL": "https://github.com"}
    if request.param == "gh":
        place = tmp_path / "bin"
        place.mkdir()
        (place / "gh").write_text(GH.format(python=sys.executable, url=api.url))
        (place / "gh").chmod(0o755)
        env = {"GH_TOKEN": "token-1", "PATH": f"{place}:/usr/bin:/bin"}
    async with open_box(repo.path, env=env) as opened:
        yield opened


async def test_an_issue_is_shown_with_its_comments(box: Box, api: Api) -> None:
    answer = await box.use("github_get_issue", number=7)

    assert answer.text.splitlines() == [
        "#7 It breaks [open; bug, help wanted] by ada",
        "",
        "When I press *the* button.",
        "",
        "--- bob on 2026-11-01T10:00:00Z:",
        "Me too.",
    ]
    assert not answer.failed
    assert {headers["authorization"].split()[1] for _, _, headers, _ in api.asked} == {"token-1"}
    assert members(box.context.launcher.token) == []


async def test_issues_are_listed_without_pull_requests(box: Box) -> None:
    some = await box.use("github_list_issues", labels="bug,help wanted", limit=5)
    none = await box.use("github_list_issues", state="closed")

    assert some.text == "#7 It breaks [open; bug, help wanted] by ada"
    assert none.text == "No such issues in acme/app."


async def test_a_comment_is_written(box: Box, api: Api) -> None:
    answer = await box.use("github_create_comment", number=7, body="Fixed in 'abc'.\n\n\"Really\"")

    assert answer.text == "Commented: https://github.com/c/1"
    method, path, _, body = api.asked[-1]
    assert (method, path) == ("POST", "/repos/acme/app/issues/7/comments")
    assert body == {"body": "Fixed in 'abc'.\n\n\"Really\""}


async def test_another_repository_can_be_named_and_what_is_not_there_is_told(box: Box) -> None:
    answer = await box.use("github_get_issue", number=99, repository="acme/other")

    assert answer.failed
    assert answer.text == "There is no issue #99 in acme/other, or the token may not see it (404): Not Found"


@pytest.mark.parametrize("name", ["acme", "../../user", "acme/app/issues", "acme/..", "a b/c", "-x/y", "acme/app?x=1"])
async def test_what_is_no_name_of_a_repository_is_not_asked_for(name: str, box: Box, api: Api) -> None:
    answer = await box.use("github_list_issues", repository=name)

    assert answer.failed
    assert "is not a repository" in answer.text
    assert api.asked == []


@pytest.mark.parametrize(
    ("status", "headers", "message", "said"),
    [
        (401, {}, "Bad credentials", "GitHub does not accept the token (401): Bad credentials"),
        (403, {}, "Resource not accessible", "The token may not do that for issue #7 in acme/app (403)"),
        (
            403,
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "{later}"},
            "limit",
            "rate limit is used up: try again in ",
        ),
        (429, {"Retry-After": "60"}, "secondary", "rate limit is used up: try again in 60 s"),
        (410, {}, "deleted", "There is no issue #7 in acme/app any more"),
        (500, {}, "oops", "GitHub answered 500 for issue #7 in acme/app: oops"),
    ],
)
async def test_refusals_are_told_in_words(
    status: int, headers: dict[str, str], message: str, said: str, box: Box, api: Api
) -> None:
    more = {name: value.format(later=int(time.time()) + 90) for name, value in headers.items()}
    api.answers["/repos/acme/app/issues/7"] = (status, more, {"message": message})

    answer = await box.use("github_get_issue", number=7)

    assert answer.failed
    assert said in answer.text


async def test_answers_that_are_strange_or_large_are_bounded(
    box: Box, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answers["/repos/acme/app/issues/7"] = (
        200,
        {},
        {"number": {}, "title": 5, "user": [], "labels": 3, "body": None},
    )
    odd = await box.use("github_get_issue", number=7)
    api.answers["/repos/acme/app/issues/7"] = (200, {}, b"<html>")
    html = await box.use("github_get_issue", number=7)
    api.answers["/repos/acme/app/issues/7"] = (200, {}, {**ISSUE, "comments": 0, "body": "x" * 500_000})
    long = await box.use("github_get_issue", number=7)
    monkeypatch.setattr(github, "MOST_BYTES", 100_000)
    large = await box.use("github_get_issue", number=7)

    assert not odd.failed
    assert html.failed
    assert len(long.text) <= LONGEST_ANSWER
    assert large.failed


async def test_a_server_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(github, "SECONDS", 0.5)
    released = threading.Event()

    def hang(method: str, path: str, body: Any) -> tuple[int, dict[str, str], Any]:
        released.wait(20)
        return 200, {}, ISSUE

    monkeypatch.setattr(api, "answer", hang)
    async with open_box(tmp_path, env={"GITHUB_API_URL": api.url}) as box:
        answer = await box.use("github_get_issue", number=7, repository="acme/app")
    released.set()

    assert answer.failed
    assert "0.5 s" in answer.text or "cannot be reached" in answer.text


async def asked_without(env: dict[str, str], folder: Path, name: str = "github_get_issue", **more: Any) -> Answer:
    async with open_box(folder, env={"PATH": "/usr/bin:/bin", **env}) as box:
        return await box.use(name, number=7, **more)


async def test_writing_needs_a_token_and_reading_does_not(tmp_path: Path, api: Api) -> None:
    env = {"GITHUB_API_URL": api.url}

    read = await asked_without(env, tmp_path, repository="acme/app")
    asked = list(api.asked)
    written = await asked_without(env, tmp_path, "github_create_comment", repository="acme/app", body="x")

    assert not read.failed
    assert all("authorization" not in headers for _, _, headers, _ in asked)
    assert "GH_TOKEN or GITHUB_TOKEN" in written.text
    assert api.asked == asked


async def test_a_gh_that_is_not_logged_in_says_how(tmp_path: Path, api: Api) -> None:
    (tmp_path / "gh").write_text(GH.format(python=sys.executable, url=api.url))
    (tmp_path / "gh").chmod(0o755)

    answer = await asked_without({"PATH": f"{tmp_path}:/usr/bin:/bin"}, tmp_path, repository="acme/app")

    assert answer.failed
    assert "gh auth login" in answer.text


async def test_nobody_answering_is_told(tmp_path: Path) -> None:
    answer = await asked_without({"GITHUB_API_URL": "http://127.0.0.1:1"}, tmp_path, repository="acme/app")

    assert answer.failed
    assert "GitHub cannot be reached" in answer.text


@pytest.mark.parametrize(
    ("remote", "works"),
    [
        ("https://github.com/acme/app", True),
        ("https://x-access-token:secret@github.com/acme/app.git", True),
        ("ssh://git@github.com:22/acme/app.git", True),
        ("git@github.com:acme/app.git", True),
        ("https://evil.example/acme/app", False),
        ("https://github.com.evil.example/acme/app", False),
        ("/some/where/acme/app", False),
        ("", False),
    ],
)
async def test_the_repository_comes_from_origin_and_never_the_host_that_a_token_goes_to(
    remote: str, works: bool, tmp_path: Path, api: Api
) -> None:
    repo = Repo.make(tmp_path / "repo")
    if remote:
        repo("config", "remote.origin.url", remote)
    env = {"GITHUB_API_URL": api.url, "GITHUB_SERVER_URL": "https://github.com", "GITHUB_TOKEN": "token-2"}

    answer = await asked_without(env, repo.path)

    assert answer.failed is not works
    assert [path for _, path, _, _ in api.asked][:1] == (["/repos/acme/app/issues/7"] if works else [])


async def test_a_redirect_to_another_host_does_not_take_the_token_along(tmp_path: Path, api: Api) -> None:
    other = api.url.replace("127.0.0.1", "localhost")
    api.answers["/repos/old/app/issues/7"] = (301, {"Location": f"{other}/moved"}, {})
    api.answers["/moved"] = (200, {}, {**ISSUE, "comments": 0})
    env = {"GITHUB_API_URL": api.url, "GITHUB_TOKEN": "token-3"}

    answer = await asked_without(env, tmp_path, repository="old/app")

    first, second = api.asked[:2]
    assert not answer.failed
    assert "authorization" in first[2]
    assert "authorization" not in second[2]


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        ("https://api.github.com/x", {}, None),
        ("https://api.github.com/x", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://api.github.com/x", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://a.example/x", {"http_proxy": "http://p:1", "no_proxy": "b.example"}, "http://p:1"),
        ("http://a.example/x", {"http_proxy": "http://p:1", "no_proxy": "x,.example"}, None),
        ("http://a.example/x", {"ALL_PROXY": "http://p:2", "NO_PROXY": "*"}, None),
        ("http://a.example/x", {"ALL_PROXY": "http://p:2", "NO_PROXY": "le"}, "http://p:2"),
    ],
)
def test_the_proxy_is_the_tasks_own(url: str, env: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(url, env) == proxy


@pytest.fixture
def on_github(tmp_path: Path) -> Path:
    """A repository whose origin is on GitHub."""
    for argv in (["init", "-q"], ["remote", "add", "origin", "https://github.com/acme/app.git"]):
        subprocess.run(["git", *argv], cwd=tmp_path, check=True)
    return tmp_path


async def test_a_hint_about_the_address_of_the_api_can_be_followed(on_github: Path) -> None:
    answer = await asked_without({"GITHUB_API_URL": "https://git.example/api/v3"}, on_github)

    assert answer.failed
    assert "or have GITHUB_API_URL set" not in answer.text
    assert "GITHUB_SERVER_URL" in answer.text
    assert "GITHUB_SERVER_URL" in BuiltinAgent().variables


async def test_tokens_of_github_are_for_its_tools_and_for_no_command(tmp_path: Path) -> None:
    env = {"GH_TOKEN": "token-4", "GITHUB_TOKEN": "token-5", "PATH": "/usr/bin:/bin", "MINE": "seen"}
    async with open_box(tmp_path, env=env, withheld=frozenset(TOKENS)) as box:
        answer = await box.use("bash", command="env")

    assert "MINE=seen" in answer.text
    assert "token-" not in answer.text
