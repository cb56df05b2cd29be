"""Writes docs/plan-file.md from the models, so that it cannot say anything else than the parser does.

python tools/plan_reference.py            write it
python tools/plan_reference.py --check    exit 1 if it is not what would be written
"""

import sys
from pathlib import Path
from typing import Any

from orchard.model import limits
from orchard.planfile.fields import MODELS, WorkFields
from orchard.planfile.forms import OTHER_NAMES, camel
from orchard.planfile.parse import schema
from orchard.planfile.rules import DEEPEST_GROUP

PAGE = Path(__file__).parent.parent / "docs" / "plan-file.md"

TITLES = {
    "PlanFields": "Plan",
    "JobFields": "Job",
    "GroupFields": "Group",
    "ShellFields": "Shell work",
    "ProcessFields": "Process work",
    "AgentFields": "Agent work",
    "OnFailureFields": "On failure",
    "BudgetFields": "Budget",
}

OPENING = """\
# The plan file

<!-- Written by tools/plan_reference.py. Change the models in src/orchard/planfile/fields.py, or that program. -->

A plan says which jobs to do, which job needs which, and where the result goes. It is written in YAML,
or with the same fields in JSON or TOML; the format follows from the name of the file.

```yaml
name: Add login
target: feature/login
verify: make test
jobs:
  - id: models
    work: "@agent Add a User model with a hashed password"
  - id: api
    needs: [models]
    work:
      type: agent
      agent: claude
      instructions: |
        # Login endpoint
        POST /login returns a session cookie.
    postchecks: pytest -q tests/api
  - id: docs
    needs: [models]
    work: python tools/gen_docs.py
```

`orchard validate plan.yaml` checks a plan and starts nothing. `orchard schema` prints its JSON Schema, which
editors use to complete and to check. All problems are reported at once, each with its line and column.
"""

WORK = """\
## Work

Wherever a work is asked for, a line of text will do, or an object of one of three forms.

| written as | means |
| --- | --- |
| `make test` | shell work: the text is the command |
| `"@agent Add a test"` | agent work for the default agent: the rest is the task |
| `"@claude Add a test"` | agent work for the agent of that name |
| an object with `command` | [shell work](#shell-work) |
| an object with `executable` | [process work](#process-work) |
| an object with `instructions` or `instructions_file` | [agent work](#agent-work) |

`prechecks`, `postchecks` and `setup` take one work or a list of them. In YAML, text that begins with `@` or that
holds `: ` must be in quotes.

```yaml
name: All forms of work
setup: [npm ci]
jobs:
  - id: lint
    changes: forbidden
    work: npm run lint
  - id: build
    timeout: 10m
    work:
      executable: cargo
      args: [build, --release]
      cwd: engine
      env: {RUSTFLAGS: -D warnings}
  - id: rename
    needs: [lint, build]
    heal: 2
    prechecks: make test
    work:
      type: agent
      instructions_file: tasks/rename.md
      tier: premium
      max_turns: 40
    postchecks:
      - make test
      - command: make bench
        timeout: 1h30m
        on_failure:
          heal: false
          message: The benchmark is slower than before.
          resume_from: work
```
"""

GROUPS = """\
## Groups and needs

A job in a group has the full id `group/id`. In `needs`, a bare id is looked for in the job's own group, then in
the groups around it, then at the top; an id with a `/` is a full id. What a job needs must not lead back to it.

```yaml
name: Groups
jobs:
  - id: base
  - id: tests
    group: api
    needs: [base]
    work: make -C api test
groups:
  - name: web
    jobs:
      - id: build
        needs: [base, api/tests]
        work: make -C web
    groups:
      - name: e2e
        jobs:
          - id: login
            needs: build
            work: make -C web e2e
```
"""

YAML_RULES = """\
## What YAML may hold

YAML is read as version 1.2: `no`, `on` and `1:30` are text, `true` and `null` are not. Anchors, aliases, tags, merge
keys, a key given twice and more than one document are refused. An empty value (`verify:` with nothing after it) is
refused too: remove the field instead. Numbers in `env` are passed on as they were written: `1.10` stays `1.10`.
"""

