"""Landings and undos of thousands of files that something hits in the middle: the checkout is whole, old or new."""

from collections.abc import Iterator

import pytest

from tests.proof.landing_moments import Ground, Moment, disturb, moments

SEED = 20261116
FILES = 3000
SAMPLE = (
    Moment("land", "engine", 0.75, "commit", 1),
    Moment("undo", "both", 0.6, "edit", 2),
)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(tmp_path_factory.mktemp("few"), 120)
    yield ground
    ground.close()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(tmp_path_factory.mktemp("many"), FILES)
    yield ground
    ground.close()


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(tmp_path_factory.mktemp("filtered"), 150, slow=0.01)
    yield ground
    ground.close()


@pytest.mark.parametrize("moment", SAMPLE, ids=str)
def test_a_landing_that_is_hit_leaves_the_checkout_whole(few: Ground, moment: Moment) -> None:
    assert disturb(few, moment) == ""


@pytest.mark.slow
@pytest.mark.parametrize("moment", list(moments(SEED, 150)), ids=str)
def test_a_landing_of_thousands_of_files_that_is_hit_leaves_the_checkout_whole(many: Ground, moment: Moment) -> None:
    assert disturb(many, moment) == ""


@pytest.mark.slow
@pytest.mark.parametrize("moment", list(moments(SEED + 1, 50)), ids=str)
def test_a_landing_with_slow_filters_that_is_hit_leaves_the_checkout_whole(filtered: Ground, moment: Moment) -> None:
    assert disturb(filtered, moment) == ""
