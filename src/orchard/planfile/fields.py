"""The fields of a plan file: the one source for checking it, for its JSON Schema and for its documentation.

These models say what may be written; `core.plan` holds what is meant. A field that was not written
is never read from here (`model_fields_set` tells), so that defaults live in `core.plan` alone; a
`None` below only means "may be left out", and writing an empty value is a mistake that is reported.

What these models check is written down for `given` as well, which reads a plan without pydantic: `checks.py` is
made from them by `tools/plan_checks.py`.
"""

import sys
from types import ModuleType
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasGenerator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from orchard.model import limits
from orchard.model.plan import Changes, Effort, Resolver, Shell, Tier
from orchard.planfile import rules
from orchard.planfile.forms import MARK, form_of_list, form_of_work, names_of
from orchard.planfile.values import (
    Address,
    AgentName,
    Environment,
    Folder,
    Group,
    Heal,
    Id,
    Line,
    Needs,
    Network,
    Params,
    PhaseName,
    Positive,
    Protected,
    Seconds,
    Text,
    ToolList,
    ToolSet,
    Word,
)


class _NoPlugins(ModuleType):
    """In place of what looks for plugins of pydantic when the first model is built.

    It would read what every installed package says of itself, which takes longer than building all models, and run
    whatever calls itself a plugin in the process that holds the user's keys.
    """

    @staticmethod
    def get_plugins() -> tuple[()]:
        return ()


sys.modules.setdefault("pydantic.plugin._loader", _NoPlugins("pydantic.plugin._loader"))


def _optional(description: str, absent: str = "none", **limit: Any) -> Any:
    """A field that may be left out, and what the documentation says then holds."""
    return Field(default=None, description=description, json_schema_extra={"x-absent": absent}, **limit)


