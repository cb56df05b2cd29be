"""`[notify]`: people are told that a plan is done, failed or waits, and nothing at the other end holds a plan up."""

import hashlib
import hmac
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchard.process.errand import run_errand
from tests.acceptance.program import Desk, desks, until
from tests.http.daemon import served

GOOD = 'name: Good\ntarget: goal\njobs:\n  - {id: one, work: "echo 1 > one.txt"}\n'
BAD = 'name: Bad\ntarget: goal\njobs:\n  - {id: one, work: "exit 3"}\n'
ASK = """
name: Ask
target: goal
jobs:
  - {id: one, approve: true, work: "echo 1 > one.txt"}
"""
SECRET = "correct-horse-battery-staple"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def settings(desk: Desk, **keys: object) -> None:
    """The user's own file."""
    folder = desk.folder / "config" / "orchard"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"{name} = {json.dumps(value)}" for name, value in keys.items()]
    (folder / "config.toml").write_text("[notify]\n" + "\n".join(rows) + "\n")


class Receiver:
    """A web server that keeps what is posted to it."""

    def __init__(self, code: int = 204, hang: bool = False) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.ended = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((dict(self.headers), body))
                if hang:
                    receiver.ended.wait(60)
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    @property
    def told(self) -> list[Any]:
        return [json.loads(body) for _, body in self.got]

    @property
    def events(self) -> list[str]:
        return [one["event"] for one in self.told]


@contextmanager
def receiving(code: int = 204, *, hang: bool = False) -> Iterator[Receiver]:
    receiver = Receiver(code, hang)
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.ended.set()
        receiver.server.shutdown()
        thread.join()
        receiver.server.server_close()


def test_a_webhook_is_told_that_a_plan_is_done_and_can_prove_who_says_so(desk: Desk) -> None:
    with receiving() as receiver:
        settings(desk, webhook=receiver.url, secret_env="HOOK_KEY")

        assert desk("run", desk.plan(GOOD), HOOK_KEY=SECRET).code == 0

    ((headers, body),) = receiver.got
    told = json.loads(body)
    assert (told["event"], told["plan"]["name"], told["plan"]["landed"]) == ("done", "Good", True)
    assert told["plan"]["commit"] == desk.repo.head("goal")
    assert told["repository"] == str(desk.repo.path)
    signed = headers["X-Orchard-Timestamp"].encode() + b"." + body
    assert headers["X-Orchard-Signature"] == "sha256=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Orchard-Event"] == "done"


def test_a_plan_that_fails_and_one_that_waits_are_told_each_once(desk: Desk) -> None:
    with receiving() as receiver:
        settings(desk, webhook=receiver.url)

        assert desk("run", desk.plan(BAD)).code == 1
        assert desk("run", desk.plan(ASK)).code == 4
        assert desk("approve", "one", "--yes").code == 0

    assert receiver.events == ["failed", "waiting", "done"]
    assert "'one'" in receiver.told[0]["message"]
    assert "orchard retry" in receiver.told[0]["hint"]
    assert [(one["job"], one["kind"]) for one in receiver.told[1]["waiting"]] == [("one", "approval")]


def test_only_what_is_asked_for_is_told(desk: Desk) -> None:
    with receiving() as receiver:
        settings(desk, webhook=receiver.url, on=["failed"])

        desk("run", desk.plan(GOOD))
        desk("run", desk.plan(BAD))

    assert receiver.events == ["failed"]


def test_a_command_gets_the_notice_as_json_and_as_variables(desk: Desk) -> None:
    said = desk.folder / "said"
    settings(desk, command=f'cat > "{said}"; echo "$ORCHARD_EVENT $ORCHARD_PLAN" > "{said}.line"')

    desk("run", desk.plan(GOOD))

    told = json.loads(said.read_text())
    assert told["event"] == "done"
    assert Path(f"{said}.line").read_text() == f"done {told['plan']['id']}\n"


def test_an_engine_in_the_background_tells_as_well(desk: Desk) -> None:
    with receiving() as receiver:
        settings(desk, webhook=receiver.url)

        desk("run", desk.plan(GOOD), "--detach")
        until(lambda: receiver.got)

    assert receiver.events == ["done"]


def test_a_daemon_tells_each_thing_once_however_many_follow_the_plan(desk: Desk) -> None:
    with receiving() as receiver:
        settings(desk, webhook=receiver.url)
        with served(desk):
            assert desk("run", desk.plan(ASK)).code == 4
            assert desk("wait").code == 4
            assert desk("approve", "one", "--yes").code == 0
            until(lambda: len(receiver.got) >= 2)

    assert receiver.events == ["waiting", "done"]


def test_what_was_told_before_an_engine_began_is_not_told_again(desk: Desk) -> None:
    with receiving() as receiver:
        settings(desk, webhook=receiver.url)
        desk("run", desk.plan(ASK))
        desk("run", desk.plan(BAD))
        desk("run", desk.plan(GOOD))

    assert receiver.events == ["waiting", "failed", "done"]


