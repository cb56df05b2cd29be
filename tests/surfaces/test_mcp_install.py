"""`orchard mcp install`: every host's file, in every state that it can be found in."""

import json
import os
import pty
import select
import shlex
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchard.surfaces.cli.external.text import read_text
from orchard.surfaces.cli.start import run_command_line
from orchard.surfaces.mcp.hosts import HOSTS, scopes
from orchard.surfaces.mcp.relay.handshake_cache import read_greeting
from orchard.surfaces.mcp.selection import Selection
from orchard.testing import Repo

SECONDS = 60
ALL = [(host, scope) for host in HOSTS for scope in scopes(host)]
SAME = {
    "codex": ".codex/config.toml", "cursor": ".cursor/mcp.json", "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json", "jetbrains": ".junie/mcp/mcp.json",
}  # fmt: skip
FILES = {
    **{(host, scope): file for host, file in SAME.items() for scope in ("project", "user")},
    ("claude", "project"): ".mcp.json",
    ("claude", "user"): ".claude.json",
    ("vscode", "project"): ".vscode/mcp.json",
    ("vscode", "user"): "config/Code/User/mcp.json",
    ("copilot", "project"): ".mcp.json",
    ("copilot", "user"): ".copilot/mcp-config.json",
    ("opencode", "project"): "opencode.json",
    ("opencode", "user"): "config/opencode/opencode.json",
    ("zed", "project"): ".zed/settings.json",
    ("zed", "user"): "config/zed/settings.json",
    ("windsurf", "user"): ".codeium/windsurf/mcp_config.json",
    ("claude-desktop", "user"): "config/Claude/claude_desktop_config.json",
}

every = pytest.mark.parametrize(("host", "scope"), ALL)


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Desk:
    """A repository and a user's home, in which the real command line is used."""

    repo: Path
    home: Path
    run: Callable[..., Done]

    def file(self, host: str, scope: str) -> Path:
        return (self.repo if scope == "project" else self.home) / FILES[host, scope]

    def write(self, host: str, scope: str, text: str, mode: int = 0o640) -> Path:
        file = self.file(host, scope)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        file.chmod(mode)
        return file

    def entry(self, host: str, scope: str, name: str = "orchard") -> Any:
        found = servers(host, self.file(host, scope).read_text())[name]
        if host == "opencode":  # the program and its words are one list there
            program, *words = found["command"]
            return {**found, "command": program, "args": words}
        return found

    def install(self, host: str, scope: str, *more: str) -> Done:
        return self.run("mcp", "install", "--host", host, "--scope", scope, *more)

    def uninstall(self, host: str, scope: str, *more: str) -> Done:
        return self.run("mcp", "uninstall", "--host", host, "--scope", scope, *more)

    def everything(self) -> dict[str, bytes]:
        """Every file that could have been touched, without what git and Orchard keep for themselves."""
        files = [*self.repo.rglob("*"), *self.home.rglob("*")]
        own = (self.repo / ".git", self.home / "state")
        return {
            str(path): path.read_bytes()
            for path in files
            if path.is_file() and not any(path.is_relative_to(folder) for folder in own)
        }


