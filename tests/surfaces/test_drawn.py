"""Whatever a real plan went through, each of its events can be told and the whole of it drawn."""

from collections import Counter

from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.core.views.attempts import attempt_view
from orchard.core.views.plans import plan_view
from orchard.surfaces.cli.render.event_lines import event_lines
from orchard.surfaces.cli.render.lines import plain
from orchard.surfaces.cli.render.tree import end_lines
from orchard.surfaces.next_steps import in_commands
from tests.core.test_changes import stored


def test_every_event_of_real_plans_has_its_line_and_every_plan_its_page() -> None:
    told: Counter[type] = Counter()
    for events in stored():
        run = Run(events[0].plan)
        for one in events:
            apply(run, one)
            told[type(one.event)] += len([plain(line) for line in event_lines(run, one)])
        assert all(plain(line) is not None for line in end_lines(plan_view(run, in_commands).plan))
        assert [attempt_view(run, job) for job in run.plan.jobs]

    assert sum(told.values()) > 500
