"""The line that opens something says which file it belongs into, and fits what stands there: put there, it holds."""

import re
import tomllib
from pathlib import Path

import pytest

from orchard.config.load import load_settings
from orchard.config.setting_line import opening_line, origin_of
from orchard.config.user_dirs import UserDirs

CASES = {
    "": 'put sandbox.expose = ["~/x"] at the top of FILE',
    'agent = "builtin"\n[heal]\nattempts = 2\n': 'put sandbox.expose = ["~/x"] at the top of FILE',
    '[sandbox]\nlevel = "bwrap"\n': 'add expose = ["~/x"] under [sandbox] in FILE',
    '[sandbox]\nexpose = ["~/y"]\n': 'add "~/x" to expose under [sandbox] in FILE',
    'sandbox.expose = ["~/y"]\n': 'add "~/x" to sandbox.expose in FILE',
    'sandbox.level = "bwrap"\n': 'put sandbox.expose = ["~/x"] at the top of FILE',
    'sandbox = "bwrap"\n': 'in FILE, put [sandbox] with level = "bwrap" and expose = ["~/x"] in the place of '
    'sandbox = "bwrap"',
}


@pytest.fixture
def dirs(tmp_path: Path) -> UserDirs:
    made = UserDirs(*(tmp_path / name for name in ("state", "config", "runtime")))
    made.config.mkdir()
    return made


def told(dirs: UserDirs, top: Path | None = None, key: str = "sandbox.expose", value: str = '"~/x"', **env: str) -> str:
    origins = load_settings(top, {}, env, dirs).origins
    return opening_line(key, value, origin_of(origins, key), dirs, top)


@pytest.mark.parametrize("text", CASES)
def test_a_line_for_the_users_file_fits_what_stands_there(dirs: UserDirs, text: str) -> None:
    file = dirs.config / "config.toml"
    file.write_text(text)
    said = told(dirs)

    assert said == CASES[text].replace("FILE", str(file))
    if found := re.match(r"put (sandbox\.\S+ = .*) at the top of ", said):
        assert tomllib.loads(f"{found[1]}\n{text}")["sandbox"]["expose"] == ["~/x"]
    elif found := re.match(r"add (expose = .*) under ", said):
        assert tomllib.loads(f"{text}{found[1]}\n")["sandbox"]["expose"] == ["~/x"]


def test_a_list_of_the_repositorys_file_or_of_a_variable_is_the_one_to_be_changed(
    dirs: UserDirs, tmp_path: Path
) -> None:
    (dirs.config / "config.toml").write_text('[sandbox]\nexpose = ["~/y"]\n')
    assert told(dirs, ORCHARD_SANDBOX_EXPOSE="~/z") == "add ~/x to the variable ORCHARD_SANDBOX_EXPOSE"
    (tmp_path / "orchard.toml").write_text("[sandbox]\nfiles = 10\n")
    assert told(dirs, tmp_path, "sandbox.files", "20") == "change files to 20 under [sandbox] in orchard.toml"
    assert "to expose under [sandbox] in" in told(dirs, tmp_path), "what the user has opened stays the user's"


def test_several_values_are_one_line(dirs: UserDirs) -> None:
    said = told(dirs, value='"~/x", "~/z"')
    found = re.match(r"put (sandbox\.\S+ = .*) at the top of ", said)
    assert found is not None and tomllib.loads(found[1])["sandbox"]["expose"] == ["~/x", "~/z"]
    variable = told(dirs, value='"~/x", "~/z"', ORCHARD_SANDBOX_EXPOSE="~/y")
    assert variable == "add ~/x,~/z to the variable ORCHARD_SANDBOX_EXPOSE"


def test_a_single_value_is_set_and_not_added(dirs: UserDirs) -> None:
    file = dirs.config / "config.toml"
    assert told(dirs, key="sandbox.memory", value="20") == f"put sandbox.memory = 20 at the top of {file}"
    file.write_text("[sandbox]\nmemory = 10\n")
    assert told(dirs, key="sandbox.memory", value="20") == f"change memory to 20 under [sandbox] in {file}"
    assert (
        told(dirs, key="sandbox.memory", value="20", ORCHARD_SANDBOX_MEMORY="5") == "set ORCHARD_SANDBOX_MEMORY to 20"
    )
