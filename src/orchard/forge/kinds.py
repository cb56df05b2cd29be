"""The kinds of forge, one row each: whatever differs between them is said here."""

from msgspec import Struct


class Kind(Struct, frozen=True):
    name: str
    title: str
    """What people call it."""
    request: str
    """What it calls a pull request."""
    host: str
    """Where everybody finds it."""
    api: str
    """Its API there."""
    own_api: str
    """Where the API is on a server of somebody's own, after the host."""
    aliases: tuple[str, ...]
    """Other names of its host, for ssh."""
    tokens: tuple[str, ...]
    """Variables with a token, the first that is set counts."""
    own_tokens: tuple[str, ...]
    """The same for a server of somebody's own, before the others."""
    tool: str
    """The program that asks its API with a login of its own."""
    login: str
    """How a person logs in with that program."""
    tool_host: str
    """The variable that tells the program which server is meant, and us that the user has one."""
    servers: tuple[str, ...]
    """Variables in which its CI says where the server is."""
    accepts: str
    """The type of its answers."""
    project: str
    """What stands for a project in a path of its API."""
    quoted: bool
    """Whether the project's slashes are escaped there."""
    found: str
    """The query for open requests from a branch into another."""
    page: str
    """Where people see a request, after the project's page."""
    number: str
    """The fields of a request in its API: how it is numbered, where it comes from, where it goes, its text."""
    head: str
    base: str
    body: str
    update: str
    """The method that changes one."""
    draft: str
    """What is put before the title of a draft; empty: a field says so."""
    longest: int
    """Characters of a text."""


GITHUB = Kind(
    name="github",
    title="GitHub",
    request="pull request",
    host="github.com",
    api="https://api.github.com",
    own_api="/api/v3",
    aliases=("ssh.github.com", "www.github.com"),
    tokens=("GH_TOKEN", "GITHUB_TOKEN"),
    own_tokens=("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"),
    tool="gh",
    login="gh auth login",
    tool_host="GH_HOST",
    servers=("GITHUB_SERVER_URL",),
    accepts="application/vnd.github+json",
    project="repos/{project}/pulls",
    quoted=False,
    found="state=open&head={owner}:{branch}&base={target}",
    page="/pull/",
    number="number",
    head="head",
    base="base",
    body="body",
    update="PATCH",
    draft="",
    longest=60_000,
)
GITLAB = Kind(
    name="gitlab",
    title="GitLab",
    request="merge request",
    host="gitlab.com",
    api="https://gitlab.com/api/v4",
    own_api="/api/v4",
    aliases=("altssh.gitlab.com",),
    tokens=("GITLAB_TOKEN",),
    own_tokens=(),
    tool="glab",
    login="glab auth login",
    tool_host="GITLAB_HOST",
    servers=("CI_SERVER_URL",),
    accepts="application/json",
    project="projects/{project}/merge_requests",
    quoted=True,
    found="state=opened&source_branch={branch}&target_branch={target}",
    page="/-/merge_requests/",
    number="iid",
    head="source_branch",
    base="target_branch",
    body="description",
    update="PUT",
    draft="Draft: ",
    longest=200_000,
)
KINDS = (GITHUB, GITLAB)
