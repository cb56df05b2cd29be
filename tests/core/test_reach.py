"""What a plan may let its agents reach, and what a person is told of it."""

import pytest

from orchard.core.planfile import parse_value
from orchard.core.reach import reach_warnings
from orchard.errors import InvalidInput


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
        "http://127.0.0.1:8000/x?y#z",
        "example.org",
        "*.github.com",
        "https://*.github.com",
        "localhost:3000",
    ],
)
def test_addresses_and_names_of_hosts_are_taken(url: str) -> None:
    assert len(parse_value(plan(allowed_urls=[url])).jobs) == 2


@pytest.mark.parametrize("folder", ["-x", "a\nb", "a\0b", " "])
def test_what_is_no_folder_is_refused(folder: str) -> None:
    with pytest.raises(InvalidInput):
        parse_value(plan(allowed_folders=[folder]))


@pytest.mark.parametrize(
    "folder",
    [
        "/",
        "//",
        "/.",
        "~",
        "~/",
        "/home",
        "/etc",
        "~/.ssh",
        "/home/me/.ssh/keys",
        "/srv/me/.aws",
        "~/.config/gh",
        "~/.config/orchard/x",
    ],
)
def test_a_person_is_told_of_whole_disks_and_of_places_of_secrets(folder: str) -> None:
    (said,) = reach_warnings(parse_value(plan(allowed_folders=[folder])))

    assert folder in said


@pytest.mark.parametrize("folder", ["/srv/data", "../other", "~/projects/data", "/home/me/sshd"])
def test_of_other_folders_nothing_is_said(folder: str) -> None:
    assert reach_warnings(parse_value(plan(allowed_folders=[folder]))) == []
