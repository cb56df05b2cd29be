"""Plans whose programs stand behind a wall: they do their work, reach nothing else, and what they did lands."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.engine.server.session import Session
from orchard.model.events.plans import PlanStarted, SandboxRefused
from orchard.model.plan import PlanId
from orchard.process.sandbox.level import walls
from orchard.testing import Repo
from tests.engine.conftest import Orchard, job, until

pytestmark = pytest.mark.anyio

LEVELS = [finding.level for finding in walls().findings if finding.works]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ORCHARD_SANDBOX", request.param)
    return str(request.param)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder, with a secret in it."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_text("the secret\n")
    monkeypatch.setenv("HOME", str(home))
    return home


def plan(command: str, more: str = "") -> str:
    body = "\n".join(f"      {line}" for line in command.strip().splitlines())
    return f"name: n\n{more}\njobs:\n  - id: a\n    work: |\n{body}\n"


async def test_work_behind_a_wall_lands(orchard: Orchard, level: str) -> None:
    status = await orchard.run(plan("echo one > one.txt; echo $HOME > home.txt"))

    assert status["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["one.txt"] == "one\n"
    (started,) = orchard.events(PlanStarted)
    assert started.sandbox == status["plan"]["sandbox"] == level


async def test_the_home_other_folders_and_our_own_state_are_not_there(
    orchard: Orchard, home: Path, level: str, tmp_path: Path
) -> None:
    (tmp_path / "outside.txt").write_text("private\n")
    tried = f"""
        cat {home}/.ssh/id_ed25519 {tmp_path}/outside.txt > read.txt 2>/dev/null
        cat {orchard.repo.path}/README.md >> read.txt 2>/dev/null
        cat {orchard.repo.path}/.git/orchard/journal.db >> read.txt 2>/dev/null
        echo x > {home}/planted; echo x > {tmp_path}/planted; echo x > {orchard.repo.path}/planted
        echo x > /tmp/planted-by-a-job; echo x > /var/tmp/planted-by-a-job
        true
    """
    status = await orchard.run(plan(tried))

    assert status["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["read.txt"] == ""
    places = (home, tmp_path, orchard.repo.path)
    assert not [place for place in places if (place / "planted").exists()]
    assert not Path("/tmp/planted-by-a-job").exists() and not Path("/var/tmp/planted-by-a-job").exists()


async def test_a_job_uses_git_and_its_commits_are_part_of_its_result(orchard: Orchard, level: str) -> None:
    own = """
        git status --short
        echo one > one.txt; git add one.txt; git commit -qm mine; git log --oneline | wc -l > count.txt
        echo two > staged.txt; git add staged.txt; echo changed > staged.txt; git diff --stat
    """
    status = await orchard.run(plan(own))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    files = orchard.repo.files("work")
    assert (files["one.txt"], files["count.txt"].strip(), files["staged.txt"]) == ("one\n", "2", "changed\n")
    assert "no part of its result" not in str(status["plan"]["warnings"])
    orchard.repo("fsck", "--strict")
    assert not list((orchard.repo.path / ".git/orchard/jobs").iterdir())


async def test_refs_settings_hooks_and_objects_of_the_repository_stay_as_they_are(orchard: Orchard, level: str) -> None:
    git = orchard.repo.path / ".git"
    before = {path: path.read_bytes() for path in (git / "config", git / "HEAD", git / "refs/heads/work")}
    tried = """
        dir=$(git rev-parse --path-format=absolute --git-common-dir)
        git branch evil; git update-ref refs/heads/work HEAD~1; git config user.name evil; git tag evil
        echo evil > $dir/hooks/post-checkout; chmod +x $dir/hooks/post-checkout
        rm -rf $dir/objects/pack $dir/objects/??; echo evil >> $dir/config; echo evil > $dir/info/attributes
        echo evil > $dir/objects/info/alternates
        echo fine > fine.txt
    """
    status = await orchard.run(plan(tried, "land: never"))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert {path: path.read_bytes() for path in before} == before
    assert not (git / "hooks/post-checkout").exists() and not (git / "objects/info/alternates").exists()
    assert "evil" not in orchard.repo("for-each-ref")
    orchard.repo("fsck", "--strict")


async def test_evidence_of_work_without_changes_is_heard(orchard: Orchard, level: str) -> None:
    status = await orchard.run(
        plan("""echo '{"summary": "nothing had to change", "type": "analysis"}' > $ORCHARD_EVIDENCE""")
    )

    assert status["plan"]["status"] == "succeeded", job(status, "a")


async def test_a_check_setup_and_verify_stand_behind_the_same_wall(orchard: Orchard, home: Path, level: str) -> None:
    look = f"! cat {home}/.ssh/id_ed25519 2>/dev/null"
    more = f"setup: '{look}'\nverify: '{look}'"
    row = f"jobs:\n  - {{id: a, prechecks: '{look}', work: 'echo > a', postchecks: '{look}'}}"

    status = await orchard.run(f"name: n\n{more}\n{row}\n")

    assert status["plan"]["status"] == "succeeded", status["jobs"]


@pytest.fixture
def local_server() -> Iterator[tuple[int, list[bytes]]]:
    """A server on this machine that jobs must not reach, and what it heard."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(100))
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1], heard


