"""Whether a repository is still the one that an engine was opened for.

A folder can be removed and made anew under a running engine: a clone is thrown away and cloned again. The files that
the old engine has open are then nobody's any more, and what it acknowledged is in no journal that anybody can read.
"""

import os

from orchard.engine.server.address import LOCK_FILE
from orchard.git.repository import Repository
from orchard.store.journal import JournalFailed
from orchard.store.plan_list import JOURNAL_FILE


class RepositoryReplaced(JournalFailed):
    """Where the repository was there is another one, or none: its engine ends."""


class Whereabouts:
    """The files that make an engine the one engine of a repository, as they were when it was opened."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._files = [os.fspath(path) for path in (repo.state, repo.state / JOURNAL_FILE, repo.state / LOCK_FILE)]
        self._found = self._look()

    def check(self) -> None:
        """Raise where they are not there any more, or others are; a few looks at the disk, so it may be done often."""
        if self._look() != self._found:
            raise RepositoryReplaced(
                f"The repository {self._repo.common_dir}, or what Orchard keeps there, was removed or replaced "
                "while its engine ran; what was not recorded there before is not done.",
                hint="Ask again: what is there now has an engine of its own.",
            )

    def _look(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(map(_identity, self._files))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (hot)
    except OSError:
        return None
    return found.st_dev, found.st_ino
