"""The user's git behind a wall: names, aliases, filters and what is ignored are there, and no secret is."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from orchard.engine.machine.git_settings import HARMLESS, git_settings
from orchard.git.objects import large
from orchard.git.repository import find_repository
from orchard.testing import Repo
from tests.engine.conftest import Orchard, job
from tests.engine.test_own_home import put
from tests.engine.test_sandbox import LEVELS, plan
from tests.engine.test_sandbox import home as home
from tests.engine.test_sandbox import level as level

TOKEN = "ghp_0123456789abcdefghij0123456789"
CONFIG = f"""
[user]
    name = The User
    email = user@example.com
    signingkey = ABCDEF
[commit]
    gpgSign = false
[alias]
    last = log -1 --format=%s
    push-it = "!curl -H 'Authorization: Bearer {TOKEN}' https://example.com"
    quoted = "log -1 --format=\\"a%x09b\\""
[core]
    excludesFile = ~/.ignored
    hooksPath = ~/hooks
    pager = less
[filter "upper"]
    clean = rev --
    smudge = rev --
    required
[filter "gone"]
    clean = no-such-program --clean
    required = true
[filter "hidden"]
    clean = ~/tools/filter
    required = true
[merge]
    conflictStyle = diff3
[diff "words"]
    xfuncname = "^(def .*)$"
[diff]
    external = no-such-program
[init]
    defaultBranch = trunk
[credential]
    helper = store
[credential "https://example.com"]
    username = me
[http "https://example.com/"]
    extraHeader = "Authorization: Basic c2VjcmV0c2VjcmV0"
[url "https://me:{TOKEN}@github.com/"]
    insteadOf = https://github.com/
[url "https://mirror.example.com/"]
    insteadOf = https://far.example.com/
[include]
    path = ~/more.gitconfig
