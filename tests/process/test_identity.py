"""An identity names one process for ever: not its successor, not its corpse, not its namesake after a reboot."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from orchard.process.families import table
from orchard.process.families.identity import boot_id, identify, is_alive


def test_we_are_alive() -> None:
    ours = identify(os.getpid())

    assert ours is not None
    assert (ours.pid, ours.boot) == (os.getpid(), boot_id())
    assert is_alive(ours)


def test_nobody_has_a_pid_that_cannot_be() -> None:
    assert [identify(pid) for pid in (0, -1, 2**22 + 1)] == [None, None, None]


def test_a_zombie_can_be_named_but_is_not_alive() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

        zombie = identify(child.pid)

        assert zombie is not None
        assert not is_alive(zombie)
    assert identify(child.pid) is None


def test_a_later_process_with_the_same_pid_is_somebody_else() -> None:
    ours = identify(os.getpid())
    assert ours is not None

    assert not is_alive(replace(ours, started=ours.started - 1))
    assert not is_alive(replace(ours, boot="another boot"))


def test_a_name_with_spaces_parentheses_and_newlines_is_read_over() -> None:
    script = "import ctypes; ctypes.CDLL(None).prctl(15, b'a) Z 1 (\\n b', 0, 0, 0); print(flush=True); input()"
    with subprocess.Popen(["python3", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()

        stat = table.read_stat(child.pid)

        assert stat is not None
        assert (stat.parent, stat.dead) == (os.getpid(), False)
        child.communicate(b"\n")


@contextmanager
def running(words: list[str], **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that is ended in any case."""
    with subprocess.Popen(words, **options) as child:
        try:
            yield child
        finally:
            child.kill()


def test_psutil_gives_the_same_answers_as_our_own_reading_of_proc(tmp_path: Path) -> None:
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    environment = {**os.environ, table.TOKEN_VARIABLE: "tok"}
    with running(["sleep", "60"], env=environment, stdout=log, start_new_session=True) as child:
        while table.read_token(child.pid) == table.UNKNOWN:
            time.sleep(0.001)  # it is not `sleep` yet
        own, portable = table.read_stat(child.pid), table.portable_stat(child.pid)
        key = (os.fstat(log).st_dev, os.fstat(log).st_ino)

        assert own is not None
        assert portable is not None
        assert (own.parent, own.group, own.session) == (portable.parent, portable.group, portable.session)
        assert table.read_token(child.pid) == table.portable_token(child.pid) == b"tok"
        assert table.writes_to(child.pid, key)
        assert table.portable_writes_to(child.pid, key)
    os.close(log)
