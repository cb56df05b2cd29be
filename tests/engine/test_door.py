"""The engine's own door, a unix socket: who shows no secret, or a wrong one, is sent away, and that is written down."""

import asyncio
import json
import logging
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from orchard.engine.server import server as control
from orchard.engine.server.address import Address, read_address
from orchard.engine.server.crowd import MOST_LINES, OF_ONE_PASS, UNGREETED
from orchard.engine.server.server import Caller
from orchard.engine.server.session import Session
from orchard.engine.server.start import OwnEngine
from orchard.engine.turns.job_tokens import Scope
from orchard.model.plan import JobId, PlanId
from tests.engine.conftest import Orchard, until

pytestmark = pytest.mark.anyio

SCOPE = Scope(PlanId("plan-1"), JobId("job"), 1)
OTHER_USER = 65534


@asynccontextmanager
async def opened(orchard: Orchard) -> AsyncIterator[tuple[Address, Session, list[Scope | None]]]:
    """An engine whose door speaks a small language; who spoke it is remembered."""
    spoke: list[Scope | None] = []

    async def echo(session: Session, caller: Caller) -> None:
        spoke.append(caller.scope)
        while line := await caller.reader.readline():
            caller.writer.write(line.upper())
            await caller.writer.drain()

    app = orchard.app
    app.channels["echo"] = echo
    async with asyncio.timeout(60), app.session(work=False) as session:
        address = read_address(app.repo.state)
        assert address is not None
        yield address, session, spoke


async def said(address: Address, *lines: bytes | Mapping[str, Any], end: bool = False) -> list[Any]:
    """Say these lines at the door, and hear everything until it is closed."""
    reader, writer = await asyncio.open_unix_connection(address.socket, limit=2**26)
    try:
        for line in lines:
            writer.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
            with suppress(ConnectionError):
                await writer.drain()
        if end and writer.can_write_eof():
            writer.write_eof()
        heard = b""
        with suppress(ConnectionError):
            heard = await asyncio.wait_for(reader.read(), 20)
        return [json.loads(row) for row in heard.splitlines()]
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def refusals(orchard: Orchard) -> list[str]:
    place = orchard.repo.path / ".git" / "orchard" / "refused.log"
    return place.read_text().splitlines() if place.exists() else []


PING = {"op": "ping"}


async def test_who_has_the_secret_is_answered(orchard: Orchard) -> None:
    async with opened(orchard) as (address, _, _):
        answers = await said(address, {"nonce": address.nonce}, PING, {"op": "no such"}, {"op": 7}, [], end=True)  # type: ignore[arg-type]

    assert answers[0] == {"ok": {"plans": []}}
    assert [list(one) for one in answers[1:]] == [["error"]] * 3
    assert refusals(orchard) == []


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ({"nonce": "0" * 64}, "a wrong secret"),
        ({"nonce": ""}, "a wrong secret"),
        ({"nonce": None}, "no secret"),
        ({"nonce": 7}, "a wrong secret"),
        ({"nonce": ["x"]}, "a wrong secret"),
        ({"nonce": "é\ud800"}, "a wrong secret"),
        ({"pass": "0" * 64}, "a wrong secret"),
        ({"pass": "\ud800"}, "a wrong secret"),
        ({}, "no secret"),
        (PING, "no secret"),
        ({"secret": "x"}, "no secret"),
        (b"[]\n", "no secret"),
        (b"7\n", "no secret"),
        (b"null\n", "no secret"),
        (b"\n", "cannot be read"),
        (b"{\n", "cannot be read"),
        (b"GET / HTTP/1.1\r\n", "cannot be read"),
        (b"\xff\xfe\x00\n", "cannot be read"),
        (b"[" * 100_000 + b"\n", "cannot be read"),
        (b'{"nonce": ' + b"9" * 5000 + b"}\n", "cannot be read"),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_who_has_not_is_sent_away_and_written_down(orchard: Orchard, first: Any, why: str) -> None:
    async with opened(orchard) as (address, _, _):
        answers = await said(address, first, PING)
        written = refusals(orchard)
        good = await said(address, {"nonce": address.nonce}, PING, end=True)

    assert answers == []
    assert len(written) == 1 and why in written[0] and f"process {os.getpid()} of user {os.getuid()}" in written[0]
    assert good == [{"ok": {"plans": []}}]


