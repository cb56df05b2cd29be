"""What the journal keeps of a plan is the plan."""

import json
import subprocess
import sys

from hypothesis import given, settings

from orchard.model.plan import VALIDATION, AgentWork, Job, JobId, OnFailure, Plan, ShellWork, Work, with_validation
from orchard.model.plan_codec import plan_from_json, plan_json, work_from_json, work_json
from tests.core.strategies import plans, works


@settings(deadline=None)
@given(plans())
def test_any_plan_comes_back_from_json_as_it_was(plan: Plan) -> None:
    text = json.dumps(plan_json(plan))

    again = plan_from_json(json.loads(text))

    assert again == plan
    assert list(again.jobs) == list(plan.jobs)


@settings(deadline=None)
@given(plans())
def test_the_json_form_survives_json_itself(plan: Plan) -> None:
    # Events hold this form and are compared with what was read back: tuples would come back as lists.
    body = plan_json(plan)

    assert json.loads(json.dumps(body)) == body


@settings(deadline=None)
@given(works())
def test_any_work_comes_back_from_json_as_it_was(work: Work) -> None:
    again = work_from_json(json.loads(json.dumps(work_json(work))))

    assert again == work
    assert type(again) is type(work)


def test_what_is_default_is_left_out() -> None:
    job = Job(id=JobId("g/a"), name="a", group="g", work=ShellWork(command="true"))
    plan = with_validation(Plan(name="small", jobs={job.id: job}, verify=ShellWork(command="make test")))

    assert plan_json(plan) == {
        "name": "small",
        "verify": {"type": "shell", "command": "make test"},
        "jobs": [{"id": "g/a", "group": "g", "work": {"type": "shell", "command": "true"}}],
    }


def test_the_validation_job_is_made_anew() -> None:
    job = Job(id=JobId("a"), name="a")
    plan = with_validation(Plan(name="small", jobs={job.id: job}, verify=ShellWork(command="make test")))

    again = plan_from_json(plan_json(plan))

    assert again.jobs[VALIDATION].needs == (job.id,)
    assert again.jobs[VALIDATION].work == ShellWork(command="make test")


def test_false_zero_and_nothing_stay_three_different_answers() -> None:
    answers = [None, False, True, 0, 1]
    jobs = [Job(id=JobId(f"j{n}"), name=f"j{n}", heal=heal) for n, heal in enumerate(answers)]
    plan = with_validation(Plan(name="p", jobs={job.id: job for job in jobs}))

    again = plan_from_json(json.loads(json.dumps(plan_json(plan))))

    assert [repr(job.heal) for job in again.jobs.values() if job.id != VALIDATION] == [repr(heal) for heal in answers]
    work = AgentWork(instructions="x", resume_session=False, on_failure=OnFailure(heal=False))
    assert work_from_json(work_json(work)) == work


def test_reading_a_stored_plan_loads_no_parser() -> None:
    code = (
        "import sys, orchard.model.plan_codec; print(sorted({'pydantic', 'ruamel', 'ruamel.yaml'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"


@settings(max_examples=5, deadline=None)
@given(plans(max_jobs=3))
def test_encoding_leaves_the_plan_alone(plan: Plan) -> None:
    before = repr(plan)

    plan_json(plan)["jobs"].clear()

    assert repr(plan) == before
