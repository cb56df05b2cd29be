"""Everything that can be wrong with a plan file: what is said about it, and where."""

import re

import pytest

from orchard.errors import InvalidInput
from orchard.model import limits
from orchard.model.plan import JobId
from orchard.planfile.parse import parse, parse_jobs, parse_value, parse_work


def problems(text: str | bytes, name: str = "p.yaml") -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        parse(text.encode() if isinstance(text, str) else text, name)
    return [str(problem) for problem in refused.value.problems]


def job(fields: str) -> str:
    """A plan whose one job has these fields, on line 3 from column 15."""
    return f"name: p\njobs:\n- {{id: a,    {fields}}}\n"


def top(fields: str) -> str:
    return f"name: p\njobs: [{{id: a}}]\n{fields}\n"


A = "up to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit"
FORMS = (
    "must be a command line, or an object with one of 'command' (shell), 'executable' (process) "
    "and 'instructions' or 'instructions_file' (agent)"
)
DEEP = "is nested deeper than 64 levels"

# fmt: off
SYNTAX = [
    ("p.yaml", "", "p.yaml: the file is empty"),
    ("p.json", " \n", "p.json: the file is empty"),
    ("p.yaml", "# nothing\n", "p.yaml: the file is empty"),
    ("p.yaml", "- a\n", "p.yaml:1:1: must be an object with fields, not a list"),
    ("p.yaml", "just text", "p.yaml:1:1: must be an object with fields, not text"),
    ("p.yaml", b"name: \xff", "p.yaml:1:7: the file is not UTF-8 text (byte 0xff)"),
    ("p.yaml", "name: p".encode("utf-16"), "p.yaml:1:1: the file is not UTF-8 text (byte 0xff)"),
    ("p.yaml", "name: a\nx: \x1b[31m", "p.yaml:2:4: the character '\\x1b' is not allowed"),
    ("p.yaml", "name: [a", "p.yaml:2:1: is not valid YAML: did not find expected ',' or ']'"),
    ("p.yaml", "name: @agent x", "p.yaml:1:7: is not valid YAML: text that begins with '@' must be in quotes"),
    ("p.yaml", "name: `x`", "p.yaml:1:7: is not valid YAML: text that begins with '`' must be in quotes"),
    ("p.yaml", "a:\n\tb: c", "p.yaml:2:1: is not valid YAML: a tab is used to indent; use spaces"),
    ("p.yaml", "name: a: b", "p.yaml:1:8: is not valid YAML: mapping values are not allowed in this context "
                             "(text that holds ': ' must be in quotes)"),
    ("p.yaml", "name: 'a", "p.yaml:1:9: is not valid YAML: found unexpected end of stream"),
    ("p.yaml", 'name: "\\q"', "p.yaml:1:8: is not valid YAML: found unknown escape character"),
    ("p.yaml", "name: p\nname: q\n", "p.yaml:2:1 name: the key 'name' is given twice"),
    ("p.yaml", "a: &x 1\n", "p.yaml:1:4 a: anchors ('&x') are not used in plans; write the value out"),
    ("p.yaml", "a: *x\n", "p.yaml:1:4 a: aliases ('*x') are not used in plans; write the value out"),
    ("p.yaml", "a: !!str 1\n", "p.yaml:1:4 a: tags ('tag:yaml.org,2002:str') are not used in plans; remove it"),
    ("p.yaml", "a: !x [1]\n", "p.yaml:1:4 a: tags ('!x') are not used in plans; remove it"),
    ("p.yaml", "<<: {a: 1}\n", "p.yaml:1:1 [\"<<\"]: merge keys ('<<') are not used in plans; write the fields out"),
    ("p.yaml", "1: a\n", "p.yaml:1:1 [\"1\"]: a key must be text; put '1' in quotes"),
    ("p.yaml", "true: a\n", "p.yaml:1:1 true: a key must be text; put 'true' in quotes"),
    ("p.yaml", "? [a]\n: b\n", "p.yaml:1:3: a key must be text, not a list or a mapping"),
    ("p.yaml", "a: 1\n---\nb: 2\n", "p.yaml:2:1: a plan is one document; remove the '---' and what follows it"),
    ("p.yaml", "name: .nan", "p.yaml:1:7 name: must be a finite number"),
    ("p.yaml", 'name: "a\\0b"', "p.yaml:1:7 name: holds a NUL character"),
    ("p.yaml", "[" * 100_000, f"p.yaml:1:65 {'[0]' * 64}: {DEEP}"),
    ("p.yaml", "- " * 100_000, f"p.yaml:1:129 {'[0]' * 64}: {DEEP}"),
    ("p.json", '{"name": "p",}', "p.json:1:14: is not valid JSON: Expecting property name enclosed in double quotes"),
    ("p.json", "{'a': 1}", "p.json:1:2: is not valid JSON: Expecting property name enclosed in double quotes"),
    ("p.json", '{"a": 1} x', "p.json:1:10: is not valid JSON: Extra data"),
    ("p.json", '{"a": "\n"}', "p.json:1:8: is not valid JSON: Invalid control character at"),
    ("p.json", '{"a": 1,\n "b": {"c": 1, "c": 2}}', "p.json:2:16 b.c: the key 'c' is given twice"),
    ("p.json", '{"name": NaN}', "p.json:1:10 name: must be a finite number"),
    ("p.json", '{"name": [1, -Infinity]}', "p.json:1:14 name[1]: must be a finite number"),
    ("p.json", '{"name": 1e999}', "p.json:1:10 name: must be a finite number"),
    ("p.json", '{"name": "\\ud800"}', "p.json:1:10 name: holds half of a surrogate pair, which is no character"),
    ("p.json", '{"a\\u0000": 1}', 'p.json:1:2 ["a\\u0000"]: holds a NUL character (in a key)'),
    ("p.json", '{"a": ' + "9" * 5000 + "}", "p.json: is not valid JSON: a number has too many digits"),
    ("p.json", "[" * 100_000, f"p.json: {DEEP}"),
    ("p.json", "[" * 65 + "]" * 65, f"p.json:1:65 {'[0]' * 64}: {DEEP}"),
    ("p.json", "[1]", "p.json:1:1: must be an object with fields, not a list"),
    ("p.toml", "name = ", "p.toml:1:8: is not valid TOML: Invalid value"),
    ("p.toml", 'name = "p"\nname = "q"', "p.toml:2:11: is not valid TOML: Cannot overwrite a value"),
    ("p.toml", "after = 2026-01-01", "p.toml:1:9 after: is a date or time, which plans do not use; put it in quotes"),
    ("p.toml", "[a]\nx = nan", "p.toml:2:5 a.x: must be a finite number"),
    ("p.toml", "a = " + "[" * 5000, f"p.toml: {DEEP}"),
    ("p.toml", "x = 1\n" + "a." * 200_000 + "a = 1", f"p.toml:2:1: {DEEP}"),
    ("p.toml", "x = {" + "a." * 200_000 + "a = 1}", f"p.toml:1:5: {DEEP}"),
]

