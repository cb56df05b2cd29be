"""A failure behind the wall says who was kept from what, and what a person does about it, in which file."""

import json
from pathlib import Path

import pytest

from orchard.engine.machine.advice import Failure, advised, limit_reached, local_port, missed_network, program_in
from orchard.model.events.plans import SandboxRefused
from orchard.model.plan import PlanId
from orchard.process.sandbox.level import walls
from orchard.process.sandbox.policy import Policy, Resources
from orchard.surfaces.cli.render.event_lines import event_lines
from orchard.surfaces.cli.render.job_page import job_lines
from orchard.surfaces.cli.render.summary import summary_lines
from orchard.surfaces.cli.render.tree import look_now
from tests.engine.conftest import Orchard, job

pytestmark = pytest.mark.anyio

LEVELS = [finding.level for finding in walls().findings if finding.works]
PYTHON = "/usr/bin/python3"


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ORCHARD_SANDBOX", request.param)
    return str(request.param)


async def failed(orchard: Orchard, command: str, more: str = "") -> tuple[str, list[SandboxRefused]]:
    """The hint of a job that fails behind the wall, and what was recorded."""
    plan = f"name: n\njobs:\n  - {{id: a, heal: false, {more}work: {json.dumps(command)}}}\n"
    status = await orchard.run(plan)
    assert job(status, "a")["status"] == "failed"
    return str(job(status, "a")["hint"]), orchard.events(SandboxRefused)


async def test_what_a_job_does_instead_of_a_stash_is_told(orchard: Orchard, level: str) -> None:
    hint, refused = await failed(orchard, "echo more >> README.md; git stash")
    assert 'git diff HEAD > "$TMPDIR/aside.patch"' in hint and not refused

    again = "echo more >> README.md; git diff HEAD > $TMPDIR/p && git checkout HEAD . && git apply $TMPDIR/p"
    status = await orchard.run(f"name: n\njobs:\n  - {{id: b, work: {json.dumps(again)}}}\n")
    assert status["plan"]["status"] == "succeeded", "and it works"


async def test_network_off_names_who_says_so_and_the_program_that_tried(orchard: Orchard, level: str) -> None:
    tries = f"{PYTHON} -c 'import urllib.request as u; u.urlopen(\"http://example.com/\")'"
    hint, (refused,) = await failed(orchard, tries, "network: off, ")

    assert (refused.kind, refused.name, refused.reason) == ("network", "example.com", "network-off")
    assert refused.program == "python3" and "python3 was kept from example.com (network: off)" in hint
    assert "take network: off away from job 'a' in the plan" in hint


