"""A forge on 127.0.0.1: real git over HTTP on real repositories, and as much of GitHub's and GitLab's API as is asked.

It keeps what it was asked, refuses another token and a branch that nobody has pushed, and answers wrongly where a test
says so. `python -m tests.forge.scripted FOLDER` runs it by hand.
"""

import json
import os
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "forge-token-4f1c9d7e5b"
PULLS = re.compile(r"^(?:/api/v3)?/repos/([^/]+/[^/]+)/pulls(?:/(\d+))?$")
MERGES = re.compile(r"^/api/v4/projects/([^/]+)/merge_requests(?:/(\d+))?$")


@dataclass
class Asked:
    method: str
    path: str
    token: str
    body: dict[str, Any]


@dataclass
class Forge:
    folder: Path
    token: str = TOKEN
    port: int = 0
    scheme: str = "http"
    asked: list[Asked] = field(default_factory=list)
    requests: dict[int, dict[str, Any]] = field(default_factory=dict)
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    """What it answers instead, to the next questions."""
    refuses_push: bool = False
    meanwhile: list[Callable[[], object]] = field(default_factory=list)
    """What others do when a push begins: each once."""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}"

    def address(self, name: str = "acme/demo") -> str:
        return f"{self.url}/{name}.git"

    def make(self, name: str = "acme/demo") -> Path:
        """A repository there, that takes pushes."""
        place = self.folder / f"{name}.git"
        place.mkdir(parents=True)
        for words in (["init", "-q", "--bare", "-b", "main"], ["config", "http.receivepack", "true"]):
            subprocess.run(["git", "-C", str(place), *words], check=True)
        return place

    def tip(self, branch: str, name: str = "acme/demo") -> str | None:
        argv = ["git", "-C", str(self.folder / f"{name}.git"), "rev-parse", "-q", "--verify", f"refs/heads/{branch}"]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip() or None

    def api(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        pulls, merges = PULLS.match(path), MERGES.match(path)
        found = pulls or merges
        if path.endswith("/user"):
            return 200, {"login": "me"}
        if found is None:
            return 404, {"message": "Not Found"}
        head, base, text = ("head", "base", "body") if pulls else ("source_branch", "target_branch", "description")
        number = "number" if pulls else "iid"
        name = unquote(found[1])
        if method == "GET":
            wanted = query[head].split(":")[-1], query[base]
            return 200, [one for one in self.requests.values() if (one["_head"], one["_base"]) == wanted]
        if method in ("PATCH", "PUT"):
            self.requests[int(found[2])].update(body)
            return 200, self.requests[int(found[2])]
        owner, _, branch = body[head].rpartition(":")
        source = f"{owner}/{name.split('/')[1]}" if owner else name
        if self.tip(branch, source) is None or self.tip(body[base], name) is None:
            return 422, {"message": "Validation Failed", "errors": [{"message": f"no branch {body[head]}"}]}
        made = {number: len(self.requests) + 1, "_head": branch, "_base": body[base], "_project": name, **body}
        made |= {"html_url": "https://evil.example/1", "web_url": "https://evil.example/1", text: body[text]}
        self.requests[made[number]] = made
        return 201, made


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    forge: Forge

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        content = self._content()
        if ".git/" in parts.path:
            self._git(parts.path, parts.query, content)
            return
        given = self.headers.get("Authorization", "").split(" ")[-1]
        body = json.loads(content) if content else {}
        self.forge.asked.append(Asked(self.command, self.path, given, body))
        if self.forge.answers:
            status, answer = self.forge.answers.pop(0)
        elif given != self.forge.token:
            status, answer = 401, b'{"message": "Bad credentials"}'
        else:
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            status, document = self.forge.api(self.command, parts.path, query, body)
            answer = json.dumps(document).encode()
        self._answer(status, {"Content-Type": "application/json", **self.forge.headers}, answer)

    do_GET = do_POST = do_PATCH = do_PUT = handle_any  # noqa: N815

    def _content(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _git(self, path: str, query: str, content: bytes) -> None:
        if "receive-pack" in path + query and self.forge.meanwhile:
            self.forge.meanwhile.pop(0)()
        if self.forge.refuses_push and "receive-pack" in path + query:
            self._answer(403, {}, b"no")
            return
        env = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.forge.folder), "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query, "REMOTE_USER": "git",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(content)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=content, capture_output=True, env=env, check=False)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        rows = dict(row.split(": ", 1) for row in head.decode().split("\r\n") if ": " in row)
        self._answer(int(rows.pop("Status", "200").split()[0]), rows, body)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def running(folder: Path, certificate: Path | None = None) -> Iterator[Forge]:
    """A forge, until the block is left; with a certificate (and its key in one file) it speaks TLS."""
    forge = Forge(folder, scheme="https" if certificate else "http")
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Handler,), {"forge": forge}))
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    forge.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield forge
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


if __name__ == "__main__":
    with running(Path(sys.argv[1])) as one:
        one.make()
        print(one.address(), one.token, flush=True)
        sys.stdin.read()
        print(json.dumps(one.requests, indent=1))