"""


@pytest.fixture
def user(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    put(home / ".gitconfig", CONFIG)
    put(home / "more.gitconfig", "[alias]\n\tmore = status --short\n[sendemail]\n\tsmtpPass = hunter2\n")
    put(home / ".ignored", "*.secret-note\n")
    put(home / "tools/filter", "#!/bin/sh\ncat\n", 0o755)
    return home


@pytest.mark.anyio
async def test_a_job_s_git_knows_the_user_s_aliases_filters_and_excludes(
    orchard: Orchard, user: Path, level: str
) -> None:
    orchard.repo.commit({".gitattributes": "*.up filter=upper\n*.gone filter=gone\n*.hidden filter=hidden\n"})
    used = """
        git last > said.txt; git quoted >> said.txt; git more; git config --global user.name >> said.txt
        git config merge.conflictStyle >> said.txt
        echo x > a.secret-note; git status --short >> said.txt
        for name in up gone hidden; do echo abc > a.$name; done
        git add . && git show :a.up :a.gone :a.hidden >> said.txt
        git config --global user.name Other && git config --global user.name >> said.txt
        rm -f a.gone a.hidden; git commit -qm mine
    """

    status = await orchard.run(plan(used))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    lines = orchard.repo.files("work")["said.txt"].splitlines()
    assert lines[1:4] == ["a\tb", "Ada Tester", "diff3"]
    assert [line for line in lines[4:] if "secret-note" in line] == []
    assert lines[-4:] == ["cba", "abc", "abc", "Other"]
    assert (user / ".gitconfig").read_text() == CONFIG


def settings_of(repo: Repo, user: Path) -> str:
    env = {"HOME": str(user), "PATH": os.environ["PATH"]}
    opened = find_repository(repo.path)
    found = git_settings(opened, ("The User", "user@example.com"), env, lambda path: not path.is_relative_to(user))
    home = user.parent / "own"
    home.mkdir()
    found.lay(home)
    return (home / ".gitconfig").read_text()


def test_no_secret_and_nothing_that_a_job_cannot_use_is_copied(orchard: Orchard, user: Path) -> None:
    copied = settings_of(orchard.repo, user)

    for word in (TOKEN, "Basic", "hunter2", "store", "me:", "ABCDEF", "gpgsign", "hooks", "less", "no-such-program",
                 "tools/filter", "push-it", "include", "mirror.example.com"):  # fmt: skip
        assert word.lower() not in copied.lower(), word
    assert (
        "trunk" in copied
        and "required" in copied
        and (user.parent / "own/.config/git/ignore").read_text() == "*.secret-note\n"
    )


@pytest.mark.parametrize(
    "key",
    [
        "credential.helper", "credential.https://x.helper", "http.extraheader", "http.https://x/.extraheader",
        "http.proxy", "http.sslkey", "url.https://a:b@x/.insteadof", "url.https://token@x/.insteadof",
        "url.ssh://git@x/.insteadof", "url.https://x/token/.insteadof",
        "include.path", "includeif.gitdir:~/x/.path", "core.hookspath", "core.sshcommand",
        "core.askpass", "core.editor", "core.fsmonitor", "core.pager", "user.signingkey", "gpg.program",
        "gpg.ssh.allowedsignersfile", "commit.gpgsign", "sendemail.smtppass", "github.token", "lfs.url",
        "diff.external",
        "merge.tool", "mergetool.x.cmd", "diff.x.command", "core.worktree", "remote.origin.url", "safe.directory",
    ],
)  # fmt: skip
def test_a_key_that_may_hold_a_secret_or_run_something_is_not_on_the_list(key: str) -> None:
    assert HARMLESS.fullmatch(key) is None


@pytest.mark.parametrize(
    "row",
    [
        "[alias]\n x = !git fetch -k hunter2", "[alias]\n x = \" !echo hunter2\"",
        "[alias]\n x = -c http.extraHeader=hunter2 fetch", "[alias]\n x = clone --config http.extraHeader='X: hunter2'",
        "[alias]\n x = fetch https://example.com/hunter2/x", "[alias]\n x = clone -chttp.extraHeader=hunter2",
        "[filter \"x\"]\n clean = cat -k hunter2", "[filter \"x\"]\n clean = cat -khunter2",
        "[filter \"x\"]\n clean = cat --key=hunter2", "[filter \"x\"]\n smudge = openssl enc -pass pass:hunter2",
        "[filter \"x\"]\n process = cat -H 'X-Key: hunter2'", "[filter \"x\"]\n clean = KEY=hunter2 cat",
        "[filter \"x\"]\n clean = \"cat; : hunter2\"", "[filter \"x\"]\n clean = cat\n smudge = cat -u me:hunter2",
        "[merge \"x\"]\n driver = cat %O %A hunter2", "[diff \"x\"]\n textconv = cat hunter2",
        "[url \"https://example.com/hunter2/\"]\n insteadOf = https://example.com/",
    ],
)  # fmt: skip
def test_a_secret_that_does_not_look_like_one_is_not_copied(orchard: Orchard, user: Path, row: str) -> None:
    put(user / ".gitconfig", f'{row}\n[filter "y"]\n clean = cat -- %f\n process = cat -u -s\n')

    copied = settings_of(orchard.repo, user)

    assert "hunter2" not in copied and '"x"' not in copied and "\tx =" not in copied, copied
    assert "cat -- %f" in copied and "cat -u -s" in copied


LFS = r"""#!/usr/bin/python3
import hashlib, os, subprocess, sys
common = subprocess.run(["git", "rev-parse", "--path-format=absolute", "--git-common-dir"], capture_output=True,
                        text=True, check=True).stdout.strip()
