"""A repository is removed and made anew under a running engine: nothing is acknowledged that nobody can find again."""

import asyncio
import shutil
from pathlib import Path

import pytest

from orchard.app import open_app
from orchard.engine.server.address import read_address
from orchard.engine.server.start import OwnEngine, RepositoryReplaced
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.engine.conftest import Orchard

pytestmark = pytest.mark.anyio

PLAN = b"name: n\nstart_paused: true\njobs: [{id: a, work: 'echo a > a.txt'}]\n"


def made_anew(orchard: Orchard) -> Repo:
    """The same path, another repository."""
    shutil.rmtree(orchard.repo.path)
    return Repo.make(orchard.repo.path, files={"README.md": "# anew\n"})


async def test_what_is_asked_of_a_repository_that_was_made_anew_is_refused_in_words(orchard: Orchard) -> None:
    app = orchard.app
    with pytest.raises(RepositoryReplaced, match="removed or replaced"):
        async with asyncio.timeout(30), app.session() as session:
            await session.request("create_plan", plan=app.parse_plan(None, PLAN))
            repo = made_anew(orchard)
            with pytest.raises(RepositoryReplaced, match="removed or replaced"):
                await session.request("create_plan", plan=app.parse_plan(None, PLAN))
            await asyncio.sleep(10)  # the engine ends by itself

    assert app.plans() == []
    assert [ref for ref in repo("for-each-ref", "--format=%(refname)").splitlines() if "orchard" in ref] == []


async def test_an_engine_that_nobody_asks_ends_when_its_repository_is_another(orchard: Orchard) -> None:
    app = orchard.app
    with pytest.raises(RepositoryReplaced):
        async with asyncio.timeout(30), app.session() as session:
            assert isinstance(session.link, OwnEngine)
            made_anew(orchard)
            session.link.engine.wake()
            await asyncio.sleep(10)


async def test_the_old_engine_leaves_the_door_of_the_new_one_alone(orchard: Orchard) -> None:
    old = orchard.app
    with pytest.raises(RepositoryReplaced):
        async with asyncio.timeout(30), old.session() as session:
            made_anew(orchard)
            new = open_app(orchard.repo.path, in_commands)
            async with new.session(work=False) as second:
                assert second.owns_engine
                with pytest.raises(RepositoryReplaced):
                    await session.request("create_plan", plan=old.parse_plan(None, PLAN))
                await asyncio.sleep(0)
                address = read_address(new.repo.state)
                assert address is not None
                assert Path(address.socket).exists()
            await asyncio.sleep(10)


async def test_nothing_is_made_where_a_repository_was(orchard: Orchard) -> None:
    app = orchard.app
    shutil.rmtree(orchard.repo.path)

    with pytest.raises(Exception, match="is gone"):
        async with app.session():
            pass
    assert not orchard.repo.path.exists()