ENVIRONMENT = """\
## Environment

Shell and process work sees the variables of the machine, without git's own (`GIT_DIR` and the like) and without
names that look like secrets, unless `pass_env` in the configuration names them. Agents see only a short list of
common variables and what the configuration names, and a plan may not set what steers them
([what an agent sees](agents.md#what-an-agent-sees)). Over that come `env` of the plan, of the job and of the work, the
last one winning, and then `ORCHARD_PLAN`, `ORCHARD_JOB`, `ORCHARD_ATTEMPT`, `ORCHARD_WORKTREE`, `ORCHARD_BASE`,
`ORCHARD_TARGET`, `ORCHARD_EVIDENCE` and `ORCHARD_PORT`, and what is for Orchard itself: `ORCHARD_TOKEN`, by which it
finds the processes of a job, and `TRACEPARENT` where plans are [traced](tracing.md). A plan cannot set variables that
begin with `ORCHARD_`, nor those that point git at another repository.

### Ports

Jobs that start servers at the same time must not want the same port. `ORCHARD_PORT` is the first of ten ports that
are the job's alone while it runs: the job may listen on `$ORCHARD_PORT` up to `$ORCHARD_PORT` + 9. No two running
jobs of yours have the same ones, in whichever repository they run, and Orchard gives out no range in which a program
already listens. They lie between 20000 and 29999. All programs of an attempt have the same ports, subtasks of its
agent included; the next attempt may have others.

```yaml
name: End to end
jobs:
  - id: e2e
    work: |
      npm start -- --port "$ORCHARD_PORT" &
      npx wait-on "http://127.0.0.1:$ORCHARD_PORT" && npm test -- --base-url "http://127.0.0.1:$ORCHARD_PORT"
```

A `setup` that names the variable runs for every job, since a worktree that was set up for other ports does not fit.
Behind the wall `bwrap` a job has a network of its own, in which its ports are free as well; behind `landlock` a job
cannot listen at all.

### Evidence

Work that changes no file and should not fail for that writes a JSON document to the path in `ORCHARD_EVIDENCE`:

```text
{"type": "analysis", "summary": "counted the files", "outcome": {"files": 17}}
```

`summary` is required. `type` is `file_changes`, `external_effect`, `analysis` or `validation`; `outcome` is any object.
`orchard job JOB` shows it.
"""

OTHER_FORMATS = """\
## JSON and TOML

```json
{"name": "Add login", "jobs": [{"id": "models", "work": "@agent Add a User model"}]}
```

```toml
name = "Add login"

[[jobs]]
id = "models"
work = "@agent Add a User model"

[[jobs]]
id = "api"
needs = ["models"]
work = { executable = "make", args = ["api"] }
```
"""


def page() -> str:
    """The whole text of the page."""
    shapes = schema()
    tables = {model.__name__: _table(model, shapes) for model in MODELS}
    work = [tables[name] for name in ("ShellFields", "ProcessFields", "AgentFields")]
    parts = [OPENING, tables["PlanFields"], tables["JobFields"], GROUPS, tables["GroupFields"], WORK, *work]
    parts += [_shared_table(shapes), tables["OnFailureFields"], tables["BudgetFields"]]
    parts += [ENVIRONMENT, _limits(), YAML_RULES, OTHER_FORMATS, _aliases()]
    return "\n".join(parts)


def _table(model: type[Any], shapes: dict[str, Any], shared: bool = False) -> str:
    shape = shapes if model.__name__ == "PlanFields" else shapes["$defs"].get(model.__name__, shapes)
    left_out = set() if shared or not issubclass(model, WorkFields) else set(WorkFields.model_fields)
    level = "###" if issubclass(model, WorkFields) else "##"
    rows = [f"{level} {TITLES[model.__name__]}", "", model.__doc__ or "", "", "| field | type | default | meaning |"]
    rows.append("| --- | --- | --- | --- |")
    for name, field in model.model_fields.items():
        if name not in left_out and not field.exclude:
            rows.append(_row(name, field, shape["properties"][name]))
    return "\n".join(rows) + "\n"