async def test_half_of_the_secret_and_the_secret_of_another_start_are_wrong(orchard: Orchard) -> None:
    async with opened(orchard) as (before, _, _):
        pass
    async with opened(orchard) as (address, _, _):
        for nonce in (before.nonce, address.nonce[:-1], address.nonce + "0", address.nonce.upper() + " "):
            assert await said(address, {"nonce": nonce}, PING) == []

    assert len(refusals(orchard)) == 4


async def test_who_says_nothing_does_not_stay(orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "HANDSHAKE_SECONDS", 0.2)
    async with opened(orchard) as (address, _, _):
        assert await said(address) == []
        assert await said(address, b'{"nonce": "half') == []
        assert await said(address, end=True) == []

    assert [line.rpartition(": ")[2] for line in refusals(orchard)] == [
        "no secret in time", "no secret in time", "gone before it said anything",
    ]  # fmt: skip


async def test_a_line_that_is_too_long_ends_the_connection(orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LINE_BYTES", 64 * 1024)
    long = b'{"op": "ping", "args": {"x": "' + b"a" * 300_000 + b'"}}\n'
    async with opened(orchard) as (address, _, _):
        assert await said(address, long) == []
        assert await said(address, {"nonce": address.nonce}, long, PING) == []
        assert await said(address, {"nonce": address.nonce}, PING, end=True) == [{"ok": {"plans": []}}]

    assert len(refusals(orchard)) == 1


@pytest.mark.parametrize("line", [b"{\n", b"\xff\n", b"[" * 100_000 + b"\n", b'{"op": "ping"', b"\0\n"])
async def test_broken_requests_end_the_connection_and_nothing_else(orchard: Orchard, line: bytes) -> None:
    async with opened(orchard) as (address, session, _):
        answers = await said(address, {"nonce": address.nonce}, PING, line, end=True)

        assert answers[0] == {"ok": {"plans": []}}
        assert [one["id"] for one in answers[1:] if "error" in one] == [None] * len(answers[1:])
        assert await session.request("ping") == {"plans": []}


@pytest.mark.parametrize("extra", [{}, {"id": 1}], ids=str)
async def test_a_follower_that_hangs_up_is_let_go_while_nothing_happens(
    orchard: Orchard, extra: Mapping[str, Any]
) -> None:
    async with opened(orchard) as (address, _, _):
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            reader, writer = await asyncio.open_unix_connection(address.socket)
            for line in ({"nonce": address.nonce}, {"op": "follow", **extra}):
                writer.write(json.dumps(line).encode() + b"\n")
            assert "seq" in json.loads(await reader.readline())
            writer.close()
            await writer.wait_closed()

        await until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before)


# ------------------------------------------------------------------------------------------- job_tokens


async def test_a_pass_opens_a_channel_as_its_job_and_nothing_else(orchard: Orchard) -> None:
    async with opened(orchard) as (address, session, spoke):
        assert isinstance(session.link, OwnEngine)
        with session.link.engine.job_tokens.issued(SCOPE) as shown:
            channel = {"op": "channel", "name": "echo", "args": {}}
            by_pass = await spoken(address, {"pass": shown}, channel)
            by_secret = await spoken(address, {"nonce": address.nonce}, channel)
            unknown = await said(address, {"pass": shown}, {"op": "channel", "name": "other"})
            for verb in ("ping", "create_plan", "cancel_plan", "land_plan", "follow", "purge_plan", "", None):
                assert await said(address, {"pass": shown}, {"op": verb, "args": {"plan": "x"}}) == [], verb
        late = await said(address, {"pass": shown}, channel)

    assert by_pass == by_secret == b"HELLO\n"
    assert spoke == [SCOPE, None]
    assert "no such language" in unknown[0]["error"]["message"]
    assert late == []
    assert [line.rpartition(": ")[2] for line in refusals(orchard)] == [
        *["a request with the pass of a job"] * 8, "a wrong secret",
    ]  # fmt: skip


