"""Ranges of ports over several real processes: none is shared, none is lost with a dead holder, none is in use."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchard.store.ports import END, FIRST, WIDTH, Ports

HOLDER = """
import sys, time
from pathlib import Path
from orchard.store.ports import Ports
ports = Ports(Path(sys.argv[1]))
print([ports.of(number) for number in range(3)], flush=True)
time.sleep(60)
"""


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[Ports]:
    with closing(Ports(tmp_path / "ports")) as ports:
        yield ports


def test_each_owner_has_a_range_of_its_own_and_keeps_it(ports: Ports) -> None:
    first, second = ports.of("a"), ports.of("b")

    assert first is not None and second is not None
    assert abs(first - second) >= WIDTH
    assert min(first, second) >= FIRST and max(first, second) + WIDTH <= END
    assert (ports.of("a"), ports.of("b")) == (first, second)


def test_two_engines_of_a_user_share_no_range_and_one_that_is_given_back_is_free(tmp_path: Path, ports: Ports) -> None:
    with closing(Ports(tmp_path / "ports")) as other:
        first = ports.of("a")
        assert other.of("a") not in (None, first)

        ports.give_back("a")

        assert other.of("b") == first


def test_ranges_of_a_process_that_was_killed_are_free_at_once(tmp_path: Path, ports: Ports) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path / "ports"], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        held = set(eval(holder.stdout.readline()))
        assert len(held) == 3
        assert ports.of("a") not in held

        holder.send_signal(signal.SIGKILL)
        holder.wait(10)

    assert {ports.of("b"), ports.of("c"), ports.of("d")} >= held - {ports.of("a")}


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_range_in_which_a_program_listens_is_passed_over(ports: Ports, address: str) -> None:
    first = ports.of("a")
    assert first is not None
    ports.give_back("a")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, first + 3))
        listener.listen()

        assert ports.of("b") != first


def test_a_folder_that_cannot_be_used_gives_no_range(tmp_path: Path) -> None:
    (tmp_path / "ports").write_text("not a folder")

    assert Ports(tmp_path / "ports").of("a") is None


def test_no_program_inherits_a_lock(ports: Ports) -> None:
    ports.of("a")

    held = [lock for _, lock in ports._held.values()]

    assert not any(os.get_inheritable(lock) for lock in held)