def _shared_table(shapes: dict[str, Any]) -> str:
    rows = ["### Fields of every work", "", "| field | type | default | meaning |", "| --- | --- | --- | --- |"]
    properties = shapes["$defs"]["ShellFields"]["properties"]
    rows += [_row(name, field, properties[name]) for name, field in WorkFields.model_fields.items()]
    return "\n".join(rows) + "\n"


def _row(name: str, field: Any, shape: dict[str, Any]) -> str:
    absent = "required" if field.is_required() else field.json_schema_extra["x-absent"]
    if absent.startswith(("[", "{", '"')) or absent in ("true", "false", "0", "auto", "squash", "sh") or absent == name:
        absent = f"`{absent}`"
    return f"| `{name}` | {_type(shape)} | {absent} | {field.description} |"


def _type(shape: dict[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "$ref" in shape:
        title = TITLES[shape["$ref"].rpartition("/")[2]]
        return f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
    if "enum" in shape or "const" in shape:
        # Words that some readers of YAML take for true or false are taken as such; people write the words.
        choices = shape.get("enum", [shape.get("const")])
        written = [choice for choice in choices if not isinstance(choice, bool)]
        return ", ".join(f"`{choice}`" for choice in written or choices)
    if "oneOf" in shape:
        forms = [_type(form) for form in shape["oneOf"]]
        return "[work](#work)" if "[shell work](#shell-work)" in forms else " or ".join(forms)
    if shape["type"] == "array":
        return f"list of {_type(shape['items'])}"
    if shape["type"] == "object":
        return "names with text or numbers"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    return words[shape["type"]] + _bounds(shape)


def _bounds(shape: dict[str, Any]) -> str:
    if "minimum" in shape and "maximum" in shape:
        return f", {shape['minimum']} to {shape['maximum']}"
    if "exclusiveMinimum" in shape:
        return f" above {shape['exclusiveMinimum']:g}"
    return f", at most {shape['maxLength']} characters" if "maxLength" in shape else ""


def _limits() -> str:
    rows = [
        ("size of the file", f"{limits.PLAN_BYTES // 1024 // 1024} MiB of UTF-8"),
        ("jobs", f"1 to {limits.JOBS:,}"),
        ("needs of a job", str(limits.NEEDS_PER_JOB)),
        ("prechecks, postchecks of a job", f"{limits.CHECKS_PER_JOB} each"),
        ("works in a `setup`", str(limits.SETUP_WORKS)),
        ("length of a name", f"{limits.NAME_LENGTH} characters, one line"),
        ("an id", f"`{limits.JOB_ID_PATTERN}`"),
        ("groups inside groups", f"{DEEPEST_GROUP} deep"),
        ("nesting of the document", f"{limits.NESTING} levels"),
        ("a text", f"{limits.STRING_BYTES // 1024} KiB"),
    ]
    table = "\n".join(f"| {what} | {limit} |" for what, limit in rows)
    return f"## Limits\n\n| what | limit |\n| --- | --- |\n{table}\n"


def _aliases() -> str:
    names = {own: dict.fromkeys([other, camel(other)]) for own, other in OTHER_NAMES.items()}
    rows = "\n".join(f"| `{own}` | {', '.join(f'`{name}`' for name in others)} |" for own, others in names.items())
    return f"""\
## Other names

Every field may also be written in camelCase (`maxParallel`). For those who come from other tools, these names
are accepted as well; giving a field twice under two names is refused. Editors that use the JSON Schema know only
the names of the tables above.

| field | other names |
| --- | --- |
{rows}
| the opposite of `heal` in `on_failure` | `no_auto_heal`, `noAutoHeal` |
"""


def main(arguments: list[str]) -> int:
    """Write the page, or say whether it is up to date."""
    text = page()
    if arguments == ["--check"]:
        fresh = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        if not fresh:
            sys.stderr.write("docs/plan-file.md is stale; run: python tools/plan_reference.py\n")
        return 0 if fresh else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
