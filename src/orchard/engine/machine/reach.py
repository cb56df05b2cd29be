"""Where a plan lets its agents write beside their worktree, and what a person should see of it before it runs."""

import os
from pathlib import Path, PurePath

from orchard.agents.facts.programs import own_folders
from orchard.config.reach import reach_of
from orchard.git.repository import Repository
from orchard.model.plan import Plan
from orchard.planfile.works import Paths, spoken

SHOWN = 20

_WHOLE = frozenset({"/", "/home", "/root", "/Users", "/etc", "/var", "/usr", "/proc", "/sys", "/dev"})
_SECRET = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/orchard", ".netrc",
    ".local/state/orchard", ".password-store",
)  # fmt: skip
"""Where logins are kept, beside the own folders of agents."""


def reach_warnings(repo: Repository, plan: Plan, paths: Paths) -> list[str]:
    home = Path.home().resolve()
    checkout = repo.main_top.resolve() if repo.main_top is not None else None
    found: list[str] = []
    for path, folder in reach_of(plan, paths):
        real = Path(os.path.realpath(folder_meant(repo, folder)))  # unlike Path.resolve, it takes a loop of links
        if (said := reach_warning(real, home, checkout, repo.common_dir.resolve())) is not None:
            shown = f"'{folder}'" if folder == str(real) else f"'{folder}' is '{real}'"
            found.append(f"{spoken(path)}: {shown}: {said}.")
    more = [f"... and {len(found) - SHOWN} more folders."] if len(found) > SHOWN else []
    return [*found[:SHOWN], *more]


def folder_meant(repo: Repository, name: str) -> Path:
    """A folder that a plan names: seen from the checkout, `~` is the user's home."""
    # Unlike that of Path, this takes the home of somebody who is not known for a name.
    expanded = os.path.expanduser(name)  # noqa: PTH111
    return Path(os.path.normpath((repo.main_top or repo.common_dir) / expanded))


def reach_warning(real: PurePath, home: PurePath, checkout: PurePath | None, git_dir: PurePath) -> str | None:
    """What a person should know of a folder that an agent may write to, links followed; None: it needs no word."""
    if real == home or real in home.parents or str(real) in _WHOLE:
        return "the agent may write to all of it"
    if any(f"/{name}/" in f"{real}/" for name in (*_SECRET, *own_folders())):
        return "secrets are kept there, and the agent may read and change them"
    if real.is_relative_to(git_dir):
        return "git keeps the repository there, and the agent may change it"
    if checkout is None or not real.is_relative_to(checkout):
        return "it is outside of the repository, and the agent may write to it"
    return "it is all of your checkout, and the agent may write to it" if real == checkout else None
