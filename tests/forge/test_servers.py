"""Which forge an address names: a token must never reach another one."""

import pytest

from orchard.forge.kinds import GITHUB, GITLAB
from orchard.forge.servers import Project, Server, UnknownForge, known_servers, project_at, server_of
from orchard.text import without_credentials

PUBLIC = known_servers((), (), {})


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://github.com/acme/demo.git", "acme/demo"),
        ("https://github.com/acme/demo/", "acme/demo"),
        ("https://user:secret@github.com/acme/demo", "acme/demo"),
        ("git@github.com:acme/demo.git", "acme/demo"),
        ("github.com:acme/demo", "acme/demo"),
        ("ssh://git@github.com/acme/demo.git", "acme/demo"),
        ("ssh://git@ssh.github.com:443/acme/demo.git", "acme/demo"),
        ("https://GitHub.com/acme/demo.js.git", "acme/demo.js"),
    ],
)
def test_an_address_on_github_names_a_repository_there(address: str, name: str) -> None:
    found = project_at(address, PUBLIC, "origin")

    assert found == Project(Server(GITHUB, "github.com"), name)
    assert found.server.api == "https://api.github.com"
    assert found.page(7) == f"https://github.com/{name}/pull/7"


def test_a_project_on_gitlab_may_lie_in_groups() -> None:
    found = project_at("git@gitlab.com:group/part/demo.git", PUBLIC, "origin")

    assert (found.server.kind, found.name) == (GITLAB, "group/part/demo")
    assert found.page(3) == "https://gitlab.com/group/part/demo/-/merge_requests/3"


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com.evil.example/acme/demo",
        "https://github.evil.example/acme/demo",
        "https://evil.example/github.com/acme",
        "https://github.com@evil.example/acme/demo",
        "https://github.com:8443/acme/demo",
        "http://github.com/acme/demo",
        "http://127.0.0.1/acme/demo",
        "git@evil.example:acme/demo",
        "ftp://github.com/acme/demo",
        "ext::sh -c x github.com/acme/demo",
        "https://github.com:x/acme/demo",
        "https://github.com/acme",
        "https://github.com/acme/demo/more",
        "https://github.com/../demo",
        "https://github.com/acme/..",
        "https://github.com/acme/de mo",
        "https://github.com/acme/demo?x=/y",
        "/srv/github.com/acme/demo.git",
        "../demo.git",
        "",
    ],
)
def test_no_other_address_is_taken_for_a_known_forge(address: str) -> None:
    with pytest.raises(UnknownForge):
        project_at(address, PUBLIC, "origin")


def test_a_message_about_an_address_tells_no_password() -> None:
    with pytest.raises(UnknownForge) as refused:
        project_at("file://me:hunter2@/srv/demo.git", PUBLIC, "origin")

    assert "hunter2" not in refused.value.message


@pytest.mark.parametrize(
    "env",
    [
        {"GH_HOST": "git.example.org"},
        {"GITHUB_SERVER_URL": "https://git.example.org"},
        {"GITHUB_SERVER_URL": "https://git.example.org/"},
    ],
)
def test_a_server_that_the_environment_names_is_a_forge_with_its_own_api(env: dict[str, str]) -> None:
    found = project_at("git@git.example.org:acme/demo.git", known_servers((), (), env), "origin")

    assert found.server.api == "https://git.example.org/api/v3"
    assert found.server.tokens[0] == "GH_ENTERPRISE_TOKEN"


def test_a_server_that_the_users_settings_name_is_a_forge() -> None:
    found = project_at("https://git.example.org:8443/a/b/c", known_servers((), ("git.example.org:8443",), {}), "origin")

    assert found.server.api == "https://git.example.org:8443/api/v4"
    with pytest.raises(UnknownForge):
        project_at("https://git.example.org/a/b", known_servers((), ("git.example.org:8443",), {}), "origin")


def test_no_setting_makes_another_kind_of_a_public_forge() -> None:
    servers = known_servers((), ("github.com", "http://github.com"), {"GITLAB_HOST": "github.com"})

    assert project_at("https://github.com/a/b", servers, "origin").server.kind is GITHUB


@pytest.mark.parametrize("text", ["http://git.example.org", "ftp://x", "", "https://", "https://x:99999999", "http://"])
def test_a_token_is_sent_without_encryption_to_this_machine_only(text: str) -> None:
    assert server_of(GITHUB, text) is None
    assert server_of(GITHUB, "http://127.0.0.1:8080") == Server(GITHUB, "127.0.0.1:8080", "http")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("unable to access 'https://me:pw@x.org/a'", "unable to access 'https://x.org/a'"),
        ("to https://token@x.org", "to https://x.org"),
        ("look up me:pw@x.org:1 (port 9418)", "look up x.org:1 (port 9418)"),
        ("git@github.com:acme/demo", "git@github.com:acme/demo"),
        ("a: b@c and https://x.org/@scope/name", "a: b@c and https://x.org/@scope/name"),
    ],
)
def test_users_and_passwords_are_taken_out_of_what_programs_say(said: str, shown: str) -> None:
    assert without_credentials(said) == shown
