"""What a plan may let its agents reach, and what a person is told of it."""

from pathlib import PurePath

import pytest

from orchard.engine.machine.reach import reach_warning
from orchard.errors import InvalidInput
from orchard.planfile.parse import parse_value


def plan(**fields: object) -> dict[str, object]:
    return {"name": "Reach", "jobs": [{"id": "a", "work": {"type": "agent", "instructions": "x", **fields}}]}


@pytest.mark.parametrize(
    "url",
    [
        "file:///",
        "file:///etc/passwd",
        "FILE:///x",
        "ftp://example.org",
        "unix:///run/x.sock",
        "javascript:alert(1)",
        "/etc",
        "//example.org",
        "https://",
        "http:///x",
        "https://user@evil.example",
        "a b",
        "-x",
        "https://a\\b",
        "..",
        "?x",
        "data:,x y",
        "*",
        "*.org",
        "localhost:3000",
        "http://127.0.0.1:8000/x?y#z",
        "10.0.0.5",
        "https://169.254.169.254/latest",
        "[::1]:80",
        "example.org:0",
    ],
)
def test_what_is_no_address_of_the_web_is_refused_where_it_stands(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_value(plan(allowed_urls=["https://example.org", url]))

    assert [problem.path for problem in caught.value.problems] == ["jobs[0].work.allowed_urls[1]"]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org",
        "http://example.org:8000/x?y#z",
        "example.org",
        "*.github.com",
        "https://*.github.com",
        "example.org:*",
    ],
)
def test_addresses_and_names_of_hosts_are_taken(url: str) -> None:
    assert len(parse_value(plan(allowed_urls=[url])).jobs) == 2


def test_the_refusal_of_an_address_says_who_can_name_it() -> None:
    with pytest.raises(InvalidInput, match="only the user's own settings can name it"):
        parse_value(plan(allowed_urls=["10.0.0.5:443"]))


@pytest.mark.parametrize("folder", ["-x", "a\nb", "a\0b", " "])
def test_what_is_no_folder_is_refused(folder: str) -> None:
    with pytest.raises(InvalidInput):
        parse_value(plan(allowed_folders=[folder]))


HOME, CHECKOUT = PurePath("/home/me"), PurePath("/home/me/work/shop")


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("/", "all of it"),
        ("/home", "all of it"),
        ("/home/me", "all of it"),
        ("/etc", "all of it"),
        ("/home/me/.ssh", "secrets"),
        ("/home/me/.ssh/keys", "secrets"),
        ("/srv/me/.aws", "secrets"),
        ("/home/me/.config/gh", "secrets"),
        ("/home/me/.config/orchard/x", "secrets"),
        ("/home/me/.local/state/orchard", "secrets"),
        ("/home/me/work/shop/.git", "git keeps"),
        ("/home/me/work/shop/.git/hooks", "git keeps"),
        ("/home/me/work/shop", "all of your checkout"),
        ("/home/me/work", "outside of the repository"),
        ("/home/me/work/shop2", "outside of the repository"),
        ("/srv/data", "outside of the repository"),
        ("/home/me/sshd", "outside of the repository"),
    ],
)
def test_a_person_is_told_of_whole_disks_places_of_secrets_and_what_is_outside(folder: str, said: str) -> None:
    assert said in (reach_warning(PurePath(folder), HOME, CHECKOUT, CHECKOUT / ".git") or "")


def test_of_a_folder_of_the_checkout_nothing_is_said_and_a_bare_repository_has_none() -> None:
    assert reach_warning(CHECKOUT / "data", HOME, CHECKOUT, CHECKOUT / ".git") is None
    assert reach_warning(CHECKOUT / "data", HOME, None, PurePath("/srv/shop.git")) is not None
