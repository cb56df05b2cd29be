"""Database files: made whole or not at all, migrated with a copy, never replaced."""

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.files import file_system, mounted_type
from orchard.store.db import Schema, StoreError, _give_name, is_network, open_database, open_read_only
from orchard.surfaces.next_steps import in_commands

ONE = Schema("notebook", 0x0123, ("CREATE TABLE notes (text TEXT NOT NULL)",))
TWO = replace(ONE, steps=(*ONE.steps, "ALTER TABLE notes ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_has_its_tables_its_version_and_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "notes.db"

    with closing(open_database(path, TWO)) as connection:
        connection.execute("INSERT INTO notes (text) VALUES ('one')")
        modes = {stat.S_IMODE(place.stat().st_mode) for place in path.parent.iterdir()}
        version = connection.execute("PRAGMA user_version").fetchone()[0]

    assert version == 2
    assert modes == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert names(path.parent) == ["notes.db"]


@pytest.mark.parametrize(
    ("pragma", "value"),
    [("journal_mode", "wal"), ("synchronous", 2), ("busy_timeout", 5000), ("foreign_keys", 1), ("mmap_size", 0)],
)
def test_a_durable_file_is_opened_with_what_makes_it_so(tmp_path: Path, pragma: str, value: object) -> None:
    with closing(open_database(tmp_path / "notes.db", ONE)) as connection:
        assert connection.execute(f"PRAGMA {pragma}").fetchone()[0] == value


def test_a_file_that_several_write_has_no_write_ahead_log(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "notes.db", ONE, shared=True)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreError, match="cannot be made"):
        open_database(tmp_path / "file" / "deep" / "notes.db", ONE)


def test_odd_names_are_just_names(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"a ?mode=memory#\n\xff%41")

    with closing(open_database(folder / "notes.db", ONE)):
        pass

    assert names(folder) == ["notes.db"]


@pytest.mark.parametrize("content", [b"", b"no database at all " * 400, b"SQLite format 3\0" + b"\xff" * 5000])
def test_what_is_no_database_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.db"
    path.write_bytes(content)

    with pytest.raises(StoreError, match="left as it is") as caught:
        open_database(path, ONE)

    assert str(path) in caught.value.message
    assert in_commands(caught.value.hint or "").startswith("Move it away")
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()

    with pytest.raises(StoreError, match="not the notebook"):
        open_database(path, ONE)

    assert path.read_bytes() == before


@pytest.mark.parametrize("opener", [open_database, open_read_only])
def test_a_file_of_a_newer_program_is_refused(tmp_path: Path, opener: object) -> None:
    path = tmp_path / "notes.db"
    open_database(path, TWO).close()
    before = path.read_bytes()

    with pytest.raises(StoreError, match=r"newer Orchard \(it has version 2, this one knows 1\)"):
        opener(path, ONE)  # type: ignore[operator]

    assert path.read_bytes() == before


def test_an_older_file_is_migrated_and_a_copy_of_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with closing(open_database(path, ONE)) as old:
        old.execute("INSERT INTO notes VALUES ('kept')")

    with closing(open_database(path, TWO)) as connection:
        rows = connection.execute("SELECT text, mood FROM notes").fetchall()

    assert rows == [("kept", "calm")]
    with closing(open_read_only(tmp_path / "notes.db.v1", ONE)) as copy:
        assert copy.execute("SELECT * FROM notes").fetchall() == [("kept",)]
    assert stat.S_IMODE((tmp_path / "notes.db.v1").stat().st_mode) == 0o600


def test_a_migration_that_fails_leaves_the_file_at_the_last_good_version(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    open_database(path, ONE).close()
    broken = replace(TWO, steps=(*TWO.steps, "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)"))

    with pytest.raises(StoreError):
        open_database(path, broken)

    with closing(open_database(path, TWO)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("notes",)]
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 2


def test_a_reader_does_not_migrate(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    open_database(path, ONE).close()

    with pytest.raises(StoreError, match="older Orchard") as caught:
        open_read_only(path, TWO)

    assert in_commands(caught.value.hint or "") == "Run 'orchard resume'."


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    open_database(path, ONE).close()

    with closing(open_read_only(path, ONE)) as reader, pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("INSERT INTO notes VALUES ('no')")


def test_a_missing_file_is_not_made_by_a_reader(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        open_read_only(tmp_path / "notes.db", ONE)

    assert names(tmp_path) == []


CREATE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from orchard.store import db
left = int(sys.argv[2])
def die(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(lambda name, _: die() if name.split(".")[0] in ("os", "open", "sqlite3") else None)
schema = db.Schema("notebook", 0x0123, ("CREATE TABLE a (x)", "CREATE TABLE b (x)"))
db.open_database(Path(sys.argv[1]), schema).close()
"""


def test_a_kill_while_the_file_is_made_leaves_all_of_it_or_nothing(tmp_path: Path) -> None:
    schema = Schema("notebook", 0x0123, ("CREATE TABLE a (x)", "CREATE TABLE b (x)"))
    deaths = 0
    for point in range(1, 12):
        path = tmp_path / str(point) / "notes.db"
        path.parent.mkdir()
        done = subprocess.run([sys.executable, "-c", CREATE_AND_DIE, str(path), str(point)], timeout=30, check=False)
        deaths += done.returncode == -9

        existed = path.exists()
        if existed:
            with closing(open_read_only(path, schema)) as reader:
                assert len(reader.execute("SELECT name FROM sqlite_schema").fetchall()) == 2
        open_database(path, schema).close()
    assert deaths >= 4


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path, draft = tmp_path / "notes.db", tmp_path / "draft"
    path.write_text("theirs")
    draft.write_text("ours")

    _give_name(draft, path)

    assert path.read_text() == "theirs"


def test_processes_that_make_the_file_at_once_share_one(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from orchard.store import db\n"
        "c = db.open_database(Path(sys.argv[1]), db.Schema('notebook', 0x0123, ('CREATE TABLE notes (text)',)))\n"
        "c.execute('INSERT INTO notes VALUES (1)'); c.close()"
    )
    path = tmp_path / "notes.db"

    racers = [subprocess.Popen([sys.executable, "-c", script, str(path)]) for _ in range(4)]
    statuses = [racer.wait(timeout=60) for racer in racers]

    assert statuses == [0] * 4
    with closing(open_read_only(path, ONE)) as reader:
        assert reader.execute("SELECT count(*) FROM notes").fetchone()[0] == 4
    assert not [name for name in names(tmp_path) if name.endswith(".new")]


MOUNTS = (
    b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    b"30 22 0:40 / /home/ada/my\\040work rw - nfs4 server:/x rw\n"
    b"31 22 0:41 / /mnt/tools rw - nfs server:/y rw\n"
    b"32 31 0:42 / /mnt/tools rw shared:9 master:1 - tmpfs tmpfs rw\n"
    b"33 22 0:43 / /mnt/remote rw - fuse.sshfs ada@host:/ rw\n"
)


@pytest.mark.parametrize(
    ("place", "kind", "network"),
    [
        ("/home/ada/code/.git/orchard/journal.db", "ext4", False),
        ("/home/ada/my work/code/journal.db", "nfs4", True),
        ("/home/ada/my workshop/journal.db", "ext4", False),
        ("/mnt/tools/journal.db", "tmpfs", False),
        ("/mnt/remote/journal.db", "fuse.sshfs", True),
    ],
)
def test_network_file_systems_are_told_from_local_ones(place: str, kind: str, network: bool) -> None:
    assert mounted_type(MOUNTS, Path(place)) == kind
    assert is_network(kind) is network


def test_the_file_system_of_a_real_folder_is_known(tmp_path: Path) -> None:
    kind = file_system(tmp_path / "not-yet-there")

    assert kind != ""
    assert not is_network(kind)
