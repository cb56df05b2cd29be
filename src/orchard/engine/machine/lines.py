"""Where a line belongs that opens something in the wall around a job, fit to what its plan and the settings say now."""

from orchard.core.run import Run
from orchard.engine.machine.refusals import Line
from orchard.engine.world import World
from orchard.model.names import JobId
from orchard.model.plan import AgentWork
from orchard.text import quoted


def how_to(world: World, run: Run, job: JobId, line: Line) -> str:
    """What a person does so that the line holds."""
    if "." in line.key:
        return world.opening_line(line.key, line.values)
    return _in_plan(world, run, job, line)


def _in_plan(world: World, run: Run, job: JobId, line: Line) -> str:
    file, found = run.file or "the plan", run.job(job)
    own = f"of job {quoted(job)} in {file}"
    if line.key == "unprotected":
        if found.unprotected is not None:
            return f"add {line.values} to unprotected {own}"
        return f"add {line.values} to unprotected in {file}" if run.plan.unprotected else f"put {line} into {file}"
    if not isinstance(found.work, AgentWork):  # an agent that heals: it has no work of its own in the plan
        return world.opening_line("sandbox.allow", line.values)
    if found.work.allowed_urls:
        return f"add {line.values} to {line.key} in the work {own}"
    return f"put {line} into the work {own}"


def how_to_have_network(world: World, run: Run, job: JobId) -> str:
    """What a person does where somebody says `network: off`."""
    file = run.file or "the plan"
    if run.job(job).network == "off":
        return f"take network: off away from job {quoted(job)} in {file}"
    if run.plan.network == "off":
        return f"take network: off away from {file}"
    return world.opening_line("sandbox.network", '"on"')
