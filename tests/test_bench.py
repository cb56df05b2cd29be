"""The bench measures what it says: every measure works, its judgement is right, and it leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import plans
from bench.__main__ import MEASURES, main
from bench.measuring import Bar, Figures, Measure, Point, Samples, Scaling, judge, run_rounds
from bench.place import Broken, git, open_bench, timed
from bench.repositories import QUICK, Shape, copy_repository, make_repository

ROOT = Path(__file__).parent.parent
LONGEST = 120.0


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """One quick run of everything, and the folder that was its temporary one."""
    folder = tmp_path_factory.mktemp("bench")
    words = [sys.executable, "-m", "bench", "--quick", "--json"]
    env = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LONGEST, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder


def test_every_measure_works(quick: tuple[dict[str, Any], Path]) -> None:
    report, _ = quick

    assert {row["measure"] for row in report["rows"]} == set(MEASURES)
    assert report["scaling"]
    failures = [row["ours"] for row in report["rows"] if row["what"].endswith("failures")]
    assert failures == [0]


def test_every_row_has_a_bar_and_every_ratio_a_floor(quick: tuple[dict[str, Any], Path]) -> None:
    report, _ = quick

    assert all(row["bar"] for row in report["rows"])
    assert all(row["floor"] is not None for row in report["rows"] if row["ratio"] is not None)


def test_measuring_leaves_nothing_behind(quick: tuple[dict[str, Any], Path]) -> None:
    _, folder = quick

    assert list(folder.iterdir()) == []


def test_an_unknown_measure_is_named_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["speed"])

    assert status == 2
    said = capsys.readouterr().err
    assert "speed" in said
    assert "medium" in said


# ------------------------------------------------------------------------------------------ judging


def test_a_ratio_is_taken_within_each_round() -> None:
    samples: Samples = {"ours": [1.0, 20.0, 3.0], "floor": [1.0, 10.0, 1.5]}

    row = judge("m", Bar("what", "ours", "floor", most=2), samples)

    assert (row.ours, row.floor, row.ratio, row.ok) == (3.0, 1.5, 2.0, True)


@pytest.mark.parametrize(
    ("bar", "ok"),
    [
        (Bar("what", "ours", most=3), True),
        (Bar("what", "ours", most=2.9), False),
        (Bar("what", "ours", least=3), True),
        (Bar("what", "ours", least=3.1), False),
        (Bar("what", "ours", "floor", most=1.9), False),
        (Bar("what", "ours", "floor", least=2), True),
        (Bar("what", "ours", most=3, take=max), False),
    ],
)
def test_a_bar_is_met_or_missed(bar: Bar, ok: bool) -> None:
    samples: Samples = {"ours": [2.0, 3.0, 4.0], "floor": [1.0, 1.5, 2.0]}

    assert judge("m", bar, samples).ok is ok


def test_every_side_runs_once_a_round_and_another_one_begins_each_time() -> None:
    order: list[str] = []

    def first() -> Figures:
        order.append("first")
        return {"a": 1.0}

    def second() -> Figures:
        order.append("second")
        return {"b": 4.0}

    scaling = Scaling("cost", (Point("10 jobs", "a"), Point("20 jobs", "b")))
    report = run_rounds(
        "m", Measure((first, second), (Bar("what", "b", "a", most=5),), (scaling,)), 2, lambda: order.append("settled")
    )

    assert [one for one in order if one != "settled"] == ["first", "second", "second", "first"]
    assert order.count("settled") == 4
    assert report.scaling == ("cost: 10 jobs 1 ms, 20 jobs 4 ms",)
    assert report.samples == {"a": [1.0, 1.0], "b": [4.0, 4.0]}


# ------------------------------------------------------------------------------------------- place


def test_the_users_home_and_settings_are_out_of_sight(private_home: Path) -> None:
    before = dict(os.environ)

    with open_bench(quick=True) as bench:
        inside = {name: value for name, value in os.environ.items() if name == "HOME" or name.startswith("XDG_")}

    assert inside
    assert all(Path(value).is_relative_to(bench.folder) for value in inside.values())
    assert str(private_home) not in inside.values()
    assert dict(os.environ) == before
    assert not bench.folder.exists()


def test_a_program_that_fails_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="status 3"):
        timed(["sh", "-c", "echo oh; exit 3"], tmp_path)


def test_a_repository_has_the_files_it_should_and_leaves_beside_them() -> None:
    with open_bench(quick=True) as bench:
        repo = copy_repository(bench, make_repository(bench, Shape(120, 300), leaves=2))

        names = git(repo, "ls-tree", "-r", "--name-only", "origin/main").splitlines()
        leaf = git(repo, "diff", "--name-only", "origin/main", "origin/leaf/1")
        sizes = git(repo, "ls-tree", "-r", "-l", "origin/main").splitlines()

    assert len(names) == 120
    assert leaf == "leaf1.txt"
    assert all(int(row.split()[3]) >= 300 for row in sizes)


# ------------------------------------------------------------------------------------------- plans


def test_a_layered_graph_needs_only_the_layer_before() -> None:
    graph = plans.layered(25, width=10)

    assert len(graph) == 25
    assert graph["j00009"] == []
    assert graph["j00019"] == ["j00009", "j00000", "j00001"]


def test_ninja_gets_the_same_graph(tmp_path: Path) -> None:
    text = plans.write_ninja(tmp_path / "build", plans.chain(2)).read_text()

    assert "build j00000: run\n" in text
    assert "build j00001: run j00000\n" in text


def test_the_quick_shape_is_small() -> None:
    assert QUICK.files * QUICK.bytes_per_file < 10_000
