"""Where a user's own files lie."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from orchard.config.user_dirs import (
    SOCKET_NAME_BYTES,
    SOCKET_PATH_BYTES,
    make_runtime_dir,
    make_state_dir,
    socket_path,
    user_dirs,
)
from orchard.errors import OrchardError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return tmp_path


def test_naming_the_folders_makes_none_of_them(home: Path) -> None:
    user_dirs()

    assert list(home.iterdir()) == []


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="XDG variables are Linux's")
def test_the_folders_follow_the_xdg_variables(home: Path) -> None:
    dirs = user_dirs()

    assert (dirs.state, dirs.config) == (home / "state" / "orchard", home / "config" / "orchard")


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="XDG variables are Linux's")
def test_a_relative_folder_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")

    try:
        state = user_dirs().state
    except OrchardError as error:
        assert "XDG_STATE_HOME" in error.message
    else:
        # Newer platformdirs ignore a relative value, as XDG asks for.
        assert state.is_absolute()


def test_a_private_short_runtime_folder_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Path(f"/tmp/o{os.getpid()}")
    short.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    try:
        assert user_dirs().runtime == short / "orchard"
        assert make_runtime_dir(user_dirs().runtime) == short / "orchard"
    finally:
        (short / "orchard").rmdir()
        short.rmdir()


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_a_runtime_folder_that_others_can_enter_is_passed_over(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    home.chmod(mode)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))

    assert user_dirs().runtime == Path(f"/tmp/orchard-{os.getuid()}")


@pytest.mark.parametrize("given", ["", "relative", "/nowhere/at/all", "/tmp/" + "x" * 90])
def test_an_unusable_runtime_folder_falls_back_to_a_short_one(
    home: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", given)

    runtime = user_dirs().runtime

    assert len(os.fsencode(socket_path(runtime, "s" * SOCKET_NAME_BYTES))) <= SOCKET_PATH_BYTES


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder for another user")
def test_a_name_that_another_user_took_first_is_given_up_for_a_folder_of_ours(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr("orchard.config.user_dirs.TEMPORARY", Path(short))
        monkeypatch.setenv("XDG_STATE_HOME", f"{short}/s")
        assert user_dirs().runtime == Path(short) / "orchard-0"
        (Path(short) / "orchard-0").mkdir()
        os.chown(Path(short) / "orchard-0", 4242, 4242)

        runtime = user_dirs().runtime

        assert runtime == Path(short) / "s" / "orchard" / "run"
        assert make_runtime_dir(runtime).stat().st_mode & 0o777 == 0o700


def test_a_runtime_folder_is_made_for_the_user_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        made = make_runtime_dir(tmp_path / "run")
    finally:
        os.umask(old)

    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert make_runtime_dir(made) == made


def test_a_runtime_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "real")

    with pytest.raises(OrchardError, match="it is a link"):
        make_runtime_dir(tmp_path / "run")


def test_a_runtime_folder_with_a_loose_mode_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)

    with pytest.raises(OrchardError, match="its mode is 755"):
        make_runtime_dir(tmp_path / "run")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_runtime_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    os.chown(tmp_path / "run", 12345, 12345)

    with pytest.raises(OrchardError, match="it belongs to user 12345"):
        make_runtime_dir(tmp_path / "run")


def test_a_runtime_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")

    with pytest.raises(OrchardError):
        make_runtime_dir(tmp_path / "run")


def test_a_state_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    made = make_state_dir(tmp_path / "a" / "b")

    assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_a_socket_name_that_leaves_the_folder_or_does_not_fit_is_a_bug(tmp_path: Path) -> None:
    for name in ("../x", "a/b", "x" * 200):
        with pytest.raises(ValueError, match="no path for a socket"):
            socket_path(Path("/tmp/run"), name)