THROUGH = (
    "import base64, http.client as h, os, urllib.parse as p; u = p.urlsplit(os.environ['HTTP_PROXY']); "
    "who = base64.b64encode('{{}}:{{}}'.format(u.username, u.password).encode()).decode(); "
    "c = h.HTTPConnection(u.hostname, u.port); "
    "c.request('GET', 'http://127.0.0.1:{port}/', headers=dict([('Proxy-Authorization', 'Basic ' + who)])); "
    "assert c.getresponse().status == 200"
)
"""Asks for a port of this machine by the way out, and not beside it."""
ASK = "import os, urllib.request as r; print(r.urlopen('http://{host}:{port}/', timeout=5).read())"


async def test_no_program_reaches_this_machine_and_the_refusal_says_what_would_open_it(
    orchard: Orchard, level: str, local_server: tuple[int, list[bytes]]
) -> None:
    port, heard = local_server
    direct = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2).sendall(b'direct')"
    asked = THROUGH.format(port=port)
    work = f"""
        python3 -c "{direct}" && echo direct > reached.txt
        python3 -c "{asked}" && echo proxy >> reached.txt
        echo done > done.txt
    """
    status = await orchard.run(plan(work))

    assert status["plan"]["status"] == "succeeded"
    assert not heard and "reached.txt" not in orchard.repo.files("work")
    (refused,) = orchard.events(SandboxRefused)
    assert (refused.kind, refused.name, refused.reason) == ("network", f"127.0.0.1:{port}", "loopback")
    assert refused.setting == f'sandbox.allow = ["127.0.0.1:{port}"]'
    (shown,) = orchard.attempts("a")[0]["refused"]
    assert (shown["name"], shown["phase"]) == (f"127.0.0.1:{port}", "work")