@pytest.mark.skipif("bwrap" not in LEVELS, reason="no bubblewrap")
async def test_a_connection_past_the_proxy_is_told_with_the_program(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", "bwrap")
    tries = f"{PYTHON} -c 'import socket; socket.create_connection((\"192.0.2.1\", 443), 3)'"
    hint, (refused,) = await failed(orchard, tries)

    assert (refused.reason, refused.program, refused.setting) == ("no-proxy", "python3", None)
    assert "the proxy that HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name" in hint


async def test_a_server_of_this_machine_is_told_with_the_line_that_lets_http_through(
    orchard: Orchard, level: str, private_home: Path
) -> None:
    file = private_home / "config/orchard/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[sandbox]\nallow = ["10.0.0.5:443"]\n')
    hint, _ = await failed(orchard, "curl -sS http://127.0.0.1:5432/")

    assert 'add "127.0.0.1:5432" to allow under [sandbox] in ' in hint and "NO_PROXY= no_proxy=" in hint


async def test_what_the_proxy_refused_names_the_program_and_where_the_line_belongs(
    orchard: Orchard, level: str, private_home: Path
) -> None:
    asks = f"{PYTHON} -c 'import urllib.request as u; u.urlopen(\"http://10.0.0.1/\")'"
    hint, (refused,) = await failed(orchard, asks)

    assert (refused.name, refused.program, refused.setting) == (
        "10.0.0.1:80",
        "python3",
        'sandbox.allow = ["10.0.0.1:80"]',
    )
    assert refused.how is not None and refused.how in hint and str(refused.how).startswith("put sandbox.allow = ")
    assert "config.toml" in refused.how
    shown = "".join(text for line in job_lines(orchard.app.job("a", None), look_now()) for text, _ in line)
    assert "10.0.0.1:80 (private, python3); to open it: put sandbox.allow" in shown


async def test_a_name_of_a_private_address_is_told_to_be_opened_by_the_address(orchard: Orchard, level: str) -> None:
    asks = f"NO_PROXY= no_proxy= {PYTHON} -c 'import urllib.request as u; u.urlopen(\"http://localhost:9/\")'"
    _, refused = await failed(orchard, asks)

    (one,) = [one for one in refused if one.name == "localhost:9"]
    assert one.setting == 'sandbox.allow = ["127.0.0.1:9"]'
    assert "the address itself: a name opens public addresses only" in str(one.how)


@pytest.mark.parametrize(
    ("name", "most", "command"),
    [
        ("files", "64", f"{PYTHON} -c 'a = [open(\"/dev/null\") for _ in range(100)]'"),
        ("disk", "4096", "sleep 0.5; head -c 10000 /dev/zero > big"),
        ("memory", "60000000", f"{PYTHON} -c 'a = bytearray(200_000_000)'"),
    ],
)
async def test_a_limit_that_is_reached_is_told_with_the_line_that_raises_it(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, level: str, name: str, most: str, command: str
) -> None:
    monkeypatch.setenv(f"ORCHARD_SANDBOX_{name.upper()}", most)
    hint, (refused,) = await failed(orchard, command)

    assert (refused.kind, refused.name) == ("limit", f"{name} above {most}")
    assert refused.setting == f"sandbox.{name} = {2 * int(most)}"
    assert f"set ORCHARD_SANDBOX_{name.upper()} to {2 * int(most)}" in hint


@pytest.mark.skipif("landlock" not in LEVELS, reason="no Landlock")
async def test_behind_landlock_a_server_and_a_repository_of_the_jobs_own_get_words(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", "landlock")
    hint, _ = await failed(orchard, f"{PYTHON} -c 'import socket; socket.create_server((\"127.0.0.1\", 0))'")
    assert "a program can listen on no port" in hint and "bubblewrap" in hint

    commits = "git add . && git -c user.name=a -c user.email=a@b commit -qm x"
    makes = f"cd $TMPDIR && git init -q r && cd r && echo 1 > 1 && {commits} && cd .. && git clone r s"
    hint, _ = await failed(orchard, makes)
    assert "unset GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES" in hint


async def test_a_protected_name_says_where_in_the_plan_it_is_opened(orchard: Orchard, level: str) -> None:
    if level == "landlock":
        pytest.skip("it cannot protect a name in a worktree")
    orchard.repo.commit({".github/workflows/ci.yaml": "on: push\n"})
    hint, (refused,) = await failed(orchard, "echo >> .github/workflows/ci.yaml")
    assert refused.how == 'put unprotected: [".github/workflows"] into the plan' and refused.how in hint
    hint, _ = await failed(orchard, "echo >> .github/workflows/ci.yaml", "unprotected: ['.vscode'], ")
    assert "add \".github/workflows\" to unprotected of job 'a' in the plan" in hint


async def test_what_a_job_is_kept_from_at_each_try_is_one_line_of_the_run(orchard: Orchard, level: str) -> None:
    secret = orchard.repo.path.parent / "secret.txt"
    secret.write_text("s")
    await failed(orchard, f"cat {secret}")
    await orchard.ask("retry_plan")

    app = orchard.app
    run = app.run_of(app.find_plan(None))
    told = [one for one in app.reader.events(PlanId(run.id)) if isinstance(one.event, SandboxRefused)]
    assert len(told) == 2, "each attempt knows it"
    lines = [line for one in told for line in event_lines(run, one)]
    assert len(lines) == 1 and f"{secret} (hidden, cat)" in "".join(text for text, _ in lines[0])


async def test_what_several_complaints_and_jobs_need_is_one_line_for_each_key(orchard: Orchard, level: str) -> None:
    one, other, third = (orchard.repo.path.parent / name for name in ("one.txt", "other.txt", "third.txt"))
    for file in (one, other, third):
        file.write_text("s")
    jobs = f"  - {{id: a, heal: false, work: 'cat {one} {other}'}}\n  - {{id: b, heal: false, work: 'cat {third}'}}\n"
    status = await orchard.run(f"name: n\njobs:\n{jobs}")

    first, second = (one for one in orchard.events(SandboxRefused) if one.job == "a")
    assert first.setting != second.setting and first.how == second.how
    assert f'sandbox.expose = ["{one}", "{other}"]' in str(job(status, "a")["hint"])
    app = orchard.app
    run = app.run_of(app.find_plan(None))
    (line,) = [line for line in summary_lines(app, run, app.status(None)) if "To open what" in line[0][0]]
    assert all(str(file) in line[1][0] for file in (one, other, third)) and line[1][0].count("expose") == 1


# ------------------------------------------------------------------------------------------- the words

POLICY = Policy(home=Path("/h"), temporary=Path("/t"))


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("curl: (6) Could not resolve host: example.com", "example.com"),
        ("curl: (7) Failed to connect to 1.1.1.1 port 443 after 0 ms: Couldn't connect to server", "1.1.1.1:443"),
        ("ssh: Could not resolve hostname github.com: Temporary failure in name resolution", "github.com"),
        ("Error: getaddrinfo ENOTFOUND packages.example.org", "packages.example.org"),
        ("OSError: [Errno 101] Network is unreachable", "the network"),
        ("curl: (7) Failed to connect to 127.0.0.1 port 80 after 0 ms: Couldn't connect to server", None),
        ("all is well", None),
    ],
)
def test_an_address_is_read_out_of_the_words_of_programs(said: str, address: str | None) -> None:
    assert missed_network(Failure(said, ())) == address