async def spoken(address: Address, *lines: Mapping[str, Any]) -> bytes:
    """Open a channel, and say hello on it."""
    reader, writer = await asyncio.open_unix_connection(address.socket)
    for line in lines:
        writer.write(json.dumps(line).encode() + b"\n")
    assert json.loads(await reader.readline()) == {"ok": {}}
    writer.write(b"hello\n")
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer


# ------------------------------------------------------------------------------------- the file system


async def test_socket_folder_and_secret_are_the_users_alone(orchard: Orchard) -> None:
    async with opened(orchard) as (address, _, _):
        place, state = Path(address.socket), orchard.repo.path / ".git" / "orchard"
        await said(address, {})
        modes = [stat.S_IMODE(one.stat().st_mode) for one in (place, place.parent, state / "daemon.json")]
        log = stat.S_IMODE((state / "refused.log").stat().st_mode)

    assert modes == [0o600, 0o700, 0o600] and log == 0o600
    assert address.nonce not in str(os.environ) and len(address.nonce) == 64
    assert not place.exists() and not (state / "daemon.json").exists()


async def test_the_list_of_refusals_stays_small_and_is_written_through_no_link(orchard: Orchard) -> None:
    place = orchard.repo.path / ".git" / "orchard" / "refused.log"
    async with opened(orchard) as (address, _, _):
        place.write_text("x" * 300_000 + "\n")
        await said(address, {})
        await until(lambda: place.stat().st_size < 1000)
        place.unlink()
        victim = orchard.repo.path / "victim"
        place.symlink_to(victim)

        assert await said(address, {}) == []
        assert not victim.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can be somebody else")