class Fields(BaseModel):
    """What all models share: nothing unknown, nothing converted."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        defer_build=True,
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(*names_of(name))),
    )


def given_in(model: Fields) -> dict[str, Any]:
    """What was written; all else that the model has only stands for what was left out."""
    return {name: getattr(model, name) for name in model.model_fields_set}


class OnFailureFields(Fields):
    """What to do, and to say, when this work fails."""

    heal: bool = _optional("Whether an agent may try to heal a failure of this work.", "what the job says")
    message: Text = _optional("Told to people, and to the agent that heals, when this work fails.")
    resume_from: PhaseName = _optional("The phase at which a retry of the job begins.", "the phase that failed")
    no_auto_heal: bool = _optional("The opposite of `heal`.", exclude=True)

    @model_validator(mode="after")
    def heal_is_said_once(self) -> Self:
        """Refuse two answers to one question."""
        rules.heal_is_said_once(given_in(self))
        return self


class WorkFields(Fields):
    """What every kind of work has."""

    env: Environment = _optional("Environment variables, over those of the job and the plan.", "{}")
    cwd: Annotated[str, AfterValidator(rules.checked_cwd)] = _optional(
        "The folder to run in: a relative path that stays inside the worktree.", "the top of the worktree"
    )
    timeout: Seconds = _optional(
        "How long it may take: seconds, or text such as `90s`, `10m` or `1h30m`. Time while the machine is "
        "asleep is not counted.",
        "what the job says",
    )
    on_failure: OnFailureFields = _optional("What to do, and to say, when this work fails.")


class ShellFields(WorkFields):
    """A command line, given to a shell."""

    type: Literal["shell"] = _optional("Always `shell`; may be left out, since only this form has `command`.", "shell")
    command: Text = Field(description="The command line.")
    shell: Shell = _optional("The shell that reads it.", "sh")


class ProcessFields(WorkFields):
    """A program, started directly: no shell reads its arguments."""

    type: Literal["process"] = _optional(
        "Always `process`; may be left out, since only this form has `executable`.", "process"
    )
    executable: Text = Field(description="The program: a name to be found on the PATH, or a path.")
    args: list[str] = _optional("Its arguments, each passed on as it is.", "[]")


class AgentFields(WorkFields):
    """A task for a coding agent."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["instructions"]}, {"required": ["instructions_file"]}]}
    )

    type: Literal["agent"] = _optional(
        "Always `agent`; may be left out, since only this form has `instructions`.", "agent"
    )
    instructions: Text = _optional("The task, in Markdown. Either this or `instructions_file` is required.")
    instructions_file: Text = _optional(
        "A file that holds the task: committed in what the job starts from, and named from the top of the repository."
    )
    agent: AgentName = _optional(
        "Which agent: its name, that of a definition (`architect`), or both (`claude:architect`).",
        "from the configuration",
    )
    model: Word = _optional("The model, by the name the agent knows it by.", "the agent's own choice")
    tier: Tier = _optional("How capable a model has to be, where none is named.")
    effort: Effort = _optional("How much the model should think.", "the agent's own choice")
    max_turns: Annotated[int, Field(ge=1, le=100_000)] = _optional("How many turns it may take.", "no limit")
    context_files: list[Text] = _optional(
        "Files it should read first, named from the top of the repository; one that is not there is warned about.", "[]"
    )
    allowed_folders: list[Folder] = _optional("Folders outside the worktree that it may write to.", "[]")
    allowed_urls: list[Address] = _optional(
        "Addresses that it may reach: `host`, `host:port`, `*.host` or a URL. Behind a wall it reaches these and its "
        "model; without one, only agents that have such a setting can be held to it, and the job says where not.",
        "[]",
    )
    resume_session: bool = _optional(
        "On a retry: whether it goes on in the session of the attempt before.", "yes, if the agent can"
    )
    interactive: bool = _optional(
        "Whether it waits after its turn, for a message or to be told that it is done. Only for the work of a job, "
        "not for checks.",
        "false",
    )
    mcp_servers: list[Word] = _optional("Servers of the configuration that it may use.", "[]")
    tools: ToolSet = _optional(
        "What it may use, of what the job allows: `read-only`, `edit`, `all`, `ask` (a person is asked before what "
        "does more than read), or a list of tools. The job says where an agent cannot be held to it.",
        "what the job says",
    )
    deny_tools: ToolList = _optional("Tools that it may not use; `git_*` stands for all that begin so.", "[]")
    ask_tools: ToolList = _optional("Tools before each use of which a person is asked.", "[]")

    @model_validator(mode="after")
    def task_is_given_once(self) -> Self:
        """Refuse an agent without a task, and one with two."""
        rules.task_is_given_once(given_in(self))
        return self


WorkText = Annotated[str, AfterValidator(rules.checked_work_text), Field(description=rules.AGENT_TEXT)]
Work = Annotated[
    Annotated[WorkText, Tag(MARK + "text")]
    | Annotated[ShellFields, Tag(MARK + "shell")]
    | Annotated[ProcessFields, Tag(MARK + "process")]
    | Annotated[AgentFields, Tag(MARK + "agent")],
    Discriminator(form_of_work, custom_error_type="plan_form", custom_error_message=rules.NO_FORM),
]
Checks = Annotated[
    Annotated[Work, Tag(MARK + "one")]
    | Annotated[list[Work], Field(max_length=limits.CHECKS_PER_JOB), Tag(MARK + "list")],
    Discriminator(form_of_list),
]
Setup = Annotated[
    Annotated[Work, Tag(MARK + "one")]
    | Annotated[list[Work], Field(max_length=limits.SETUP_WORKS), Tag(MARK + "list")],
    Discriminator(form_of_list),
]