def test_an_address_in_the_command_is_named_and_a_port_of_this_machine_found() -> None:
    tries = "python3 -c 'socket.create_connection((\"{}\", 443))'"
    unreachable = "OSError: [Errno 101] Network is unreachable"
    assert missed_network(Failure(unreachable, ("sh", "-c", tries.format("192.0.2.1")))) == "192.0.2.1:443"
    assert missed_network(Failure(unreachable, ("sh", "-c", tries.format("2001:db8::1")))) == "[2001:db8::1]:443"
    for local in ("localhost", "::1", "127.0.0.1"):
        assert local_port(Failure("Connection refused", ("sh", "-c", tries.format(local)))) == 443
    assert local_port(Failure("connect to [::1]:80: connection refused", ())) == 80


async def test_pip_without_a_network_is_told_so(orchard: Orchard, level: str) -> None:
    fails = "echo 'ERROR: Could not find a version that satisfies the requirement x (from versions: none)'; exit 1"
    hint, (refused,) = await failed(orchard, fails, "network: off, ")
    assert (refused.name, refused.reason) == ("the package index", "network-off")
    assert "take network: off away from job 'a'" in hint


def test_a_limit_that_nobody_set_is_not_blamed() -> None:
    failure = Failure("OSError: [Errno 24] Too many open files", (), 1)
    assert limit_reached(failure, POLICY) is None
    limited = Policy(home=Path("/h"), temporary=Path("/t"), resources=Resources(files=64, memory=10))
    assert limit_reached(failure, limited) == "files"
    assert limit_reached(Failure("Killed", (), 137), limited) == "memory"
    assert limit_reached(Failure("", (), 1), limited) is None


def test_a_program_is_known_by_its_complaint_or_by_its_command() -> None:
    assert program_in("cat: /x: Permission denied") == "cat"
    assert program_in("/usr/bin/touch: cannot touch '/x': Read-only file system") == "touch"
    assert program_in("error: could not lock config file") is None
    assert Failure("", ("/bin/sh", "-c", "npm ci --offline")).program == "npm"
    assert Failure("", ("/usr/bin/make", "all")).program == "make"
    assert advised(Failure("nothing to be seen", ("git stash",)), "bwrap", POLICY) is None