FIELDS = [
    (top("verfy: make"), "p.yaml:3:1 verfy: unknown field 'verfy'; did you mean 'verify'?"),
    (top("sandbox: off"), "p.yaml:3:10 sandbox: must be 'auto', 'landlock' or 'bwrap', not 'off'"),
    (top("target_brnch: x"),
     "p.yaml:3:1 target_brnch: unknown field 'target_brnch'; did you mean 'target_branch'?"),
    (top('"\\e[2J": x'), "p.yaml:3:1 [\"\\u001b[2J\"]: unknown field '\\x1b[2J'"),
    (job("nedes: [b]"), "p.yaml:3:14 jobs[0].nedes: unknown field 'nedes'; did you mean 'needs'?"),
    (job("work: {command: x, shel: bash}"),
     "p.yaml:3:33 jobs[0].work.shel: unknown field 'shel'; did you mean 'shell'?"),
    (job("work: {command: x, on_failure: {massage: x}}"),
     "p.yaml:3:46 jobs[0].work.on_failure.massage: unknown field 'massage'; did you mean 'message'?"),
    (top("budget: {token: 1}"), "p.yaml:3:10 budget.token: unknown field 'token'; did you mean 'tokens'?"),
    (top("groups: [{name: g, job: []}]"), "p.yaml:3:20 groups[0].job: unknown field 'job'; did you mean 'jobs'?"),
    ("jobs: [{id: a}]", "p.yaml:1:1 name: is required"),
    ("name: p\njobs:\n- name: x\n", "p.yaml:3:3 jobs[0].id: is required"),
    (top("groups: [{jobs: []}]"), "p.yaml:3:10 groups[0].name: is required"),
    (job("work: {type: process}"), "p.yaml:3:20 jobs[0].work.executable: is required"),
    ("name: 3\njobs: [{id: a}]", "p.yaml:1:7 name: must be text, not a whole number"),
    ("name: ''\njobs: [{id: a}]", "p.yaml:1:7 name: must not be empty"),
    ("name: '  '\njobs: [{id: a}]", "p.yaml:1:7 name: must not be empty"),
    (f"name: {'x' * 201}\njobs: [{{id: a}}]", "p.yaml:1:7 name: is longer than 200 characters"),
    ('name: "a\\nb"\njobs: [{id: a}]', "p.yaml:1:7 name: must be one line, without control characters"),
    ("name:\njobs: [{id: a}]", "p.yaml:1:6 name: is empty; give it a value or remove it"),
    (top("verify:"), "p.yaml:3:8 verify: is empty; give it a value or remove it"),
    (job("needs: null"), "p.yaml:3:21 jobs[0].needs: is empty; give it a value or remove it"),
    (top('max_parallel: "3"'), "p.yaml:3:15 max_parallel: must be a whole number, not text"),
    (top("max_parallel: 1.5"), "p.yaml:3:15 max_parallel: must be a whole number, not a number"),
    (top("max_parallel: true"), "p.yaml:3:15 max_parallel: must be a whole number, not true or false"),
    (top("max_parallel: -1"), "p.yaml:3:15 max_parallel: must be at least 0"),
    (top("maxParallel: 1025"), "p.yaml:3:14 maxParallel: must be at most 1024"),
    (top("push: 1"), "p.yaml:3:7 push: must be true or false, not a whole number"),
    (top("cleanup: no"), "p.yaml:3:10 cleanup: must be true or false, not text"),
    (top("land: aks"), "p.yaml:3:7 land: must be 'auto', 'ask', 'never' or 'pr', not 'aks'; did you mean 'ask'?"),
    (top("land: true"), "p.yaml:3:7 land: must be one of 'auto', 'ask', 'never' or 'pr', not true or false"),
    (top("deploy: manuel"),
     "p.yaml:3:9 deploy: must be 'auto' or 'manual', not 'manuel'; did you mean 'manual'?"),
    (top("target: -x"), "p.yaml:3:9 target: must not begin with '-'"),
    (top('base: "a\\tb"'), "p.yaml:3:7 base: must be one line, without control characters"),
    (top("budget: {tokens: 0}"), "p.yaml:3:18 budget.tokens: must be more than 0"),
    (top("budget: {cost: -1}"), "p.yaml:3:16 budget.cost: must be more than 0"),
    (top("budget: 5"), "p.yaml:3:9 budget: must be an object with fields, not a whole number"),
    (top("env: [A]"), "p.yaml:3:6 env: must be an object of names and values, not a list"),
    (top("env: {A: true}"),
     "p.yaml:3:10 env.A: must be text or a number, not true or false; put it in quotes"),
    (top("env: {A: [1]}"), "p.yaml:3:10 env.A: must be text or a number, not a list"),
    (top("env: {A-B: x}"),
     "p.yaml:3:7 env.A-B: 'A-B' is not a valid name of a variable: use letters, digits and '_', and no digit first"),
    (top("env: {GIT_DIR: x}"),
     "p.yaml:3:7 env.GIT_DIR: 'GIT_DIR' would point git at another repository and cannot be set"),
    (top("env: {ORCHARD_JOB: x}"),
     "p.yaml:3:7 env.ORCHARD_JOB: variables that begin with 'ORCHARD_' are set by Orchard itself"),
    (top('env: {"[key]": x}'),
     "p.yaml:3:7 env[\"[key]\"]: '[key]' is not a valid name of a variable: "
     "use letters, digits and '_', and no digit first"),
    (job("priority: 1001"), "p.yaml:3:24 jobs[0].priority: must be at most 1000"),
    (job("priority: -1001"), "p.yaml:3:24 jobs[0].priority: must be at least -1000"),
    (job("heal: 101"), "p.yaml:3:20 jobs[0].heal: must be a whole number from 0 to 100"),
    (job("heal: maybe"), "p.yaml:3:20 jobs[0].heal: must be true, false or a whole number, not text"),
    (job("timeout: 0"), "p.yaml:3:23 jobs[0].timeout: must be more than 0"),
    (job("timeout: 0s"), "p.yaml:3:23 jobs[0].timeout: must be more than 0"),
    (job("timeout: 999999999d"), "p.yaml:3:23 jobs[0].timeout: must be at most 366 days"),
    (job("timeout: soon"),
     "p.yaml:3:23 jobs[0].timeout: 'soon' is not a duration: give seconds, or text such as '90s', '10m' or '1h30m'"),
    (job("timeout: '90'"),
     "p.yaml:3:23 jobs[0].timeout: '90' is not a duration: give seconds, or text such as '90s', '10m' or '1h30m'"),
    (job("timeout: true"),
     "p.yaml:3:23 jobs[0].timeout: must be a number of seconds or text such as '10m', not true or false"),
    (job("approve: 'yes'"), "p.yaml:3:23 jobs[0].approve: must be true or false, not text"),
    (top("groups: g"), "p.yaml:3:9 groups: must be a list, not text"),
    ("name: p\njobs: {id: a}\n", "p.yaml:2:7 jobs: must be a list, not an object"),
    ("name: p\njobs: [a]\n", "p.yaml:2:8 jobs[0]: must be an object with fields, not text"),
]