def test_a_hanging_webhook_holds_neither_the_plan_nor_a_next_one_up(desk: Desk) -> None:
    plan = desk.plan(
        ASK.replace("approve: true, ", "").replace("jobs:", 'jobs:\n  - {id: two, approve: true, work: "true"}')
    )
    with receiving(hang=True) as receiver:
        settings(desk, webhook=receiver.url)
        started = time.monotonic()

        done = desk("run", plan)
        took = time.monotonic() - started
        until(lambda: receiver.got)

        assert done.code == 4
        assert took < 15
        assert desk("approve", "two", "--yes").code == 0
    assert "The webhook of 'notify.webhook'" in done.err


def test_the_lock_of_the_repository_is_free_while_the_last_notice_hangs(desk: Desk) -> None:
    with receiving(hang=True) as receiver:
        settings(desk, webhook=receiver.url)
        first = desk.start("run", desk.plan(GOOD))
        until(lambda: receiver.got)
        started = time.monotonic()

        second = desk("run", desk.plan(BAD, "bad.yaml"), ORCHARD_NOTIFY_ON="done")

        assert second.code == 1
        assert first.process.poll() is None or time.monotonic() - started < 5
        assert first.end().code == 0


def test_what_went_wrong_is_said_at_the_end(desk: Desk) -> None:
    with receiving(500) as receiver:
        settings(desk, webhook=receiver.url, command="exit 7")

        done = desk("run", desk.plan(GOOD))

    assert done.code == 0
    assert "The webhook of 'notify.webhook' answered 500." in done.err
    assert "The command of 'notify.command' exited with 7." in done.err


def test_a_signed_body_follows_no_redirect(desk: Desk) -> None:
    with receiving(302) as receiver:
        settings(desk, webhook=receiver.url)

        done = desk("run", desk.plan(GOOD))

    assert len(receiver.got) == 1
    assert "answered 302" in done.err


def test_a_webhook_whose_secret_is_missing_is_not_sent_unsigned(desk: Desk) -> None:
    with receiving() as receiver:
        settings(desk, webhook=receiver.url, secret_env="HOOK_KEY")

        done = desk("run", desk.plan(GOOD))

    assert not receiver.got
    assert "HOOK_KEY" in done.err


def test_a_secret_is_hidden_in_what_is_told(desk: Desk) -> None:
    plan = BAD.replace("name: Bad", f"name: Bad {SECRET}\nenv: {{DEPLOY_TOKEN: {SECRET}}}")
    with receiving() as receiver:
        settings(desk, webhook=receiver.url)

        desk("run", desk.plan(plan))

    ((_, body),) = receiver.got
    assert SECRET.encode() not in body
    assert json.loads(body)["plan"]["name"] == "Bad [redacted]"


def test_jobs_do_not_see_the_secret_of_webhooks(desk: Desk) -> None:
    with receiving() as receiver:
        settings(desk, webhook=receiver.url, secret_env="HOOK_WORDS")
        plan = GOOD.replace("echo 1 >", 'echo \\"[$HOOK_WORDS]\\" >')

        desk("run", desk.plan(plan), HOOK_WORDS=SECRET)

    assert receiver.events == ["done"]
    assert desk.repo.files("goal")["one.txt"] == "[]\n"


def test_a_repositorys_own_file_sends_nothing_before_it_is_trusted(desk: Desk) -> None:
    with receiving() as receiver:
        (desk.repo.path / "orchard.toml").write_text(f'[notify]\nwebhook = "{receiver.url}"\n')

        done = desk("run", desk.plan(GOOD))

        assert done.code == 4
        assert "notify.webhook" in done.err
        agreed = re.search(r"\b[0-9a-f]{64}\b", desk("trust", "--show").out)
        assert agreed is not None
        assert desk("trust", "--yes", agreed[0]).code == 0
        assert desk("run", desk.plan(GOOD)).code == 0
    assert receiver.events == ["done"]


def test_the_desktop_is_told_by_notify_send_without_markup(desk: Desk) -> None:
    programs = desk.folder / "bin"
    programs.mkdir()
    (programs / "notify-send").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{desk.folder}/shown"\n')
    (programs / "notify-send").chmod(0o755)
    settings(desk, desktop=True)

    desk("run", desk.plan(BAD.replace("exit 3", "exit 3 # <b>")), PATH=f"{programs}:{os.environ['PATH']}")

    shown = (desk.folder / "shown").read_text().splitlines()
    assert shown[:3] == ["--app-name=Orchard", "--", "Bad: failed"]
    assert "<b>" not in shown[3]


def test_the_bell_rings_on_a_terminal_and_in_no_pipe(desk: Desk) -> None:
    settings(desk, bell=True)

    running, end = desk.on_a_terminal("run", desk.plan(GOOD))
    heard = b""
    with os.fdopen(end, "rb", buffering=0) as terminal:
        try:
            while part := terminal.read(4096):
                heard += part
        except OSError:
            pass
    running.end()
    done = desk("run", desk.plan(GOOD))

    assert b"\a" in heard
    assert "\a" not in done.talk


def test_an_errand_that_does_not_end_is_killed_with_all_it_started() -> None:
    started = time.monotonic()

    problem = run_errand(["/bin/sh", "-c", "sleep 60 & sleep 60"], b"x" * 1_000_000, dict(os.environ), 0.3)

    assert problem == "did not end within 0.3 s, and was killed"
    assert time.monotonic() - started < 10