@pytest.fixture
def desk(
    tmp_path: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Desk:
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(variable, raising=False)
    folders = os.environ["PATH"].split(":")
    monkeypatch.setenv("PATH", ":".join(one for one in folders if not (Path(one) / "orchard").exists()))
    repo = Repo.make(tmp_path / "repo")

    def run(*words: str) -> Done:
        code = run_command_line(["-C", str(repo.path), *words])
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return Desk(repo.path, private_home, run)


def root(host: str) -> str:
    named = {"codex": "mcp_servers", "vscode": "servers", "opencode": "mcp", "zed": "context_servers"}
    return named.get(host, "mcpServers")


def servers(host: str, text: str) -> Any:
    value: Any = tomllib.loads(text) if host == "codex" else read_text(text, "jsonc")
    return value.get(root(host), {})


def others(host: str) -> str:
    """A file with a server and a setting of somebody else."""
    if host == "codex":
        return 'model = "x"\n\n[mcp_servers.other]\ncommand = "other"\n\n[tui]\ntheme = "dark"\n'
    return f'{{\n    "{root(host)}": {{\n        "other": {{"command": "other"}}\n    }},\n    "more": [1.50]\n}}\n'


def with_ours(host: str, command: str) -> str:
    """A file in which somebody else's server has our name."""
    return (
        others(host).replace('"other": {', '"orchard": {').replace(".other]", ".orchard]").replace('"other"}', command)
    )


# -------------------------------------------------------------------------------- what is written


@every
def test_where_there_is_no_file_it_is_made_with_our_entry_alone(desk: Desk, host: str, scope: str) -> None:
    done = desk.install(host, scope, "--yes")

    file = desk.file(host, scope)
    assert done.code == 0, done.err
    entry = desk.entry(host, scope)
    assert list(servers(host, file.read_text())) == ["orchard"]
    assert Path(entry["command"]).is_absolute() and os.access(entry["command"], os.X_OK)
    assert entry["args"][0] == "mcp"
    assert stat.S_IMODE(file.stat().st_mode) == (0o644 if scope == "project" else 0o600)
    assert str(file) in done.out and HOSTS[host] in done.out and "next: " in done.out
    assert "+++ " in done.err, "the change is shown"


def test_each_host_is_told_what_it_understands(desk: Desk) -> None:
    for host, scope in ALL:
        desk.install(host, scope, "--yes")

    claude, cursor = desk.entry("claude", "project"), desk.entry("cursor", "project")
    assert claude == desk.entry("copilot", "project") and claude["type"] == "stdio"
    assert desk.entry("copilot", "user") == {**claude, "type": "local", "tools": ["*"]}
    assert desk.entry("vscode", "project") == {**claude, "cwd": "${workspaceFolder}"}
    assert cursor["args"] == [*claude["args"], "--repo", "${workspaceFolder}"]
    codex = desk.entry("codex", "user")
    assert codex["tool_timeout_sec"] > 45 and codex["startup_timeout_sec"] > 10 and "type" not in codex
    plain = {"command": claude["command"], "args": claude["args"]}
    for host in ("gemini", "qwen", "zed", "jetbrains"):
        assert desk.entry(host, "project") == desk.entry(host, "user") == plain
    for host in ("windsurf", "claude-desktop"):
        assert desk.entry(host, "user") == {**plain, "args": [*claude["args"], "--repo", str(desk.repo)]}
    whole = [claude["command"], *claude["args"]]
    raw = servers("opencode", desk.file("opencode", "project").read_text())["orchard"]
    assert raw == {"type": "local", "command": whole, "enabled": True}


@pytest.mark.parametrize("host", ["windsurf", "claude-desktop"])
def test_a_host_without_a_file_in_projects_says_so_and_needs_a_repository_to_serve(
    desk: Desk, host: str, tmp_path: Path
) -> None:
    (tmp_path / "plain").mkdir()
    before = desk.everything()

    project = desk.install(host, "project", "--yes")
    outside = desk.run("-C", str(tmp_path / "plain"), "mcp", "install", "--host", host, "--scope", "user", "--yes")

    assert project.code == 2 and "--scope user" in project.err
    assert outside.code != 0 and "error: " in outside.err
    assert desk.everything() == before


@every
def test_what_others_have_in_the_file_stays_and_a_copy_is_kept(desk: Desk, host: str, scope: str) -> None:
    file = desk.write(host, scope, others(host))

    done = desk.install(host, scope, "--yes", "--json")

    assert done.code == 0, done.err
    found = servers(host, file.read_text())
    assert list(found) == ["other", "orchard"] and found["other"] == {"command": "other"}
    assert host == "codex" or '"more": [1.50]\n}\n' in file.read_text()
    backup = Path(done.json["backup"])
    assert backup.parent == file.parent and backup.read_text() == others(host)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (file, backup)} == {0o640}
    assert [path for path in file.parent.iterdir() if ".orchard-" in path.name] == [backup]


@every
def test_the_second_time_nothing_is_done(desk: Desk, host: str, scope: str) -> None:
    desk.write(host, scope, others(host))
    desk.install(host, scope, "--yes")
    before = desk.everything()

    done = desk.install(host, scope)

    assert done.code == 0 and "already" in done.out
    assert desk.everything() == before


@every
def test_another_entry_of_that_name_is_replaced_only_when_that_is_said(desk: Desk, host: str, scope: str) -> None:
    text = with_ours(host, '"mine"}')
    file = desk.write(host, scope, text)

    refused = desk.install(host, scope, "--yes")
    untouched = file.read_text()
    replaced = desk.run(*shlex.split(refused.err.splitlines()[-1].removeprefix("hint: orchard ")))

    assert refused.code == 4 and "another entry 'orchard'" in refused.err and untouched == text
    assert replaced.code == 0, replaced.err
    assert desk.entry(host, scope)["args"][0] == "mcp"
    assert file.with_name(f"{file.name}.orchard-backup").read_text() == text