WORKS = [
    (job("work: ''"), "p.yaml:3:20 jobs[0].work: must not be empty"),
    (job("work: ' '"), "p.yaml:3:20 jobs[0].work: must not be empty"),
    (job("work: '@claude'"), "p.yaml:3:20 jobs[0].work: '@claude' must be followed by instructions"),
    (job("work: 3"), "p.yaml:3:20 jobs[0].work: must be a command line or an object with a 'type', not a whole number"),
    (job("work: [x]"), "p.yaml:3:20 jobs[0].work: must be a command line or an object with a 'type', not a list"),
    (job("work: {}"), f"p.yaml:3:20 jobs[0].work: {FORMS}"),
    (job("work: {command: x, executable: y}"), f"p.yaml:3:20 jobs[0].work: {FORMS}"),
    (job("work: {type: shel, command: x}"), "p.yaml:3:20 jobs[0].work: unknown type 'shel'; did you mean 'shell'?"),
    (job("work: {type: x, command: x}"),
     "p.yaml:3:20 jobs[0].work: unknown type 'x'; it must be 'shell', 'process' or 'agent'"),
    (job("work: {type: 3, command: x}"), f"p.yaml:3:20 jobs[0].work: {FORMS}"),
    (job("work: {type: shell, executable: x}"), "p.yaml:3:20 jobs[0].work.command: is required"),
    (job("work: {command: ''}"), "p.yaml:3:30 jobs[0].work.command: must not be empty"),
    (job('work: {command: "a\\0"}'), "p.yaml:3:30 jobs[0].work.command: holds a NUL character"),
    (job("work: {command: x, shell: fish}"),
     "p.yaml:3:40 jobs[0].work.shell: must be 'sh', 'bash', 'zsh' or 'pwsh', not 'fish'; did you mean 'sh'?"),
    (job("work: {executable: x, args: -l}"), "p.yaml:3:42 jobs[0].work.args: must be a list, not text"),
    (job("work: {executable: x, args: [1]}"), "p.yaml:3:43 jobs[0].work.args[0]: must be text, not a whole number"),
    (job("work: {type: agent}"), "p.yaml:3:20 jobs[0].work: an agent needs 'instructions' or 'instructions_file'"),
    (job("work: {instructions: a, instructions_file: b}"),
     "p.yaml:3:20 jobs[0].work: 'instructions' and 'instructions_file' are both given; give one of them"),
    (job("work: {instructions: a, tier: best}"),
     "p.yaml:3:44 jobs[0].work.tier: must be 'fast', 'standard' or 'premium', not 'best'"),
    (job("work: {instructions: a, agent: -x}"), "p.yaml:3:45 jobs[0].work.agent: must not begin with '-'"),
    (job("work: {instructions: a, max_turns: 0}"), "p.yaml:3:49 jobs[0].work.max_turns: must be at least 1"),
    (job("work: {command: x, cwd: /etc}"), "p.yaml:3:38 jobs[0].work.cwd: must be relative to the worktree"),
    (job("work: {command: x, cwd: a/../../b}"), "p.yaml:3:38 jobs[0].work.cwd: must stay inside the worktree"),
    (job("work: {command: x, cwd: 'a\\..\\..\\b'}"), "p.yaml:3:38 jobs[0].work.cwd: must stay inside the worktree"),
    (job("work: {command: x, cwd: 'C:\\x'}"), "p.yaml:3:38 jobs[0].work.cwd: must be relative to the worktree"),
    (job("work: {command: x, on_failure: {heal: 3}}"),
     "p.yaml:3:52 jobs[0].work.on_failure.heal: must be true or false, not a whole number"),
    (job("work: {command: x, on_failure: {heal: true, no_auto_heal: true}}"),
     "p.yaml:3:45 jobs[0].work.on_failure: 'heal' and 'no_auto_heal' are opposites; give one of them"),
    (job("work: {command: x, on_failure: {resume_from: wrok}}"),
     "p.yaml:3:59 jobs[0].work.on_failure.resume_from: must be 'merge-fi', 'setup', 'prechecks', 'work', 'commit', "
     "'postchecks' or 'merge-ri', not 'wrok'; did you mean 'work'?"),
    (job("prechecks: [ok, {command: 3}]"),
     "p.yaml:3:40 jobs[0].prechecks[1].command: must be text, not a whole number"),
    (job("setup: ['']"), "p.yaml:3:22 jobs[0].setup[0]: must not be empty"),
    (job(f"postchecks: [{', '.join(['x'] * 101)}]"), "p.yaml:3:26 jobs[0].postchecks: has more than 100 entries"),
]