async def test_another_user_is_refused_even_with_the_secret(orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    # A folder of its own: what all tests share must not be open to others, not even for a moment.
    own = tempfile.mkdtemp(prefix="o", dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", own)
    program = f"""
import json, os, socket, sys
os.chdir(os.path.dirname(sys.argv[1]))
os.setgroups([])
os.setgid({OTHER_USER})
os.setuid({OTHER_USER})
line = socket.socket(socket.AF_UNIX)
line.connect(os.path.basename(sys.argv[1]))
heard = b""
try:
    line.sendall(json.dumps({{"nonce": sys.argv[2]}}).encode() + b'\\n{{"op": "ping"}}\\n')
    heard = line.recv(1000)
except ConnectionError:
    pass
print(os.getuid(), heard)
"""
    async with opened(orchard) as (address, _, _):
        place = Path(address.socket)
        # The modes of folder and socket keep them out before they come this far: the check must hold without those.
        place.chmod(0o777)
        place.parent.chmod(0o711)
        try:
            argv = [sys.executable, "-I", "-c", program, address.socket, address.nonce]
            done = await asyncio.to_thread(
                subprocess.run, argv, capture_output=True, text=True, timeout=30, check=False
            )
        finally:
            place.parent.chmod(0o700)

    shutil.rmtree(own)
    assert Path(own) in place.parents
    assert done.stdout == f"{OTHER_USER} b''\n", done.stderr
    assert f"of user {OTHER_USER}: another user" in refusals(orchard)[0]


async def test_a_crowd_that_says_nothing_keeps_nobody_out_and_takes_few_descriptors(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HANDSHAKE_SECONDS", 600.0)  # nobody leaves because time is up
    async with opened(orchard) as (address, _, _):
        crowd = [await asyncio.open_unix_connection(address.socket) for _ in range(100)]
        gone = [asyncio.create_task(reader.read()) for reader, _ in crowd]
        await until(lambda: sum(task.done() for task in gone) >= len(crowd) - UNGREETED)

        assert await said(address, {"nonce": address.nonce}, PING, end=True) == [{"ok": {"plans": []}}]
        for task, (_, writer) in zip(gone, crowd, strict=True):
            task.cancel()
            writer.close()


HORDE = """
import socket, sys
kept = []
for _ in range(int(sys.argv[2])):
    one = socket.socket(socket.AF_UNIX)
    one.connect(sys.argv[1])
    kept.append(one)
print("there", flush=True)
kept[0].recv(1)
print("sent away", flush=True)
sys.stdin.read()
"""


async def test_a_job_that_comes_without_a_word_takes_nobody_else_s_place(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's command has connected and not spoken yet, and so has a program of another job."""
    monkeypatch.setattr(control, "HANDSHAKE_SECONDS", 600.0)  # nobody leaves because time is up
    pipe = asyncio.subprocess.PIPE
    async with opened(orchard) as (address, _, _):
        reader, writer = await asyncio.open_unix_connection(address.socket)
        programs = []
        try:
            for number in ("1", "200"):
                words = (sys.executable, "-c", HORDE, address.socket, number)
                programs.append(await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe))
                assert programs[-1].stdout is not None
                assert await programs[-1].stdout.readline() == b"there\n"
            one, many = (program.stdout for program in programs)
            assert one is not None and many is not None
            assert await many.readline() == b"sent away\n"
            writer.write(b"".join(json.dumps(line).encode() + b"\n" for line in ({"nonce": address.nonce}, PING)))

            assert json.loads(await asyncio.wait_for(reader.readline(), 10)) == {"ok": {"plans": []}}
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(one.readline(), 0.5)
        finally:
            writer.close()
            for program in programs:
                program.kill()
                await program.wait()


async def test_a_command_stands_in_line_where_a_crowd_is_at_the_door(tmp_path: Path) -> None:
    """A full line is no end of the engine: as soon as the one before it was let in, the next one is."""
    place = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as before:
        listener.bind(place)
        listener.listen(0)
        before.connect(place)
        asked = asyncio.create_task(control.connect(Address(1, 1.0, "", place, "secret")))
        await asyncio.sleep(0.3)
        assert not asked.done()
        first, _ = await asyncio.to_thread(listener.accept)
        connection = await asyncio.wait_for(asked, 10)
        second, _ = await asyncio.to_thread(listener.accept)
        with first, second:
            assert json.loads(await asyncio.to_thread(second.recv, 1000)) == {"nonce": "secret"}
        connection.close()


async def test_whoever_stood_in_line_too_long_is_not_told_that_the_engine_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "LINE_SECONDS", 1)
    place = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as before:
        listener.bind(place)
        listener.listen(0)
        before.connect(place)
        with pytest.raises(control.EngineGone, match="is at work, but did not answer within 1 s"):
            await asyncio.wait_for(control.connect(Address(1, 1.0, "", place, "secret")), 10)


async def test_one_pass_opens_so_many_connections_and_the_user_is_let_in_beside_them(orchard: Orchard) -> None:
    async with opened(orchard) as (address, session, spoke):
        engine = session.link.engine  # type: ignore[attr-defined]
        with engine.job_tokens.issued(SCOPE) as shown:
            crowd = []
            for _ in range(OF_ONE_PASS + 20):
                reader, writer = await asyncio.open_unix_connection(address.socket)
                hello = {"pass": shown}, {"op": "channel", "name": "echo", "args": {}}
                writer.write(b"".join(json.dumps(line).encode() + b"\n" for line in hello))
                crowd.append((reader, writer))
                await asyncio.sleep(0)
            await until(lambda: len(spoke) == OF_ONE_PASS)
            await until(lambda: sum("too many connections" in row for row in refusals(orchard)) == 20)

            assert await said(address, {"nonce": address.nonce}, PING, end=True) == [{"ok": {"plans": []}}]
            for _, writer in crowd:
                writer.close()


async def test_an_engine_takes_as_many_descriptors_as_it_may_and_logs_few_errors_of_its_loop(orchard: Orchard) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        async with opened(orchard):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            assert soft == (65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536))
            record = logging.makeLogRecord({"msg": "socket.accept() out of system resource"})
            assert 0 < sum(bool(logging.getLogger("asyncio").filter(record)) for _ in range(1000)) <= MOST_LINES
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