@every
def test_a_broken_file_is_left_alone_and_what_to_paste_is_named(desk: Desk, host: str, scope: str) -> None:
    file = desk.write(host, scope, others(host).replace("[", "[["))
    before = desk.everything()

    done = desk.install(host, scope, "--yes", "--replace")
    shown = desk.run(*shlex.split(done.err.splitlines()[-1].partition("orchard ")[2]))

    assert done.code == 2 and "left as it is" in done.err
    assert desk.everything() == before
    assert shown.code == 0 and str(file) in shown.err and "orchard" in shown.out


@every
def test_comments_stay_where_the_host_reads_them_and_are_refused_where_not(desk: Desk, host: str, scope: str) -> None:
    mark = "#" if host == "codex" else "//"
    text = f"{mark} one\n{others(host)}{mark} two\n"
    file = desk.write(host, scope, text)

    done = desk.install(host, scope, "--yes")

    reading = ("vscode", "cursor", "codex", "gemini", "qwen", "opencode", "zed")
    if host in reading or (host, scope) == ("copilot", "user"):
        assert done.code == 0, done.err
        assert f"{mark} one\n" in file.read_text() and f"{mark} two\n" in file.read_text()
        assert desk.entry(host, scope)
    else:
        assert done.code == 2 and file.read_text() == text