GRAPH = [
    ("name: p\n", "p.yaml:1:1: a plan needs at least one job"),
    ("name: p\njobs: []\n", "p.yaml:2:7 jobs: a plan needs at least one job"),
    ("name: p\ngroups: [{name: g}]\n", "p.yaml:1:1: a plan needs at least one job"),
    ("name: p\njobs: [{id: A}]\n", f"p.yaml:2:13 jobs[0].id: 'A' is not a valid id: use {A}"),
    ("name: p\njobs: [{id: a/b}]\n", f"p.yaml:2:13 jobs[0].id: 'a/b' is not a valid id: use {A}"),
    ("name: p\njobs: [{id: '..'}]\n", f"p.yaml:2:13 jobs[0].id: '..' is not a valid id: use {A}"),
    ('name: p\njobs: [{id: "a\\n"}]\n', f"p.yaml:2:13 jobs[0].id: 'a\\n' is not a valid id: use {A}"),
    ("name: p\njobs: [{id: __snapshot-validation__}]\n",
     f"p.yaml:2:13 jobs[0].id: '__snapshot-validation__' is not a valid id: use {A}"),
    ("name: p\njobs: [{id: 7}]\n", "p.yaml:2:13 jobs[0].id: must be text, not a whole number"),
    (job("group: a//b"),
     "p.yaml:3:21 jobs[0].group: 'a//b' is not a valid group: use names joined by '/', each like the id of a job"),
    (job("group: a/b/c/d/e/f/g/h/i"), "p.yaml:3:21 jobs[0].group: groups are nested at most 8 deep"),
    ("name: p\ngroups: [{name: a/b/c/d/e, groups: [{name: f/g/h/i, jobs: [{id: x}]}]}]\n",
     "p.yaml:2:44 groups[0].groups[0].name: groups are nested at most 8 deep"),
    ("name: p\ngroups: [{name: g, jobs: [{id: x, group: h}]}]\n",
     "p.yaml:2:35 groups[0].jobs[0].group: the job is in group 'g' already"),
    ("name: p\njobs:\n- id: a\n- id: a\n", "p.yaml:4:7 jobs[1].id: the id 'a' is given twice; jobs[0] has it too"),
    ("name: p\njobs:\n- {id: a, group: g}\ngroups:\n- name: g\n  jobs:\n  - id: a\n",
     "p.yaml:7:9 groups[0].jobs[0].id: the id 'g/a' is given twice; jobs[0] has it too"),
    ("name: p\njobs:\n- id: models\n- id: b\n  needs: [mdels]\n",
     "p.yaml:5:11 jobs[1].needs[0]: there is no job 'mdels'; did you mean 'models'?"),
    ("name: p\njobs:\n- {id: models, group: g}\n- {id: b, group: g, needs: modles}\n",
     "p.yaml:4:28 jobs[1].needs: there is no job 'modles'; did you mean 'models'?"),
    (job("needs: ['']"), "p.yaml:3:22 jobs[0].needs[0]: there is no job ''"),
    (job("needs: [a]"), "p.yaml:3:22 jobs[0].needs[0]: the job 'a' needs itself"),
    (job("needs: a"), "p.yaml:3:21 jobs[0].needs: the job 'a' needs itself"),
    (job("needs: [3]"), "p.yaml:3:22 jobs[0].needs[0]: must be text, not a whole number"),
    ("name: p\njobs:\n- id: a\n- id: b\n  needs: [a, a]\n",
     "p.yaml:5:14 jobs[1].needs[1]: the job 'a' is needed twice"),
    ("name: p\njobs:\n- {id: a, group: g}\n- {id: b, group: g, needs: [a, g/a]}\n",
     "p.yaml:4:32 jobs[1].needs[1]: the job 'g/a' is needed twice"),
    ("name: p\njobs:\n- id: x\n- {id: a, needs: c}\n- {id: b, needs: [a, x]}\n- {id: c, needs: b}\n",
     "p.yaml:4:3 jobs[1]: circular dependency: a -> c -> b -> a"),
    (job("needs: [b], dependencies: [c]"),
     "p.yaml:3:26 jobs[0].dependencies: 'dependencies' and 'needs' are the same field; give one of them"),
    (top("maxParallel: 1\nmax_parallel: 1"),
     "p.yaml:3:1 maxParallel: 'maxParallel' and 'max_parallel' are the same field; give one of them"),
    (top("verify: x\nverify_ri: y"),
     "p.yaml:4:1 verify_ri: 'verify_ri' and 'verify' are the same field; give one of them"),
]
# fmt: on