data = sys.stdin.buffer.read()
def at(top, name): return os.path.join(top, "objects", name[:2], name[2:4], name)
if sys.argv[1] == "clean":
    name = hashlib.sha256(data).hexdigest()
    path = at(common + "/lfs", name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(data)
    sys.stdout.write("oid " + name + "\n")
else:
    name = data.split()[1].decode()
    line = open(common + "/objects/info/alternates").readline().strip() if os.path.exists(
        common + "/objects/info/alternates") else common + "/objects"
    tops = (common + "/lfs", os.path.dirname(line) + "/lfs")
    found = next(path for path in (at(top, name) for top in tops) if os.path.exists(path))
    sys.stdout.buffer.write(open(found, "rb").read())
"""
"""Keeps content as git LFS does, and finds it where that does."""


@pytest.fixture
def with_lfs(orchard: Orchard, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put(home / ".local/bin/git-lfs", LFS, 0o755)
    monkeypatch.setenv("PATH", f"{home}/.local/bin:{os.environ['PATH']}")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    filters = {"clean": "git-lfs clean", "smudge": "git-lfs smudge", "required": "true"}
    put(home / ".gitconfig", '[filter "lfs"]\n' + "".join(f"\t{key} = {value}\n" for key, value in filters.items()))
    orchard.repo.write({".gitattributes": "*.big filter=lfs\n", "old.big": "old content\n"})
    flags = [word for key, value in filters.items() for word in ("-c", f"filter.lfs.{key}={value}")]
    orchard.repo(*flags, "add", ".")
    orchard.repo(*flags, "commit", "-qm", "large")
    return orchard.repo.path / ".git/lfs"


@pytest.mark.anyio
@pytest.mark.skipif("bwrap" not in LEVELS, reason="Landlock has no mounts")
async def test_large_files_that_a_job_commits_come_to_the_repository(
    orchard: Orchard, with_lfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", "bwrap")
    old = hashlib.sha256(b"old content\n").hexdigest()
    kept = with_lfs / "objects" / old[:2] / old[2:4] / old
    assert kept.read_text() == "old content\n"
    used = f"""
        rm old.big; git checkout -- old.big; cat old.big > said.txt
        echo new content > new.big; git add new.big; git commit -qm mine; git show HEAD:new.big >> said.txt
        dir=$(git rev-parse --path-format=absolute --git-common-dir)
        rm -rf $dir/lfs/objects/{old[:2]}; mkdir -p $dir/lfs/objects/aa/aa; echo lie > $dir/lfs/objects/aa/aa/{"a" * 64}
    """

    status = await orchard.run(plan(used))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    new = hashlib.sha256(b"new content\n").hexdigest()
    assert orchard.repo("show", "work:said.txt") == f"old content\noid {new}\n"
    assert (with_lfs / "objects" / new[:2] / new[2:4] / new).read_text() == "new content\n"
    assert kept.read_text() == "old content\n" and not (with_lfs / "objects/aa").exists()
    assert [warning for warning in status["plan"]["warnings"] if "not what its name says" in warning]
    assert not list((orchard.repo.path / ".git/orchard/jobs").iterdir())


@pytest.mark.anyio
@pytest.mark.skipif("landlock" not in LEVELS, reason="this kernel has no Landlock")
async def test_without_mounts_a_job_s_git_does_without_large_files(
    orchard: Orchard, with_lfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", "landlock")

    status = await orchard.run(
        plan("echo new > new.big && git add new.big && git commit -qm mine && cat old.big > said.txt")
    )

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert orchard.repo("show", "work:said.txt") == "old content\n"


def test_content_is_brought_in_only_under_its_own_name_and_through_no_link(tmp_path: Path) -> None:
    kept, folder, other = tmp_path / "kept", tmp_path / "folder", tmp_path / "other"
    name = hashlib.sha256(b"x").hexdigest()
    for top in (kept, other / name[2:4]):
        top.mkdir(parents=True)
    (other / name[2:4] / name).write_bytes(b"x")
    (folder / "objects").mkdir(parents=True)
    (folder / "objects" / name[:2]).symlink_to(other)

    assert large.is_empty(folder) and large.bring_in(kept, folder) == []

    put(folder / "objects/bb/bb" / ("b" * 64), "lie")
    (folder / "objects" / name[:2]).unlink()
    put(folder / "objects" / name[:2] / name[2:4] / name, "x")
    assert large.bring_in(kept, folder) == ["b" * 64] and large.is_empty(folder)
    assert [path.name for path in kept.rglob("*") if path.is_file()] == [name]


def test_a_large_file_is_taken_away_through_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is read, a program of the job that still runs puts the repository's own folder in its place."""
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    name = hashlib.sha256(b"content").hexdigest()
    place = folder / "objects" / name[:2] / name[2:4]
    place.mkdir(parents=True)
    (place / name).write_bytes(b"content")
    (kept / "tmp").mkdir(parents=True)
    copied = large._copied

    def swapped(*args: Any) -> bool:
        done = copied(*args)
        place.rename(tmp_path / "gone")
        place.symlink_to(kept / "objects" / name[:2] / name[2:4])
        return done

    monkeypatch.setattr(large, "_copied", swapped)

    assert large.bring_in(kept, folder) == []
    assert (kept / "objects" / name[:2] / name[2:4] / name).read_bytes() == b"content"
    assert not (tmp_path / "gone" / name).exists()


def test_a_large_file_of_holes_or_above_the_limit_is_refused_unread(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    kept.mkdir()
    length = 64 << 20
    holes = hashlib.sha256(bytes(length)).hexdigest()
    long = hashlib.sha256(b"0123456789").hexdigest()
    put(folder / "objects" / holes[:2] / holes[2:4] / holes, "")
    os.truncate(folder / "objects" / holes[:2] / holes[2:4] / holes, length)
    assert large.bring_in(kept, folder) == [holes]

    for most, refused in ((9, [long]), (10, [])):
        put(folder / "objects" / long[:2] / long[2:4] / long, "0123456789")
        assert large.bring_in(kept, folder, most) == refused
    assert [path.name for path in kept.rglob("*") if path.is_file()] == [long]
