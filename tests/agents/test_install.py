"""Installing the real programs: with an npm of our own that only makes what it is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import install_agents

from tests.agents import programs

ROOT = Path(__file__).parent.parent.parent
NPM = """#!/bin/sh
# npm install --prefix FOLDER ... PACKAGE@VERSION
folder="$3"
for package; do :; done
echo "$package" >> "$INSTALLED"
case "$package" in
    *gemini*) echo "npm error 404 no such package" >&2; exit 1 ;;
    node@*) name=node ;;
    *claude-code*) name=claude ;;
    *) name=something-else ;;
esac
mkdir -p "$folder/node_modules/.bin"
printf '#!/bin/sh\\necho 1.0\\n' > "$folder/node_modules/.bin/$name"
chmod +x "$folder/node_modules/.bin/$name"
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packages that were asked for, one in a line."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "npm").write_text(NPM)
    (tools / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("INSTALLED", str(tmp_path / "installed"))
    return tmp_path / "installed"


def run(*names: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "tools" / "install_agents.py"), *names]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def test_a_program_is_installed_once_in_a_folder_of_its_own(npm: Path) -> None:
    first, second = run("claude"), run("claude")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "claude 2.1.325: installed" in first.stdout
    assert "claude 2.1.325: is there" in second.stdout
    assert npm.read_text().split() == ["node@22.23.3", "@anthropic-ai/claude-code@2.1.325"]
    pin = install_agents.pins()["claude"]
    assert pin.executable.is_file()
    assert pin.folder.is_relative_to(Path(os.environ["XDG_CACHE_HOME"]))


def test_one_that_cannot_be_installed_does_not_stop_the_others_and_is_named(npm: Path) -> None:
    done = run("gemini", "qwen", "claude")

    assert done.returncode == 1
    assert "claude 2.1.325: installed" in done.stdout
    assert "404 no such package" in done.stdout
    assert "brings no command 'qwen'" in done.stdout
    assert "2 not installed: gemini, qwen." in done.stderr
    assert not install_agents.pins()["gemini"].folder.exists()


def test_without_npm_it_says_what_to_install(npm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))

    done = run("claude")

    assert done.returncode == 1
    assert "there is no 'npm' on the PATH; install Node.js" in done.stdout


def test_an_unknown_name_is_refused_with_the_known_ones(npm: Path) -> None:
    done = run("cluade")

    assert done.returncode == 2
    assert "there is no program cluade; there are node, claude," in done.stderr
    assert not npm.exists()


def test_a_test_without_its_program_fails_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = install_agents.pins()["claude"]
    monkeypatch.setitem(programs._PINS, "claude", (pin, tmp_path / "claude", tmp_path))
    monkeypatch.setenv(programs.WANTED, "1")

    with pytest.raises(pytest.fail.Exception, match=r"is not installed: python tools/install_agents\.py claude"):
        programs.program("claude")


def test_a_test_with_a_real_program_is_skipped_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(programs.WANTED, raising=False)

    with pytest.raises(pytest.skip.Exception, match="make test-agents"):
        programs.program("claude")


def test_every_program_has_an_exact_version() -> None:
    assert all(pin.version[0].isdigit() and pin.version.count(".") >= 2 for pin in install_agents.pins().values())