def test_there_are_enough_cases() -> None:
    assert len(SYNTAX) + len(FIELDS) + len(WORKS) + len(GRAPH) > 150


@pytest.mark.parametrize(("name", "text", "expected"), SYNTAX)
def test_text_that_cannot_be_read_is_refused_with_its_place(name: str, text: str | bytes, expected: str) -> None:
    assert expected in problems(text, name)


@pytest.mark.parametrize(("text", "expected"), FIELDS + WORKS + GRAPH)
def test_a_wrong_value_is_named_with_its_place_and_what_would_be_right(text: str, expected: str) -> None:
    found = problems(text)

    assert expected in found
    assert not any(
        re.search(r"Input|union|tag\b|valid string|dict\b|NoneType|\bint\b|\bstr\b|\x1b", line) for line in found
    )


def test_all_problems_are_reported_at_once_in_the_order_of_the_file() -> None:
    text = """\
name: 3
verfy: x
jobs:
- id: a
  needs: [b, nothing]
  work: {comand: x}
- id: b
  needs: [a]
  priority: high
"""

    assert problems(text) == [
        "p.yaml:1:7 name: must be text, not a whole number",
        "p.yaml:2:1 verfy: unknown field 'verfy'; did you mean 'verify'?",
        "p.yaml:4:3 jobs[0]: circular dependency: a -> b -> a",
        "p.yaml:5:14 jobs[0].needs[1]: there is no job 'nothing'",
        f"p.yaml:6:9 jobs[0].work: {FORMS}",
        "p.yaml:9:13 jobs[1].priority: must be a whole number, not text",
    ]


