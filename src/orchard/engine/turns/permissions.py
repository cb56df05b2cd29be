"""What an agent may use in a turn, and who says so: its row, the repository, the job, the work, and whoever asks it.

Each of them can only take away (`model.permissions`). What holds is recorded when a turn begins, with where it comes
from, so that it can be read later.
"""

from collections.abc import Sequence

from orchard.agents.definitions.choice import Choice
from orchard.config.layers import Config
from orchard.config.load import REPOSITORY_FILE
from orchard.core.records import JobRecord
from orchard.model.agent_rows import BUILTIN
from orchard.model.permissions import ALL, Source, Tools, all_of
from orchard.model.plan import AgentWork, Job, Work


def configured(config: Config, agent: str) -> tuple[Source, ...]:
    """What the configuration says of an agent."""
    row = config.builtin if agent == BUILTIN else config.agents.get(agent)
    said = (
        Source(f"[agents.{agent}]", row.permissions if row is not None else ALL),
        Source(REPOSITORY_FILE, config.narrowing.get(agent, ALL)),
    )
    return _telling(said)


def by_choice(config: Config, chosen: Choice) -> tuple[Source, ...]:
    """What the configuration says of an agent, and the definition by which it works."""
    return (*configured(config, chosen.agent.name), *_telling((Source(f"definition '{chosen.name}'", chosen.tools),)))


def for_job(config: Config, chosen: Choice, job: Job, work: Work | None) -> tuple[Source, ...]:
    """What holds for an agent that does a work of a job, or heals it."""
    own = work.tools if isinstance(work, AgentWork) else ALL
    return (*by_choice(config, chosen), *_telling((Source("the job", job.tools), Source("the work", own))))


def handed_on(config: Config, chosen: Choice, parent: Tools, asked: Tools) -> tuple[Source, ...]:
    """What holds for an agent that another one asks for help: never more than that one has."""
    said = (Source("its parent", parent), *by_choice(config, chosen), Source("the request", asked))
    return _telling(said)


def read_only(record: JobRecord) -> bool:
    """Whether the agent that last had a turn for the job's own work can only read: then no change is what is right."""
    turns = record.last.turns if record.last is not None else []
    mine = [turn for turn in turns if turn.purpose == "work" and turn.subtask is None]
    return bool(mine) and all_of(mine[-1].tools).only_reads


def _telling(said: Sequence[Source]) -> tuple[Source, ...]:
    return tuple(one for one in said if one.tools != ALL)