class JobFields(Fields):
    """One unit of work: what to run, after which jobs, and how to tell that it went well."""

    id: Id = Field(description="Names the job, once in its group: lowercase letters, digits, `.`, `_` and `-`.")
    name: Line = _optional("What people see, and the subject of its commit.", "the id")
    task: str = _optional(
        "What it is about: for people, and the text of its commit. With `agent` and without `work`: the agent's task.",
        '""',
    )
    agent: Word = _optional("The agent that does the `task`, for a job without `work`; `agent`: the usual one.")
    group: Group = _optional("The group it belongs to, such as `api` or `api/tests`; its full id is then `group/id`.")
    needs: Needs = _optional(
        "The jobs whose results it starts from, by id. A bare id means a job of the same group if there is one, "
        "then of the groups around it, then of the top; `group/id` is resolved from the top level.",
        "[]",
    )
    work: Work = _optional("What it does. Left out, it only gathers what it needs.")
    prechecks: Checks = _optional("Has to pass before the work starts.")
    postchecks: Checks = _optional("Has to pass on the commit that the work led to.")
    setup: Setup = _optional("Sets its worktree up, instead of the plan's `setup`.", "the plan's")
    changes: Changes = _optional(
        "Whether it has to change files. `required`: without a change, or evidence of why there is none, it fails; "
        "`optional`: it succeeds either way; `forbidden`: a change fails, as of a linter or a test.",
        "`required` for the work of an agent, else `optional`",
    )
    retries: Annotated[int, Field(ge=0, le=100)] = _optional(
        "How often work that is a command or a program is run again when it fails, each time in a clean worktree, "
        "before an agent heals it.",
        "0",
    )
    allow_failure: bool = _optional(
        "Whether the plan goes on when it fails: its failure is shown, and the jobs that need it start as if it had "
        "changed nothing.",
        "false",
    )
    expects_no_changes: bool = _optional("`true` is `changes: forbidden`.", "false", exclude=True)
    heal: Heal = _optional(
        "Whether an agent heals failures: `true`, `false`, or how often it may try in each phase.",
        "from the configuration",
    )
    env: Environment = _optional("Environment variables for all its works, over those of the plan.", "{}")
    timeout: Seconds = _optional("How long each of its works may take, unless that work says otherwise.", "no limit")
    priority: Annotated[int, Field(ge=-1000, le=1000)] = _optional("Of jobs that could start, higher goes first.", "0")
    retry_on_interrupt: bool = _optional(
        "Whether work that was cut off by a crash is started again by itself.", "false"
    )
    approve: bool = _optional("Whether it stops after its postchecks until a person approves the change.", "false")
    tools: ToolSet = _optional(
        "What every agent that works on it may use, also to heal it, and its subtasks: `read-only`, `edit`, "
        "`all`, `ask` (a person is asked before what does more than read), or a list of tools.",
        "all",
    )
    deny_tools: ToolList = _optional("Tools that none of them may use; `git_*` stands for all that begin so.", "[]")
    ask_tools: ToolList = _optional("Tools before each use of which a person is asked.", "[]")
    network: Network = _optional("`off`: behind the wall, its programs reach no network.", "from the plan")
    unprotected: list[Protected] = _optional(
        "Names at the top of the worktree that are protected behind the wall, and that it may change: `.github`.",
        "from the plan",
    )

    @model_validator(mode="after")
    def changes_are_said_once(self) -> Self:
        """Refuse two answers to one question."""
        rules.changes_are_said_once(given_in(self))
        return self

    @model_validator(mode="after")
    def task_of_an_agent_is_its_work(self) -> Self:
        """Refuse an agent that would have two tasks, or none."""
        rules.task_of_an_agent_is_its_work(given_in(self))
        return self


class GroupFields(Fields):
    """Jobs that belong together; the same as giving each of them `group`."""

    name: Group = Field(description="Names the group, below the group it stands in.")
    jobs: list[JobFields] = _optional("Its jobs.", "[]")
    groups: list["GroupFields"] = _optional("Groups inside it.", "[]")


class BudgetFields(Fields):
    """What a plan may use before it pauses; at 80 % there is a warning."""

    tokens: Annotated[int, Field(gt=0, le=limits.BUDGET_TOKENS)] = _optional(
        "Tokens, of all agents together.", "no limit"
    )
    cost: Positive = _optional("Cost, in the currency that agents report.", "no limit")
    minutes: Positive = _optional("Minutes since the plan started.", "no limit")