def test_json_and_toml_problems_have_places_too() -> None:
    json = '{"name": "p",\n "jobs": [\n  {"id": "a", "needs": ["a", "\\u00e9,]}"],\n   "nedes": 1}]}'
    toml = 'name = "p"\n[[jobs]]\nid = "a"\n[[jobs]]\nid = "b"\nneeds = ["x"]\n[jobs.work]\ncomand = "x"\n'
    toml += 'task = """\nid = 3\n"""\n[[jobs]]\nid = 3\n'

    assert problems(json, "p.json") == [
        "p.json:3:25 jobs[0].needs[0]: the job 'a' needs itself",
        "p.json:3:30 jobs[0].needs[1]: there is no job 'é,]}'",
        "p.json:4:4 jobs[0].nedes: unknown field 'nedes'; did you mean 'needs'?",
    ]
    assert problems(toml, "p.toml") == [
        "p.toml:6:9 jobs[1].needs[0]: there is no job 'x'",
        f"p.toml:7:1 jobs[1].work: {FORMS}",
        "p.toml:13:6 jobs[2].id: must be text, not a whole number",
    ]


def test_only_the_first_hundred_problems_are_shown() -> None:
    text = "name: p\njobs:\n" + "".join(f"- {{id: j{n}, wrk: x}}\n" for n in range(150))

    found = problems(text)

    assert len(found) == 101
    assert found[0] == "p.yaml:3:12 jobs[0].wrk: unknown field 'wrk'; did you mean 'work'?"
    assert found[-1] == "... and 50 more"


