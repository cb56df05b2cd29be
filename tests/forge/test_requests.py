"""Asking a forge: one request of a branch, people's words left alone, and every refusal in words."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.errors import OrchardError
from orchard.forge.channel import channel_to
from orchard.forge.kinds import GITHUB, GITLAB, Kind
from orchard.forge.requests import BEGIN, END, Opened, Wanted, marked, open_or_update, renewed
from orchard.forge.servers import Project, Server
from orchard.process import errand
from tests.forge.scripted import TOKEN, Forge


def wanted(forge: Forge, kind: Kind = GITHUB, body: str = "What was done.") -> Wanted:
    project = Project(Server(kind, forge.host, forge.scheme), "acme/demo")
    return Wanted(project, project, "orchard/x", "main", "Add login", body)


def ask(forge: Forge, asked: Wanted, token: str = TOKEN) -> Opened:
    env = {asked.project.server.kind.tokens[0]: token, "PATH": ""}
    return open_or_update(channel_to(asked.project.server, env), asked)


@pytest.fixture
def pushed(forge: Forge, tmp_path: Path) -> Forge:
    """A forge that has the two branches."""
    fill(forge.folder / "acme/demo.git", tmp_path / "seed")
    return forge


def fill(place: Path, seed: Path) -> None:
    for words in (
        ["init", "-q", "-b", "main", str(seed)],
        ["-C", str(seed), "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "1"],
        ["-C", str(seed), "push", "-q", str(place), "main", "main:orchard/x"],
    ):
        subprocess.run(["git", *words], check=True)


@pytest.mark.parametrize("kind", [GITHUB, GITLAB])
def test_a_request_is_opened_once_and_updated_afterwards(pushed: Forge, kind: Kind) -> None:
    first = ask(pushed, wanted(pushed, kind))
    again = ask(pushed, wanted(pushed, kind, "What was done in the end."))

    assert first == Opened(1, f"{pushed.url}/acme/demo{kind.page}1", created=True)
    assert again == replace(first, created=False)
    assert pushed.requests[1]["title"] == "Add login"
    assert pushed.requests[1][kind.body] == f"{BEGIN}\nWhat was done in the end.\n{END}"
    assert {one.token for one in pushed.asked} == {TOKEN}


def test_what_people_wrote_into_a_request_stays(pushed: Forge) -> None:
    ask(pushed, wanted(pushed))
    pushed.requests[1] |= {"title": "Login!", "body": f"Look at this.\n\n{BEGIN}\nold\n{END}\n\nThanks"}
    ask(pushed, wanted(pushed, body="new"))
    assert pushed.requests[1]["body"] == f"Look at this.\n\n{BEGIN}\nnew\n{END}\n\nThanks"
    assert pushed.requests[1]["title"] == "Login!"

    pushed.requests[1]["body"] = "All mine."
    ask(pushed, wanted(pushed, body="newer"))
    assert pushed.requests[1]["body"] == "All mine."


@pytest.mark.parametrize("kind", [GITHUB, GITLAB])
def test_a_draft_is_one(pushed: Forge, kind: Kind) -> None:
    ask(pushed, replace(wanted(pushed, kind), draft=True))

    made = pushed.requests[1]
    assert made.get("draft") is True or made["title"] == "Draft: Add login"


def test_a_request_from_a_fork_names_its_owner(pushed: Forge, tmp_path: Path) -> None:
    fill(pushed.make("me/demo"), tmp_path / "mine")
    asked = wanted(pushed)
    ask(pushed, replace(asked, source=replace(asked.project, name="me/demo")))

    assert (pushed.requests[1]["head"], pushed.requests[1]["_project"]) == ("me:orchard/x", "acme/demo")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b'{"message": "Bad credentials"}', "does not accept the token in GH_TOKEN: Bad credentials"),
        (403, b'{"message": "Resource not accessible"}', "does not let the token in GH_TOKEN do this"),
        (404, b'{"message": "Not Found"}', "does not show it the repository"),
        (422, b'{"message": "Validation Failed", "errors": [{"message": "No commits"}]}', "Failed; No commits"),
        (409, b'{"message": ["Another open merge request exists"]}', "refuses the pull request: Another open"),
        (500, b"<html>down</html>", "answered 500"),
        (200, b"<html>hello</html>", "not JSON"),
        (200, b"x" * (8 * 1024 * 1024 + 5), "not JSON"),
        (302, b"", "has moved"),
    ],
)
def test_a_refusal_is_told_in_words_without_the_token(pushed: Forge, status: int, body: bytes, said: str) -> None:
    pushed.headers["Location"] = f"{pushed.url}/elsewhere"
    pushed.answers.append((status, body))

    with pytest.raises(OrchardError) as refused:
        ask(pushed, wanted(pushed))

    assert said in refused.value.message
    assert TOKEN not in f"{refused.value.message} {refused.value.hint}"
    assert len(pushed.asked) == 1, "the token went on to where a redirect pointed"
    assert not pushed.requests


def test_what_a_forge_says_cannot_reach_the_terminal(pushed: Forge) -> None:
    pushed.answers.append((422, json.dumps({"message": "\x1b]0;evil\x07 a\nb" + "x" * 5000}).encode()))

    with pytest.raises(OrchardError) as refused:
        ask(pushed, wanted(pushed))

    assert refused.value.message.isprintable() and len(refused.value.message) < 1000


@pytest.mark.parametrize("number", [b"-1", b"true", b'"1"', b'"../../x"', b"null", b"0"])
def test_a_number_that_is_none_is_not_believed(pushed: Forge, number: bytes) -> None:
    pushed.answers += [(200, b"[]"), (201, b'{"number": ' + number + b"}")]

    with pytest.raises(OrchardError, match="without the number"):
        ask(pushed, wanted(pushed))


def test_a_forge_that_is_down_is_said_to_be(pushed: Forge) -> None:
    asked = wanted(pushed)
    gone = replace(asked.project, server=replace(asked.project.server, host="127.0.0.1:1"))

    with pytest.raises(OrchardError, match=r"GitHub was not reached at 127\.0\.0\.1:1: .*refused"):
        ask(pushed, replace(asked, project=gone, source=gone))


def test_without_a_token_and_a_tool_nobody_is_asked(pushed: Forge) -> None:
    with pytest.raises(OrchardError, match="has none of") as refused:
        channel_to(wanted(pushed).project.server, {"PATH": "", "GH_TOKEN": " \n"})

    assert "gh auth login" in str(refused.value.hint)


# ------------------------------------------------------------------------------------------- tools


@pytest.mark.skipif(shutil.which("gh") is None, reason="gh is not installed")
def test_the_real_gh_asks_with_its_own_login(
    sealed_forge: tuple[Forge, Path], tmp_path: Path, plain_env: dict[str, str]
) -> None:
    forge, certificate = sealed_forge
    fill(forge.folder / "acme/demo.git", tmp_path / "seed")
    login = tmp_path / "gh"
    login.mkdir()
    (login / "hosts.yml").write_text(f'"{forge.host}":\n    user: me\n    oauth_token: {TOKEN}\n')
    env = {**plain_env, "GH_CONFIG_DIR": str(login), "SSL_CERT_FILE": str(certificate)}
    asked = wanted(forge)
    channel = channel_to(asked.project.server, env)
    assert channel.tool and not channel.token
    channel.check_login()
    assert [one.path for one in forge.asked] == ["/api/v3/user"]
    forge.asked.clear()

    first = open_or_update(channel, asked)
    again = open_or_update(channel, replace(asked, body="Again."))

    assert (first.created, again.created) == (True, False)
    assert forge.requests[1]["body"] == f"{BEGIN}\nAgain.\n{END}"
    assert {one.token for one in forge.asked} == {TOKEN}
    assert all(one.path.startswith("/api/v3/repos/acme/demo/pulls") for one in forge.asked)

    (login / "hosts.yml").write_text(f'"{forge.host}":\n    user: me\n    oauth_token: wrong\n')
    for ask_wrongly in (lambda: open_or_update(channel, asked), channel.check_login):
        with pytest.raises(OrchardError, match="does not accept the login of 'gh': Bad credentials"):
            ask_wrongly()
    (login / "hosts.yml").unlink()
    with pytest.raises(OrchardError, match=r"'gh' could not ask|login of 'gh'") as refused:
        open_or_update(channel, asked)
    assert f"gh auth login --hostname {forge.host}" in str(refused.value.hint)
    with pytest.raises(OrchardError, match=r"'gh' could not ask|login of 'gh'"):
        channel.check_login()


def test_glab_is_asked_for_gitlab_with_no_secret_in_its_arguments(pushed: Forge, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "glab"
    program.parent.mkdir()
    answer = 'HTTP/2.0 200 OK\\nContent-Type: application/json\\n\\n[{"iid": 4, "description": "mine"}]'
    program.write_text(f"#!/bin/sh\necho \"$GITLAB_HOST $@\" >> {tmp_path}/calls\nprintf '{answer}'\n")
    program.chmod(0o755)
    asked = wanted(pushed, GITLAB)

    made = open_or_update(channel_to(asked.project.server, {"PATH": f"{program.parent}:/usr/bin:/bin"}), asked)

    assert (made.number, made.created) == (4, False)
    (call,) = (tmp_path / "calls").read_text().splitlines()
    path = "projects/acme%2Fdemo/merge_requests?state=opened&source_branch=orchard%2Fx&target_branch=main"
    assert call == f"{pushed.host} api --include --method GET -H Accept: application/json {path}"


def test_a_tool_that_prints_without_end_or_hangs_is_given_up(tmp_path: Path) -> None:
    chatty = errand.ask_errand(["/bin/sh", "-c", "head -c 5000 /dev/zero"], b"", {}, 5.0, 1000)
    silent = errand.ask_errand(["/bin/sh", "-c", "echo a; sleep 60"], b"", {}, 0.3, 1000)

    assert (chatty.output, chatty.problem) == (b"", "printed more than 1,000 bytes")
    assert silent.output == b"a\n" and "did not end" in silent.problem


# ------------------------------------------------------------------------------------------- the text


def test_a_text_that_is_too_long_is_cut_at_a_line_and_keeps_its_marks() -> None:
    text = marked("line\n" * 1000 + END, 500)

    assert len(text) <= 500 and text.startswith(BEGIN) and text.endswith(END) and text.count(END) == 1
    assert "did not fit" in text
    assert renewed(text, "short", 500) == marked("short", 500)
    assert renewed("", "short", 500) == marked("short", 500)