class PlanFields(Fields):
    """A plan: jobs, how they depend on each other, and where their result goes."""

    model_config = ConfigDict(title="Orchard plan")

    name: Line = Field(description="What people see, and what new branches are named after.")
    description: Text = _optional("What it is for: people see it, and every agent of the plan is told.", '""')
    base: Word = _optional(
        "The branch or commit that the first jobs start from; pinned to a commit when the plan starts.",
        "the current branch",
    )
    target: Word = _optional(
        "The branch to land on; made from the base if it does not exist, never reset if it does.",
        "the base branch; where that is the repository's default branch, a new branch `orchard/<name>`",
    )
    jobs: list[JobFields] = _optional("The jobs.", "[]")
    groups: list[GroupFields] = _optional("Jobs in groups.", "[]")
    max_parallel: Annotated[int, Field(ge=0, le=limits.MAX_PARALLEL)] = _optional(
        "How many of its jobs run at once; `0` sets no limit of its own.", "from the configuration"
    )
    verify: Work = _optional("Checks the merged result of all jobs before it lands.")
    setup: Setup = _optional(
        "Sets a worktree up for a job: installs what it needs. What git does not ignore of it is part of the job's "
        "work, and lands.",
        "from the configuration",
    )
    params: Params = _optional(
        "Values that are put in wherever a text of the plan says `${{ name }}`. A value here is the default; a name "
        "without one has to be given. `$${{ name }}` stands for the text `${{ name }}` itself.",
        "{}",
    )
    env: Environment = _optional("Environment variables for every job.", "{}")
    start_paused: bool = _optional("Whether it waits to be resumed before its first job starts.", "false")
    after: Word = _optional("Another plan, by its id or its unique name: this one starts when that one has succeeded.")
    cleanup: bool = _optional(
        "Whether a worktree is taken back as soon as its job has succeeded; else it is kept to look at.", "true"
    )
    worktree_root: Annotated[Text, AfterValidator(rules.checked_line)] = _optional(
        "The folder for worktrees.", "`.worktrees`"
    )
    merge: Literal["squash", "merge"] = _optional(
        "`squash`: one commit on the target for each last job; `merge`: merge commits with the full history.", "squash"
    )
    resolver: Resolver = _optional("What resolves a merge conflict.", "from the configuration")
    land: Literal["auto", "ask", "never", "pr"] = _optional(
        "`auto`: the result lands once it is checked; `ask`: when a person approves; "
        "`never`: it stays on a new branch `orchard/<name>`; `pr`: it is pushed to a branch `orchard/<plan>`, and a "
        "pull request is opened for the target.",
        "auto",
    )
    push: bool = _optional(
        "Whether the target is pushed after landing; if that fails, the landing stands.", "from the configuration"
    )
    submodules: bool = _optional(
        "Whether each worktree gets its submodules, and those inside them, before it is set up. A job may then move a "
        "submodule to another commit that its remote has; edits inside of one are refused.",
        "from the configuration",
    )
    deploy: Literal["auto", "manual"] = _optional(
        "`auto`: jobs start by themselves; `manual`: a job runs only when a person or an agent deploys it.",
        "auto",
    )
    budget: BudgetFields = _optional("What it may use before it pauses.", "no limit")
    sandbox: Literal["auto", "landlock", "bwrap"] = _optional(
        "The wall around its programs, where the configuration has none or a weaker one; it cannot take one away.",
        "from the configuration",
    )
    network: Network = _optional("`off`: behind the wall, its programs reach no network.", "from the configuration")
    unprotected: list[Protected] = _optional(
        "Names at the top of the worktree that are protected behind the wall, and that its jobs may change.", "[]"
    )


MODELS: tuple[type[Fields], ...] = (
    PlanFields,
    JobFields,
    GroupFields,
    ShellFields,
    ProcessFields,
    AgentFields,
    OnFailureFields,
    BudgetFields,
)
FORMS: dict[str, type[Fields]] = {"shell": ShellFields, "process": ProcessFields, "agent": AgentFields}
INSIDE: dict[str, type[Fields]] = {
    **dict.fromkeys(names_of("jobs"), JobFields),
    "groups": GroupFields,
    "budget": BudgetFields,
    **dict.fromkeys(names_of("on_failure"), OnFailureFields),
}
"""Which model a field holds, by each of its names."""

WHOLE: dict[str, Any] = {"plan": PlanFields, "job": JobFields, "jobs": list[JobFields], "work": Work}
"""What is read by itself."""