def test_a_long_circle_is_cut_short() -> None:
    text = "name: p\njobs:\n" + "".join(f"- {{id: j{n}, needs: j{(n + 1) % 500}}}\n" for n in range(500))

    (found,) = problems(text)

    assert len(found) < 200
    assert found.startswith("p.yaml:3:3 jobs[0]: circular dependency: j0 -> j1 -> ")


def test_the_limits_of_size_hold() -> None:
    long_text = "x" * (limits.STRING_BYTES + 1)
    many = "name: p\njobs:\n" + "".join(f"- id: j{n}\n" for n in range(limits.JOBS + 1))
    needs = "name: p\njobs:\n- id: x\n  needs: [{}]\n".format(", ".join(f"j{n}" for n in range(201)))
    needs += "".join(f"- id: j{n}\n" for n in range(201))

    assert problems(b" " * (limits.PLAN_BYTES + 1)) == [
        "p.yaml: the file has 2097153 bytes; at most 2097152 are allowed"
    ]
    assert problems(f"name: p\njobs:\n- id: a\n  task: {long_text}\n") == [
        "p.yaml:4:9 jobs[0].task: is text of 262145 bytes; at most 262144 are allowed"
    ]
    assert problems(many) == ["p.yaml:3:1 jobs: a plan has at most 10000 jobs, not 10001"]
    assert problems(needs) == ["p.yaml:4:10 jobs[0].needs: a job needs at most 200 others, not 201"]


def test_values_from_elsewhere_are_refused_by_path() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    cases: list[tuple[object, str]] = [
        (None, "plan: is empty; give it a value or remove it"),
        ([], "plan: must be an object with fields, not a list"),
        ({"name": "p", "jobs": [{"id": "a", "work": {1: 2}}]}, 'jobs[0].work["1"]: a key must be text (in a key)'),
        ({"name": "p", "jobs": deep}, f"jobs{'[0]' * 63}: {DEEP}"),
        ({"name": "p", "jobs": [{"id": "a", "task": b"x"}]}, "jobs[0].task: is a date or time"),
    ]

    for value, expected in cases:
        with pytest.raises(InvalidInput) as refused:
            parse_value(value)
        assert str(refused.value.problems[0]).startswith(expected[:60])
        assert refused.value.what == "plan"


def test_a_single_work_is_refused_with_the_path_it_was_found_at() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_work({"command": "", "tmeout": 3}, "setup[2]")

    assert [str(problem) for problem in refused.value.problems] == [
        "setup[2].command: must not be empty",
        "setup[2].tmeout: unknown field 'tmeout'; did you mean 'timeout'?",
    ]


def test_new_jobs_are_checked_like_those_of_a_file() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_jobs([{"id": "x", "needs": ["y"], "nmae": "n"}, {"id": "y", "needs": ["x", "old"]}], [JobId("old")])

    assert [str(problem) for problem in refused.value.problems] == [
        "jobs[0]: circular dependency: x -> y -> x",
        "jobs[0].nmae: unknown field 'nmae'; did you mean 'name'?",
    ]


def test_the_error_says_what_to_read_and_exits_as_a_usage_error() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(b"name: p\n", "dir/plan.yaml")

    assert refused.value.exit_code == 2
    assert str(refused.value) == "dir/plan.yaml:1:1: a plan needs at least one job"
