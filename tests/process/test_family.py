"""Who belongs to a family, who never does, and how a family is ended after a crash."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.process.families import family
from orchard.process.families.exits import send
from orchard.process.families.family import end_family, end_family_now, ladder, look, members
from orchard.process.families.identity import Identity, identify, is_alive
from orchard.process.families.orphans import LAST_RESORT, QUIET_LOOKS, become_subreaper
from orchard.process.families.table import TOKEN_VARIABLE
from tests.process.zoo import nap, survivors


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def sleeper(token: str | None = None, log: Path | None = None, session: bool = True) -> Iterator[Identity]:
    """A process that sleeps, with such proof of its origin as is asked for."""
    environment = {key: value for key, value in os.environ.items() if key != TOKEN_VARIABLE}
    if token is not None:
        environment[TOKEN_VARIABLE] = token
    output = log.open("ab") if log is not None else None
    child = subprocess.Popen(["sleep", nap()], env=environment, stdout=output, start_new_session=session)
    try:
        # Just after exec the kernel shows an empty environment for a moment.
        wait_until(lambda: bool(Path(f"/proc/{child.pid}/environ").read_bytes()))
        identity = identify(child.pid)
        assert identity is not None
        yield identity
    finally:
        child.kill()
        child.wait()
        if output is not None:
            output.close()


def test_the_token_must_match_as_a_whole() -> None:
    with sleeper(token="attempt-12") as other, sleeper(token="attempt-1") as mine:
        found = members("attempt-1")

        assert mine in found
        assert other not in found


def test_a_token_that_was_made_from_another_is_of_its_family_but_not_the_other_way_round() -> None:
    with (
        sleeper(token="attempt-1~a") as part,
        sleeper(token="attempt-1~ab") as neighbour,
        sleeper("attempt-1") as whole,
    ):
        everybody = members("attempt-1")
        alone = members("attempt-1~a")

        assert {part, neighbour, whole} <= set(everybody)
        assert alone == [part]


def test_output_into_the_log_is_proof(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with sleeper(log=log) as mine, sleeper() as other:
        found = members("nobody", None, log)

        assert mine in found
        assert other not in found


def test_a_holder_of_the_token_vouches_for_its_session() -> None:
    number = nap()
    script = f"env -i sleep {number} >/dev/null & sleep {number}"
    child = subprocess.Popen(
        ["sh", "-c", script], env={**os.environ, TOKEN_VARIABLE: "voucher"}, start_new_session=True
    )
    try:
        wait_until(lambda: len(survivors(number)) >= 3)

        assert {each.pid for each in members("voucher")} == set(survivors(number)) | {child.pid}
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_we_and_our_session_are_never_family_even_with_the_token() -> None:
    with sleeper(token="ours", session=False) as child, sleeper(session=False) as neighbour:
        found = members("ours")

        assert child in found
        assert neighbour not in found
        assert os.getpid() not in {each.pid for each in found}
        assert os.getppid() not in {each.pid for each in found}


def test_a_process_older_than_the_leader_is_never_family(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with sleeper(log=log) as old:
        deadline = time.monotonic() + 5
        while True:
            with sleeper() as leader:
                if leader.started > old.started:
                    assert old not in members("nobody", leader, log)
                    return
            assert time.monotonic() < deadline


def test_a_child_of_ours_with_another_token_is_never_family(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with sleeper(token="other", log=log) as other:
        assert other not in members("mine", None, log)


def test_a_recycled_pid_is_neither_found_nor_ended() -> None:
    with sleeper() as stranger:
        recycled = replace(stranger, started=stranger.started - 100)

        assert members("gone", recycled) == []
        assert end_family_now("gone", recycled, None, grace=0.0) == 0
        assert send(recycled, signal.SIGKILL)
        assert is_alive(stranger)


def test_nothing_survives_a_reboot() -> None:
    with sleeper(token="before") as stranger:
        rebooted = replace(stranger, boot="the boot before")

        assert end_family_now("before", rebooted, None, grace=0.0) == 0
        assert is_alive(stranger)


def test_a_sweep_is_over_only_after_two_looks_that_found_nobody() -> None:
    climb = ladder("late", None, None, grace=5.0, settle=0.0)
    first = next(climb)
    assert first.who == ()

    with sleeper(token="late") as late:
        second = next(climb)

        assert second.who == (late,)
        climb.close()


def test_a_process_that_is_just_becoming_another_program_is_not_overlooked() -> None:
    environment = {**os.environ, TOKEN_VARIABLE: "becoming"}
    for _ in range(150):
        with subprocess.Popen(["sleep", nap()], env=environment, start_new_session=True) as child:
            looked = look("becoming", None, None)
            while looked.unsure:
                looked = look("becoming", None, None)
            child.kill()

            assert child.pid in {stat.pid for stat in looked.living}


def test_a_sweep_that_finds_nobody_ends() -> None:
    climb = ladder("nobody", None, None, grace=5.0, settle=0.0)
    looks: list[tuple[Identity, ...]] = []

    with pytest.raises(StopIteration) as done:
        while len(looks) < 1000:
            looks.append(next(climb).who)

    assert len(looks) >= 2
    assert set(looks) == {()}
    assert done.value.value == 0


def test_a_sweep_is_not_over_while_a_strange_child_of_ours_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert become_subreaper()
    monkeypatch.setattr(family, "look", lambda *_: family.Look())  # as if it moved on before each look

    def waits() -> int:
        return sum(1 for _ in ladder("no-such-token", None, None, 0.0, 0.0))

    calm = waits()
    with sleeper():
        monkeypatch.setattr(family, "_LONGEST_DOUBT", 0.05)
        restless = waits()

    assert QUIET_LOOKS <= calm < 10 < restless


def test_what_was_once_family_stays_family_when_its_proof_is_gone(tmp_path: Path) -> None:
    number, flag = nap(), tmp_path / "flag"
    stubborn = f"env -i sh -c 'trap \"\" TERM; : > {flag}; sleep {number}; :' >/dev/null 2>&1 & wait"
    leader = subprocess.Popen(["sh", "-c", stubborn], start_new_session=True)
    identity = identify(leader.pid)
    assert identity is not None
    wait_until(flag.exists)
    wait_until(lambda: len(survivors(number)) >= 3)
    climb = ladder("nobody", identity, None, grace=5.0, settle=5.0)
    assert len(next(climb).who) == 3

    leader.kill()
    leader.wait()
    second = climb.send(True)

    assert len(second.who) == 2
    climb.close()
    wait_until(lambda: not survivors(number))


def answer_of(script: str, **environment: str) -> str:
    """What a python of its own prints; its parent is a shell with the same environment."""
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -c '{script}'; :"],
        env={**os.environ, **environment}, timeout=30, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_whoever_ends_a_family_with_its_own_token_outlives_that_with_its_ancestors() -> None:
    script = (
        "import subprocess\n"
        "from orchard.process.families.family import end_family_now\n"
        f'child = subprocess.Popen(["sleep", "{nap()}"], start_new_session=True)\n'
        'print(end_family_now("inherited", None, None, grace=10.0), child.wait())\n'
    )

    assert answer_of(script, ORCHARD_TOKEN="inherited") == "1 -15"


def test_nobody_vouches_for_the_session_that_we_are_in() -> None:
    """Even when the process that opened the session is gone, as it is for a daemon."""
    script = (
        "import os, subprocess\n"
        "from orchard.process.families.family import members\n"
        "if os.fork() == 0:\n"
        "    opener = os.setsid() or os.getpid()\n"
        "    if os.fork() == 0:\n"
        '        while os.path.exists(f"/proc/{opener}"): pass\n'
        f'        token = {{**os.environ, "{TOKEN_VARIABLE}": "voucher"}}\n'
        f'        mine = subprocess.Popen(["sleep", "{nap()}"], env=token)\n'
        f'        other = subprocess.Popen(["sleep", "{nap()}"])\n'
        '        while not open(f"/proc/{mine.pid}/environ").read(): pass\n'
        '        found = {each.pid for each in members("voucher")}\n'
        "        mine.kill(), other.kill()\n"
        "        print(mine.pid in found, other.pid in found, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )

    assert answer_of(script) == "True False"


def orphaned_family(folder: Path, script: str, number: str) -> Identity:
    """A family whose starter was killed, as after a crash of the engine; answers with its leader."""
    pid_file = folder / "pid"
    starter = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['sh', '-c', sys.argv[1]], start_new_session=True)\n"
        "open(sys.argv[2] + '.new', 'w').write(str(child.pid)); os.rename(sys.argv[2] + '.new', sys.argv[2])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, TOKEN_VARIABLE: "crashed-" + number, "NAP": number, "FLAG": str(folder / "flag")}
    subprocess.run(["python3", "-c", starter, script, str(pid_file)], env=environment, check=False, timeout=20)
    wait_until((folder / "flag").exists)
    leader = identify(int(pid_file.read_text()))
    assert leader is not None
    return leader


@pytest.mark.parametrize(
    "script",
    [
        "sleep $NAP & setsid sleep $NAP & : > $FLAG; sleep $NAP",
        "trap '' TERM; setsid sleep $NAP & : > $FLAG; sleep $NAP & wait",
        "env -i sh -c 'trap \"\" TERM; : > '$FLAG'; sleep '$NAP'; :' > /dev/null & sleep $NAP",
        "sh -c 'kill -STOP $$; sleep $NAP' & : > $FLAG; sleep $NAP",
    ],
    ids=["obedient", "stubborn", "scrubbed and stubborn", "stopped"],
)
def test_a_family_that_outlived_the_engine_is_ended(script: str, tmp_path: Path) -> None:
    number = nap()
    leader = orphaned_family(tmp_path, script, number)
    started = time.monotonic()

    ended = end_family_now("crashed-" + number, leader, None, grace=0.3)

    assert ended >= 2
    assert survivors(number) == []
    assert time.monotonic() - started < 0.3 + LAST_RESORT


@pytest.mark.anyio
async def test_ending_a_family_that_is_gone_does_nothing() -> None:
    with sleeper(token="gone") as leader:
        pass

    assert await end_family("gone", leader, None, grace=10.0) == 0
