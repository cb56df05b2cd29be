"""An input/output error at every step that tests can reach, in a run, in recovery and in undo."""

from functools import partial

from orchard.process.failpoint import known
from tests.proof.crash_cells import ELSEWHERE
from tests.proof.faults import FAULTS, Fault, Scene

WORDS = r"input/output error|can record nothing|interrupted"
STEPS = [f"an-error-at-{name}" for name in known() if not name.startswith(ELSEWHERE)]


def strike(place: str, scene: Scene) -> None:
    """Let a step fail the first or the second time, wherever a plan comes through it."""
    scene.skip_first_failure()
    armed = f"{place}:{1 + scene.seed % 2}:error"
    part = place.partition(".")[0]
    if part == "undo":
        undo(scene, f"{place}:1:error")
    elif part == "recovery":
        scene.killed_at("snapshot.before-publish:1")
        scene.ask("resume", ORCHARD_FAILPOINT=f"{place}:1:error")
    else:
        scene.ask("run", scene.plan_file, ORCHARD_FAILPOINT=armed)


def undo(scene: Scene, armed: str) -> None:
    """A landing that is taken back with an error on the way: it is back, or it says so and can be tried again."""
    scene.ask("run", scene.plan_file)
    before, landed = scene.repo.head("main"), scene.repo.head(scene.target)
    first = scene.ask("undo", "--yes", ORCHARD_FAILPOINT=armed)
    there = scene.repo.run("rev-parse", "-q", "--verify", f"refs/heads/{scene.target}").text
    assert first.code != 0 or there in ("", before)
    assert there in ("", before, landed)
    scene.words = ""
    if not scene.status()["plan"]["undone"]:  # the error may have come after everything was done
        assert scene.ask("undo", "--yes").code == 0
    assert scene.ask("land", scene.status()["plan"]["id"], "--yes").code == 0
    scene.landings = 2


for _step in STEPS:
    FAULTS[_step] = Fault(_step, partial(strike, _step.removeprefix("an-error-at-")), WORDS, slow=True)