async def test_what_the_user_s_settings_name_is_reached(
    orchard: Orchard, level: str, local_server: tuple[int, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, heard = local_server
    monkeypatch.setenv("ORCHARD_SANDBOX_ALLOW", f"127.0.0.1:{port}")
    asked = THROUGH.format(port=port)

    status = await orchard.run(plan(f'python3 -c "{asked}" && echo > reached.txt'))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert len(heard) == 1 and not orchard.events(SandboxRefused)


@pytest.mark.parametrize("where", ["network: off", "job"])
async def test_without_network_there_is_not_even_a_way_out(
    orchard: Orchard, level: str, where: str, local_server: tuple[int, list[bytes]]
) -> None:
    port, heard = local_server
    row = "    network: off\n" if where == "job" else ""
    text = plan(f"env | grep -ci proxy > proxies.txt; {ASK.format(host='127.0.0.1', port=port)!r}; true", "")
    text = text.replace("    work:", f"{row}    work:") if row else f"{where}\n{text}"

    status = await orchard.run(text)

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert orchard.repo.files("work")["proxies.txt"] == "0\n" and not heard


async def test_a_failed_attempt_goes_on_with_what_its_git_wrote(orchard: Orchard, level: str) -> None:
    first = """
        test -e one.txt || { echo one > one.txt; git add one.txt; git commit -qm mine; exit 3; }
        git log -1 --format=%s > said.txt
    """
    failed = await orchard.run(plan(first))
    assert failed["plan"]["status"] == "failed"
    assert Repo(Path(orchard.attempts("a")[0]["worktree"]))("log", "-1", "--format=%s") == "mine\n"

    status = await orchard.ask("retry_plan", keep=True)

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert orchard.repo.files("work")["said.txt"] == "mine\n"


async def test_a_plan_does_not_start_where_its_wall_cannot_be_had(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchard.process.sandbox import level as levels

    missing = levels.Finding("bwrap", False, "The program 'bwrap' is not installed.")
    monkeypatch.setattr(levels, "found", lambda level: replace(missing, level=level))
    monkeypatch.setenv("ORCHARD_SANDBOX", "auto")

    status = await orchard.run(plan("touch ran"))

    assert status["plan"]["status"] == "waiting"
    assert "No wall can be put around programs" in status["plan"]["paused"]
    assert not job(status, "a")["started_at"]


async def test_a_plan_may_ask_for_a_wall_where_the_settings_have_none(orchard: Orchard, home: Path) -> None:
    status = await orchard.run(plan(f"cat {home}/.ssh/id_ed25519 > read.txt || true", f"sandbox: {LEVELS[0]}"))

    assert (status["plan"]["sandbox"], orchard.repo.files("work")["read.txt"]) == (LEVELS[0], "")


@pytest.mark.parametrize(
    ("command", "reason", "setting"),
    [
        ("cat {home}/data/in.txt > out.txt", "hidden", 'sandbox.expose = ["~/data/in.txt"]'),
        ("{home}/tools/own-tool > out.txt", "hidden", 'sandbox.expose = ["~/tools/own-tool"]'),
        ("mkdir /etc/planted", "read-only", 'sandbox.write = ["/etc"]'),
        ("echo x > .github/workflows/ci.yml", "protected", 'unprotected: [".github/workflows"]'),
        ("echo x > .github/copilot-notes.md", "protected", 'unprotected: [".github/copilot-notes.md"]'),
    ],
)
async def test_a_failure_behind_the_wall_says_which_line_opens_what_it_needed(
    orchard: Orchard, home: Path, monkeypatch: pytest.MonkeyPatch, command: str, reason: str, setting: str
) -> None:
    if reason == "protected" and LEVELS[0] != "bwrap":
        pytest.skip("Landlock cannot protect a file inside of a writable folder")
    monkeypatch.setenv("ORCHARD_SANDBOX", LEVELS[0])
    orchard.repo.commit({".github/workflows/ci.yml": "on: push\n", ".github/copilot-notes.md": "Be kind.\n"})
    (home / "data").mkdir()
    (home / "data/in.txt").write_text("in\n")
    (home / "tools").mkdir()
    (home / "tools/own-tool").write_text("#!/bin/sh\necho ours\n")
    (home / "tools/own-tool").chmod(0o755)

    status = await orchard.run(plan(command.format(home=home)))

    assert status["plan"]["status"] == "failed"
    (refused,) = orchard.events(SandboxRefused)
    assert (refused.kind, refused.reason, refused.setting) == ("file", reason, setting)
    assert setting in str(job(status, "a")["hint"])


async def test_what_the_settings_or_the_plan_open_is_open(
    orchard: Orchard, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", LEVELS[0])
    orchard.repo.commit({".github/workflows/ci.yml": "on: push\n", ".github/copilot-notes.md": "Be kind.\n"})
    (home / "data").mkdir()
    (home / "data/in.txt").write_text("in\n")
    (home / "cache").mkdir()
    monkeypatch.setenv("ORCHARD_SANDBOX_EXPOSE", "~/data")
    monkeypatch.setenv("ORCHARD_SANDBOX_WRITE", "~/cache")
    used = f"cat {home}/data/in.txt > .github/workflows/ci.yml; echo kept > {home}/cache/kept; ! touch {home}/data/x"
    used += "; echo > .github/copilot-notes.md"

    status = await orchard.run(plan(used, "unprotected: ['.github/workflows', .github/copilot-notes.md]"))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert orchard.repo.files("work")[".github/workflows/ci.yml"] == "in\n"
    assert (home / "cache/kept").read_text() == "kept\n"


async def test_changed_files_that_other_programs_obey_are_told_apart_before_they_land(orchard: Orchard) -> None:
    work = "mkdir -p .github/workflows .claude src; echo > .github/workflows/ci.yml; echo > .claude/settings.json"

    held = await orchard.run(plan(f"{work}; echo > src/a.py", "land: ask"))

    told = "It changes files that other programs obey: .claude/settings.json, .github/workflows/ci.yml."
    (waiting,) = held["plan"]["waiting"]
    assert told in waiting["reason"] and told in held["plan"]["warnings"]
    landed = await orchard.ask("land_plan")
    assert landed["plan"]["landed"] and landed["plan"]["warnings"].count(told) == 1


async def test_a_canceled_program_behind_the_wall_has_its_grace(orchard: Orchard, level: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    work = f"""
        trap 'echo saved > {kept}/said; exit 0' TERM
        echo > {kept}/ready
        while true; do sleep 0.05; done
    """

    async def cancel(session: Session, plan_id: PlanId) -> None:
        await until((kept / "ready").exists)
        await session.request("cancel_plan", plan=plan_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCHARD_SANDBOX_WRITE", str(kept))
        status = await orchard.run(plan(work), cancel)

    assert status["plan"]["status"] == "canceled"
    assert (kept / "said").read_text() == "saved\n"


async def test_the_wall_leaves_nothing_to_be_saved_and_nothing_behind(orchard: Orchard, level: str) -> None:
    status = await orchard.run(plan("echo one > one.txt"))

    assert status["plan"]["status"] == "succeeded"
    assert not orchard.saved_work() and not list((orchard.repo.path / ".git/orchard/jobs").iterdir())
    assert not list((orchard.repo.path / ".git").glob("worktrees/*/config.worktree"))


async def test_a_program_finds_in_its_worktree_what_the_repository_has_and_nothing_in_the_place_of_protected_names(
    orchard: Orchard, level: str
) -> None:
    orchard.repo.commit({".claude/settings.json": "{}\n"})
    seen = "{ ls -A; git status --porcelain --ignored; } > $TMPDIR/seen; mv $TMPDIR/seen seen.txt"

    status = await orchard.run(plan(f"{seen}; mkdir .vscode; echo '{{}}' > .mcp.json"))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    files = orchard.repo.files("work")
    assert files["seen.txt"].split() == [".claude", ".git", "README.md", "shared.txt"]
    assert files[".mcp.json"] == "{}\n"


async def test_what_an_engine_that_died_laid_among_git_s_notes_goes_with_the_next_program(
    orchard: Orchard, level: str
) -> None:
    await orchard.run(plan("false"))
    (notes,) = (orchard.repo.path / ".git/worktrees").iterdir()
    (notes / "config.worktree").touch()

    status = await orchard.ask("retry_plan", jobs=["a"], work={"type": "shell", "command": "echo; false"})

    assert job(status, "a")["attempts"] == 2 and notes.is_dir()
    assert not list((orchard.repo.path / ".git").glob("worktrees/*/config.worktree"))


async def test_a_job_cannot_put_a_link_in_the_place_of_a_private_folder(
    orchard: Orchard, home: Path, level: str
) -> None:
    private = Repo.make(home / "private")
    private.commit({"secret.txt": "the secret\n"})
    work = f"""
        top=$(dirname $HOME)
        for name in objects home tmp out; do
          mv $top/$name $top/$name.old && ln -s {home}/private/.git/objects $top/$name && echo $name >> replaced.txt
        done
        echo done > done.txt
    """
    status = await orchard.run(plan(work))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert "replaced.txt" not in orchard.repo.files("work")
    private("fsck", "--strict")


async def test_another_repository_of_a_job_keeps_its_objects_to_itself(orchard: Orchard, level: str) -> None:
    if level != "bwrap":
        pytest.skip("only mounts put the folder of a job's objects where git looks by itself")
    work = """
        set -e; export GIT_CONFIG_GLOBAL=$HOME/.gitconfig
        git init -q $TMPDIR/other && cd $TMPDIR/other && echo x > x && git add x && git commit -qm other
        git rev-parse HEAD > $ORCHARD_WORKTREE/other.txt && git fsck --strict --full
        git clone -q $ORCHARD_WORKTREE $TMPDIR/copy && git -C $TMPDIR/copy log --oneline
        cd $ORCHARD_WORKTREE && echo own > own.txt && git add own.txt && git commit -qm job && git log --oneline
    """
    status = await orchard.run(plan(work))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    files = orchard.repo.files("work")
    assert files["own.txt"] == "own\n"
    assert orchard.repo.run("cat-file", "-e", files["other.txt"].strip()).status != 0
    orchard.repo("fsck", "--strict", "--full")


async def test_what_git_does_not_accept_of_a_job_is_told_and_not_deleted(orchard: Orchard, level: str) -> None:
    forged = """
        blob=$(echo x | git hash-object -w --stdin)
        python3 -c "open('row', 'wb').write(b'100644 .git' + bytes(1) + bytes.fromhex('$blob'))"
        git hash-object -w -t tree --literally row; rm row; echo done > done.txt
    """
    status = await orchard.run(plan(forged))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert "git does not accept it" in str(status["plan"]["warnings"])
    assert list((orchard.repo.path / ".git/orchard/jobs").glob("*/objects/??/*"))


LINKED = {
    "index": "ln -sf {goal} $N/index",
    "log": "mkdir -p $N/logs; rm -f $N/logs/HEAD; ln -s {goal} $N/logs/HEAD",
    "logs": "rm -rf $N/logs; ln -s {folder} $N/logs",
}


@pytest.mark.parametrize("what", LINKED)
async def test_git_of_ours_follows_no_link_that_a_job_put_among_git_s_notes(
    orchard: Orchard, home: Path, level: str, what: str
) -> None:
    (home / ".profile").write_text("mine\n")
    goals = {"goal": home / ("new" if what == "index" else ".profile"), "folder": home}
    put = LINKED[what].format(**goals)
    more = (
        f"  - id: b\n    needs: [a]\n    work: echo b > b.txt\n    postchecks: 'N=$(git rev-parse --git-dir); {put}'\n"
    )

    status = await orchard.run(plan(f"echo x > x\nN=$(git rev-parse --git-dir)\n{put}") + more)

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert sorted(path.name for path in home.iterdir()) == [".profile", ".ssh"]
    assert (home / ".profile").read_text() == "mine\n"
    assert orchard.repo("status", "--porcelain") == ""
    assert orchard.repo.files("work")["x"] == "x\n"


async def test_a_link_inside_of_a_writable_folder_opens_nothing(
    orchard: Orchard, home: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX_WRITE", "~/.cache,~/.cache/pip")
    (home / ".cache").mkdir()
    (home / ".cache/pip").symlink_to(home / ".ssh")

    status = await orchard.run(plan(f"cat {home}/.ssh/id_ed25519 > seen.txt; echo x > {home}/.ssh/made; true"))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert orchard.repo.files("work")["seen.txt"] == ""
    assert [path.name for path in (home / ".ssh").iterdir()] == ["id_ed25519"]
