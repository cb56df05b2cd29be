"""The bench measures what it says: every measure works, its judgement is right, and it leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from bench import plans
from bench.__main__ import MEASURES, _missing, main
from bench.repositories import QUICK, Shape, copy_repository, make_repository

from orchard.bench.machine import Watch, caution, described, file_system
from orchard.bench.place import git, open_bench
from orchard.bench.rounds import Bar, Figures, Measure, Point, Row, Samples, Scaling, judge, run_rounds, table
from orchard.process.families.table import all_processes
from orchard.process.stopwatch import Broken, held_signals, started, timed
from tests.test_docs import tool

ROOT = Path(__file__).parent.parent
LONGEST = 240.0
HERE = [name for name in MEASURES if not _missing([name])]
"""The measures whose floors can be run on this machine."""


SOME = ["scaling", "journal", "start"]


@pytest.fixture(scope="module", params=[SOME, pytest.param(HERE, marks=pytest.mark.slow)], ids=["some", "every"])
def quick(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """One quick run of some measures or of all, and the folder that was its temporary one."""
    folder = tmp_path_factory.mktemp("bench")
    words = [sys.executable, "-m", "bench", "--quick", "--json", "--save", str(folder.parent / "saved.json")]
    words += request.param
    env = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LONGEST, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder


def test_every_measure_works(quick: tuple[dict[str, Any], Path]) -> None:
    report, _ = quick

    measured = {row["measure"] for row in report["rows"]}
    assert measured in ({*SOME}, {*HERE})
    assert {"scaling", "lock", "journal", "parse", "start"} <= set(HERE)
    assert report["scaling"]
    failures = [row["ours"] for row in report["rows"] if row["what"].endswith("failures")]
    assert failures == ([0] if "lock" in measured else [])


def test_all_but_one_row_have_a_bar_and_every_ratio_has_a_floor(quick: tuple[dict[str, Any], Path]) -> None:
    report, _ = quick

    assert [row["measure"] for row in report["rows"] if not row["bar"]] == ["scaling"]
    assert all(row["floor"] is not None for row in report["rows"] if row["ratio"] is not None)


def test_the_report_says_on_what_machine_it_was_made(quick: tuple[dict[str, Any], Path]) -> None:
    report, folder = quick

    assert report["cores"] == os.cpu_count()
    assert report["file_system"] and report["git"][0].isdigit() and report["date"].startswith("20")
    assert {"load_before", "load_after", "busy_percent", "quiet", "seconds", "rounds"} <= set(report)
    assert json.loads((folder.parent / "saved.json").read_text()) == report


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


def test_a_figure_without_a_bar_is_shown_and_not_judged() -> None:
    row = judge("m", Bar("what", "ours", "floor"), {"ours": [3.0], "floor": [1.0]})

    assert (row.ratio, row.bar, row.ok) == (3.0, "", True)


# ----------------------------------------------------------------------------------------- machine


def test_a_busy_machine_is_told_and_a_quiet_one_is_not(tmp_path: Path) -> None:
    watch = Watch(tmp_path, look=0.0)
    quiet = watch.facts()
    watch.busiest = 60.0
    busy = watch.facts()

    assert caution(quiet) is None
    assert "60 %" in (caution(busy) or "")
    assert f"{os.cpu_count()} cores" in described(busy)


def test_the_file_system_is_that_of_the_nearest_mount() -> None:
    assert file_system(Path("/proc")) == "proc"


# ------------------------------------------------------------------------------------------- pages


def result(**facts: object) -> dict[str, object]:
    row = {"measure": "m", "what": "some jobs: a script", "floor": 1.0, "ours": 1.5, "unit": "s", "ratio": 1.5,
           "bar": "≤ 1.8×", "ok": True}  # fmt: skip
    machine = {"date": "2026-01-01", "system": "Linux", "cores": 2, "file_system": "ext4", "git": "2.39.5",
               "python": "3.11.7", "load_before": 0.1, "load_after": 0.2, "busy_percent": 1, "quiet": True}  # fmt: skip
    return {**machine, "rounds": 3, "rows": [row], "scaling": ["jobs: 100 jobs 1 ms"], **facts}


def test_the_published_tables_are_those_of_the_saved_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool("bench_table").main(["--check"]) == 0, capsys.readouterr().err


def test_stale_tables_are_noticed_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tool("bench_table")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    figures = tmp_path / "figures.json"
    figures.write_text(json.dumps(result()))
    monkeypatch.setattr(made, "FIGURES", figures)
    monkeypatch.setattr(made, "PAGES", {page: made.PAGES[made.README]})
    monkeypatch.setattr(made, "SHOWN", ("some jobs: a script",))

    assert made.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().err
    made.main([])
    assert made.main(["--check"]) == 0
    assert page.read_text().startswith("before\n") and page.read_text().endswith("after\n")
    assert "| some jobs: a script | 1 s | 1.5 s | 1.50× | ≤ 1.8× | ok |" in page.read_text()


def test_the_readme_shows_rows_that_are_measured() -> None:
    made = tool("bench_table")
    figures = json.loads(made.FIGURES.read_text("utf-8"))

    assert set(made.SHOWN) <= {row["what"] for row in figures["rows"]}


def test_the_published_tables_say_what_was_missed_and_that_others_were_at_work() -> None:
    made = tool("bench_table")
    row = {**result()["rows"][0], "ok": False}  # type: ignore[index]
    text = made.in_full(result(rows=[row], quiet=False, busy_percent=70))

    assert "MISS" in text and "70 %" in text and "100 jobs 1 ms" in text


def test_a_page_without_its_markers_is_refused() -> None:
    with pytest.raises(SystemExit, match="bench"):
        tool("bench_table").between_markers("nothing here", "table")


def test_a_table_has_a_verdict_only_where_it_is_judged() -> None:
    row = Row("m", "what", None, 3.0, "s", None, "≤ 2 s", ok=False)

    assert "MISS" in table([row], judged=True)
    assert "MISS" not in table([row], judged=False)


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


def test_a_signal_waits_until_somebody_can_clean_up() -> None:
    steps: list[str] = []

    with pytest.raises(KeyboardInterrupt), held_signals() as deliver:
        signal.raise_signal(signal.SIGINT)
        steps.append("made")
        deliver()
        steps.append("never")

    assert steps == ["made"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whoever_leaves_early_ends_the_program_and_its_children(tmp_path: Path) -> None:
    words = ["sh", "-c", "sh -c 'trap \"\" TERM; touch ready; while :; do sleep 0.1; done' & wait"]
    with pytest.raises(KeyError), started(words, tmp_path) as process:
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
            time.sleep(0.01)
        raise KeyError

    assert [stat.pid for stat in all_processes() if stat.group == process.pid and not stat.dead] == []


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