@every
def test_a_link_that_leads_outside_is_refused(desk: Desk, host: str, scope: str, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text(others(host))
    file = desk.file(host, scope)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.symlink_to(target)

    done = desk.install(host, scope, "--yes", "--replace")

    assert done.code == 2 and f"is a link that leads to '{target}'" in done.err
    assert target.read_text() == others(host) and file.is_symlink()


@every
def test_a_read_only_file_is_left_alone(desk: Desk, host: str, scope: str) -> None:
    file = desk.write(host, scope, others(host), 0o444)
    before = desk.everything()

    done = desk.install(host, scope, "--yes")

    assert done.code == 2 and "read-only" in done.err
    assert desk.everything() == before and stat.S_IMODE(file.stat().st_mode) == 0o444


@every
def test_where_nobody_can_be_asked_it_needs_a_yes_and_says_which_command(desk: Desk, host: str, scope: str) -> None:
    before = desk.everything()

    asked = desk.install(host, scope, "--toolsets", "core,jobs", "--read-only", "--name", "plans")
    nothing = desk.everything()
    done = desk.run(*shlex.split(asked.err.splitlines()[-1].removeprefix("hint: orchard ")))

    assert asked.code == 4 and nothing == before
    assert "+++ " in asked.err, "what would change is shown"
    assert done.code == 0, done.err
    assert {"--toolsets", "core,jobs", "--read-only"} <= set(desk.entry(host, scope, "plans")["args"])


@every
def test_print_writes_nothing_and_shows_what_belongs_where(desk: Desk, host: str, scope: str) -> None:
    before = desk.everything()

    shown = desk.install(host, scope, "--print")
    document = desk.install(host, scope, "--print", "--json").json

    assert shown.code == 0 and desk.everything() == before
    assert str(desk.file(host, scope)) in shown.err
    assert servers(host, shown.out) == {"orchard": document["entry"]}


@every
def test_uninstall_takes_out_what_install_put_in(desk: Desk, host: str, scope: str) -> None:
    file = desk.write(host, scope, others(host))
    desk.install(host, scope, "--yes")

    asked = desk.uninstall(host, scope)
    done = desk.uninstall(host, scope, "--yes")
    again = desk.uninstall(host, scope)

    assert asked.code == 4 and "--yes" in asked.err
    assert done.code == 0, done.err
    assert file.read_text() == others(host)
    assert again.code == 0 and "no entry" in again.out


@every
def test_uninstall_removes_a_file_that_holds_nothing_else(desk: Desk, host: str, scope: str) -> None:
    before = desk.everything()
    desk.install(host, scope, "--yes")

    done = desk.uninstall(host, scope, "--yes")

    assert done.code == 0 and "removed" in done.out
    assert desk.everything() == before


@every
def test_uninstall_leaves_an_entry_that_does_not_start_us(desk: Desk, host: str, scope: str) -> None:
    text = with_ours(host, '"mine"}')
    file = desk.write(host, scope, text)

    refused = desk.uninstall(host, scope, "--yes")
    left = file.read_text()
    done = desk.uninstall(host, scope, "--yes", "--force")

    assert refused.code == 4 and "does not start Orchard" in refused.err and left == text
    assert done.code == 0 and "orchard" not in servers(host, file.read_text())


# ------------------------------------------------------------------------------------ odd places


def test_a_link_inside_is_followed_and_stays_a_link(desk: Desk) -> None:
    real = desk.write("claude", "user", others("claude"))
    moved = desk.home / "dotfiles.json"
    real.rename(moved)
    real.symlink_to(moved)

    done = desk.install("claude", "user", "--yes")

    assert done.code == 0, done.err
    assert real.is_symlink() and json.loads(moved.read_text())["mcpServers"]["orchard"]
    assert moved.with_name("dotfiles.json.orchard-backup").read_text() == others("claude")


@pytest.mark.parametrize("target", ["nowhere.json", ".git/config", ".git/own.json", ".git/new.json", "../outside.json"])
def test_links_that_a_repository_may_bring_are_refused(desk: Desk, target: str) -> None:
    (desk.repo / ".git" / "own.json").write_text("{}")
    (desk.repo / ".mcp.json").symlink_to(target)
    before = {path: path.read_bytes() for path in (desk.repo / ".git").iterdir() if path.is_file()}

    done = desk.install("claude", "project", "--yes")

    assert done.code == 2 and "is a link that leads " in done.err
    assert {path: path.read_bytes() for path in (desk.repo / ".git").iterdir() if path.is_file()} == before
    assert not (desk.repo / "nowhere.json").exists() and not (desk.repo.parent / "outside.json").exists()


def test_a_folder_that_is_a_link_is_refused(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (desk.repo / ".codex").symlink_to(tmp_path / "elsewhere")

    done = desk.install("codex", "project", "--yes")

    assert done.code == 2 and list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_that_may_not_be_written_is_a_sentence(desk: Desk) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (desk.repo / ".codex").mkdir(mode=0o500)

    done = desk.install("codex", "project", "--yes")

    assert done.code == 1 and "cannot be written" in done.err


def test_a_file_of_another_user_is_left_alone(desk: Desk) -> None:
    file = desk.write("claude", "project", others("claude"))
    try:
        os.chown(file, 12345, -1)
    except OSError:
        pytest.skip("only root can give a file away")

    done = desk.install("claude", "project", "--yes")

    assert done.code == 2 and "belongs to user 12345" in done.err
    assert file.stat().st_uid == 12345 and file.read_text() == others("claude")


def test_a_bare_repository_has_no_project_file(desk: Desk, tmp_path: Path) -> None:
    Repo(desk.repo)("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))

    done = desk.run("-C", str(tmp_path / "bare.git"), "mcp", "install", "--host", "claude", "--yes")

    assert done.code == 2 and "--scope user" in done.err


def test_outside_a_repository_only_the_user_s_file_can_be_written(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    words = ["-C", str(tmp_path / "plain"), "mcp", "install", "--host", "codex", "--yes"]

    project, user = desk.run(*words), desk.run(*words, "--scope", "user")

    assert project.code != 0 and "error: " in project.err and list((tmp_path / "plain").iterdir()) == []
    assert user.code == 0, user.err


@pytest.mark.parametrize(
    ("host", "variable", "name"),
    [
        ("claude", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("copilot", "COPILOT_HOME", "mcp-config.json"),
        ("codex", "CODEX_HOME", "config.toml"),
    ],
)
def test_the_variables_of_the_hosts_are_heard(
    desk: Desk, host: str, variable: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "own"))
    done = desk.install(host, "user", "--yes")
    monkeypatch.setenv(variable, "own")
    relative = desk.install(host, "user", "--yes")

    assert done.code == 0, done.err
    assert [path.name for path in (tmp_path / "own").iterdir()] == [name]
    assert relative.code == 2 and variable in relative.err


# -------------------------------------------------------------------------------- care with files


def test_a_copy_that_was_kept_is_never_overwritten_and_the_same_is_not_kept_twice(desk: Desk) -> None:
    file = desk.write("claude", "project", others("claude"))
    for more in ((), ("--read-only",), ("--toolsets", "all"), ()):
        assert desk.install("claude", "project", "--yes", "--replace", *more).code == 0
    desk.uninstall("claude", "project", "--yes")
    desk.install("claude", "project", "--yes")

    names = sorted(path.name for path in file.parent.iterdir() if "backup" in path.name)

    assert names == [f".mcp.json.orchard-backup{end}" for end in ("", "-2", "-3", "-4", "-5")][: len(names)]
    assert (file.parent / names[0]).read_text() == others("claude")
    assert len({(file.parent / name).read_bytes() for name in names}) == len(names) == 4


def test_secrets_of_other_servers_are_not_shown(desk: Desk) -> None:
    key = "sk-" + "ant-api03-" + "x" * 40
    text = json.dumps({"mcpServers": {"a": {"env": {"A": key}, "MY_TOKEN": "hunter2"}}}, indent=2)
    file = desk.write("claude", "user", text)

    done = desk.install("claude", "user", "--yes")

    assert done.code == 0 and "hunter2" in file.read_text()
    assert "MY_TOKEN" in done.err and "hunter2" not in done.err and key not in done.err


# --------------------------------------------------------------------------------------- choices


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host", "emacs"], "emacs"),
        ([], "--host"),
        (["--host", "claude", "--scope", "world"], "world"),
        (["--host", "claude", "--name", "a.b"], "letters"),
        (["--host", "claude", "--name", ""], "letters"),
        (["--host", "claude", "--name", "x" * 33], "32"),
        (["--host", "codex", "--name", 'a"]\n[evil'], "letters"),
        (["--host", "claude", "--toolsets", "cor"], "did you mean 'core'?"),
        (["--host", "claude", "--toolsets", " , "], "names none"),
    ],
)
def test_bad_words_are_refused_before_anything_is_read(desk: Desk, words: list[str], says: str) -> None:
    before = desk.everything()

    done = desk.run("mcp", "install", "--yes", *words)

    assert done.code == 2 and says in done.err and done.out == ""
    assert desk.everything() == before


def test_a_portable_entry_names_no_path(desk: Desk) -> None:
    done = desk.install("claude", "project", "--yes", "--portable")

    assert desk.entry("claude", "project")["command"] == "orchard"
    assert "PATH" in done.out and "path of this machine" not in done.out


def test_a_repositorys_file_is_portable_where_the_path_has_orchard_and_a_users_file_is_not(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orchard").touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    done = desk.install("claude", "project", "--yes")
    desk.install("claude", "user", "--yes")
    desk.install("vscode", "project", "--yes", "--absolute")

    assert desk.entry("claude", "project")["command"] == "orchard" and "path of this machine" not in done.out
    by_path = [desk.entry("claude", "user")["command"], desk.entry("vscode", "project")["command"]]
    assert all(Path(command).is_absolute() for command in by_path)


def test_without_an_installed_script_python_is_named_and_that_is_said(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))

    done = desk.install("claude", "project", "--yes")
    taken_out = desk.uninstall("claude", "project", "--yes")

    assert "no 'orchard' was installed" in done.out and f"{tmp_path}/python3 -m orchard mcp" in done.out
    assert taken_out.code == 0


def test_what_the_server_says_first_is_written_down(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchard.surfaces.mcp.server.sessions._RECORDED", set())

    desk.install("claude", "project", "--yes", "--toolsets", "core, jobs", "--read-only")

    assert read_greeting(Selection.from_names(["core", "jobs"], read_only=True)) is not None
    assert read_greeting(Selection.from_names()) is None


def test_the_group_tells_its_commands_and_near_names(desk: Desk) -> None:
    shown, near, alone = desk.run("mcp", "--help"), desk.run("mcp", "instal"), desk.run("skill")

    assert "install" in shown.out and "uninstall" in shown.out
    assert near.code == 2 and "Did you mean 'install'?" in near.err
    assert alone.code == 2 and "Missing command" in alone.err


# -------------------------------------------------------------------------------------- a person


def on_a_terminal(desk: Desk, answer: bytes, *words: str) -> tuple[int, str]:
    """Run the real program with a person who answers its question."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "orchard", "-C", str(desk.repo), *words]
    running = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while select.select([ours], [], [], SECONDS)[0]:
            shown += os.read(ours, 65536)
            if shown.endswith(b"[y/N] "):
                os.write(ours, answer)
    except OSError:  # the other end was closed
        pass
    os.close(ours)
    return running.wait(SECONDS), shown.decode(errors="replace")


def test_a_person_sees_the_change_and_decides(desk: Desk) -> None:
    file = desk.write("claude", "project", with_ours("claude", '"mine"}'))
    words = ["mcp", "install", "--host", "claude"]

    no, shown = on_a_terminal(desk, b"n\n", *words)
    before = file.read_text()
    yes, _ = on_a_terminal(desk, b"y\n", *words)

    assert no == 4 and before == with_ours("claude", '"mine"}')
    assert "Replace the entry 'orchard'" in shown and '"command": "mine"' in shown
    assert yes == 0 and desk.entry("claude", "project")["args"] == ["mcp"]
