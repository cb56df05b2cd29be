"""More rows for the table of `test_bad_input.py`: values that somebody chose to do harm, and every verb misnamed."""

from tests.acceptance.bad_rows import JOBS, ONE, TOP, Row, plan, said


def job(name: str, fields: str, *says: str) -> Row:
    """A job with one bad field."""
    return plan(name, f"{JOBS}  - {{id: a, work: x, {fields}}}\n", *says)


def work(name: str, fields: str, *says: str) -> Row:
    """Work with one bad field."""
    return plan(name, f"{JOBS}  - {{id: a, work: {{{fields}}}}}\n", *says)


def named(name: str, job_id: str, *says: str) -> Row:
    """A job with a bad id."""
    return plan(name, f"{JOBS}  - {{id: {job_id}}}\n", *(says or ("not a valid id",)))


def top(name: str, line: str, *says: str) -> Row:
    """A plan with one bad line."""
    return plan(name, f"{line}\n{TOP}", *says)


def as_json(name: str, text: str | bytes, *says: str) -> Row:
    return plan(name, text, *says, file="plan.json")


NINES = "9" * 5000
NAMES = [
    plan("a name with an escape", f'name: "a\\e[31m"\njobs:\n{ONE}', "without control characters"),
    plan("a name that rings", f'name: "a\\x07"\njobs:\n{ONE}', "without control characters"),
    plan("a name of blanks", f"name: '   '\njobs:\n{ONE}", "must not be empty"),
    plan("a name that is a number", f"name: 5\njobs:\n{ONE}", "must be text, not a whole number"),
    plan("a name that is a list", f"name: [x]\njobs:\n{ONE}", "must be text, not a list"),
    named("an id of dots", ".."),
    named("an id that climbs", "../../etc"),
    named("an id that is a path", "/etc"),
    named("an id with a slash", "a/b"),
    named("an id in capitals", "ABC"),
    named("an id of 65 characters", "x" * 65),
    named("an empty id", "''"),
    named("no id", "null", "give it a value"),
    named("an id that is a number", "5", "must be text"),
    named("an id that is not ASCII", "ä"),
    named("an id written backwards", '"a\\u202eb"', "\\u202e"),
    named("an id with NUL", '"a\\0b"', "holds a NUL character"),
    named("an id of two lines", '"a\\nb"', "\\n"),
    plan("a job without an id", f"{JOBS}  - {{work: x}}\n", "jobs[0].id: is required"),
    plan("a job that is text", f"{JOBS}  - a\n", "must be an object", "not text"),
    plan("a job that is nothing", f"{JOBS}  - null\n", "is empty"),
    plan("jobs that are text", "name: P\njobs: all\n", "must be a list, not text"),
    plan("jobs that are a number", "name: P\njobs: 3\n", "must be a list"),
    plan("a group of dots", "name: x\ngroups: [{name: .., jobs: [{id: c}]}]", "not a valid group"),
    plan("a group without a name", "name: x\ngroups: [{jobs: [{id: c}]}]", "groups[0].name: is required"),
    plan("an unknown field of a group", "name: x\ngroups: [{name: a, job: [{id: c}]}]", "did you mean 'jobs'?"),
    plan("groups that are text", "name: x\ngroups: a\n", "must be a list"),
    job("a group from the root", "group: /a", "not a valid group"),
    job("a group with a gap", "group: a//b", "not a valid group"),
    job("a group of 70 levels", f"group: {'/'.join('g' * 70)}", "at most 8 deep"),
    job("needs that are text", "needs: b", "no job 'b'"),
    job("a need that is a number", "needs: [1]", "must be text"),
    job("a need like an option", "needs: ['--all']", "no job '--all'"),
    job("a need of nothing", "needs: ['']", "no job ''"),
    plan("a need given twice", f"{JOBS}  - {{id: b}}\n  - {{id: a, needs: [b, b]}}\n", "needed twice"),
    plan(
        "a circle of three",
        f"{JOBS}  - {{id: a, needs: [c]}}\n  - {{id: b, needs: [a]}}\n  - {{id: c, needs: [b]}}\n",
        "a -> c -> b -> a",
    ),
]
VALUES = [
    job("a timeout of nothing", "timeout: 0", "more than 0"),
    job("a timeout that is no number", "timeout: .nan", "finite"),
    job("a timeout without end", "timeout: .inf", "finite"),
    job("a timeout of ages", "timeout: 99999999999999999999", "at most 366 days"),
    job("a timeout in parsecs", "timeout: 5 parsecs", "not a duration"),
    job("a timeout that is a list", "timeout: [1]", "not a list"),
    job("a timeout that is empty", "timeout: ''", "not a duration"),
    job("a timeout that is true", "timeout: true", "not true or false"),
    job("a priority in words", "priority: high", "whole number"),
    job("a priority above all", "priority: 99999999999999999999999", "at most 1000"),
    job("half a priority", "priority: 1.5", "whole number"),
    job("healing perhaps", "heal: maybe", "true, false or a whole number"),
    job("healing less than never", "heal: -1", "from 0 to 100"),
    job("healing for ever", "heal: 100000", "from 0 to 100"),
    job("variables in a list", "env: [A]", "not a list"),
    job("a variable with '='", "env: {'A=B': c}", "not a valid name"),
    job("a variable without a name", "env: {'': c}", "not a valid name"),
    job("a variable with NUL in its name", 'env: {"A\\0": c}', "NUL"),
    job("a variable with NUL", 'env: {A: "x\\0y"}', "NUL"),
    job("a variable that is a list", "env: {A: [1]}", "must be text or a number"),
    job("a variable with a digit first", "env: {1A: c}", "not a valid name"),
    job("the token of a family", "env: {ORCHARD_TOKEN: c}", "set by Orchard"),
    job("another index", "env: {GIT_INDEX_FILE: c}", "another repository"),
    job("checks that are a number", "prechecks: 5", "command line"),
    job("a check with a slip", "postchecks: [{comand: x}]", "'command' (shell)"),
    job("approval perhaps", "approve: maybe", "true or false"),
    job("a number of no changes", "expects_no_changes: 3", "true or false"),
    job("a retry in words", "retry_on_interrupt: 'yes'", "true or false"),
    job("one field in two spellings", "needs: [], dependencies: []", "are the same field"),
    work("a folder from the root", "command: x, cwd: /etc", "relative to the worktree"),
    work("a folder that climbs out later", "command: x, cwd: a/../../b", "inside the worktree"),
    work("a folder with NUL", 'command: x, cwd: "a\\0b"', "NUL"),
    work("a command that is a list", "command: [x]", "must be text"),
    work("a command with NUL", 'command: "x\\0y"', "NUL"),
    work("a shell without a command", "type: shell", "command: is required"),
    work("a process without a program", "type: process", "executable: is required"),
    work("a process of nothing", "type: process, executable: ''", "must not be empty"),
    work("arguments that are text", "type: process, executable: x, args: y", "must be a list"),
    work("an argument with NUL", 'type: process, executable: x, args: ["a\\0"]', "NUL"),
    work("two kinds of work at once", "command: x, executable: y", "one of"),
    work("an agent by its type", "type: agent, instructions: x", "work for an agent"),
    work("a failure that resumes at lunch", "command: x, on_failure: {resume_from: lunch}", "'merge-ri', not 'lunch'"),
    work("an unknown field of a failure", "command: x, on_failure: {hael: true}", "did you mean 'heal'?"),
    plan("work that is a list", f"{JOBS}  - {{id: a, work: [x]}}\n", "not a list"),
    plan("work that is a number", f"{JOBS}  - {{id: a, work: 5}}\n", "not a whole number"),
    plan("an agent by its name", f"{JOBS}  - {{id: a, work: '@claude do it'}}\n", "work for an agent"),
]
WHOLE = [
    top("a limit beyond all limits", "max_parallel: 99999999999999999999", "at most 1024"),
    top("one and a half jobs", "max_parallel: 1.5", "whole number"),
    top("a limit that is no number", "max_parallel: .nan", "finite"),
    top("a limit of 5,000 digits", f"max_parallel: {NINES}", "whole number"),
    top("a field in two spellings", "max_parallel: 1\nmaxParallel: 2", "are the same field"),
    top("a base like all options", "base: '--all'", "must not begin with '-'"),
    top("a base with NUL", 'base: "a\\0b"', "NUL"),
    top("a base of two lines", 'base: "a\\nb"', "one line"),
    top("a base that is a number", "base: 5", "must be text"),
    top("HEAD as target", "target: HEAD", "not a name that git allows"),
    top("a lock as target", "target: a.lock", "not a name that git allows"),
    top("a target with NUL", 'target: "a\\0b"', "NUL"),
    top("an empty target", "target: ''", "must not be empty"),
    top("a target of 300 characters", f"target: {'x' * 300}", "longer than 200"),
    top("all branches as target", "target: refs/heads/", "not a name that git allows"),
    top("a resolver of one's own", "resolver: me", "'theirs' or 'fail'"),
    top("an unknown field of a budget", "budget: {minute: 3}", "did you mean 'minutes'?"),
    top("a budget in words", "budget: {minutes: soon}", "must be a number"),
    top("a budget that is no number", "budget: {minutes: .nan}", "finite"),
    top("a budget that is a list", "budget: [3]", "not a list"),
    top("a debt", "budget: {tokens: -3}", "more than 0"),
    top("a worktree root with NUL", 'worktree_root: "a\\0b"', "NUL"),
    top("a worktree root of two lines", 'worktree_root: "a\\nb"', "one line"),
    top("a worktree root above", "worktree_root: ../..", "holds the repository"),
    top("a file as worktree root", "worktree_root: README.md", "is not a folder"),
    top("an empty worktree root", "worktree_root: ''", "must not be empty"),
    top("git's objects as worktree root", "worktree_root: .git/objects", "git's own folder"),
    top("a number to verify", "verify: 5", "command line"),
    top("a push perhaps", "push: maybe", "true or false"),
    top("a number of cleanups", "cleanup: 5", "true or false"),
    top("a number of pauses", "start_paused: 5", "true or false"),
    top("variables within variables", "env: {A: {b: c}}", "not an object"),
    top("after an option", "after: '-x'", "must not begin with '-'"),
    top("a key that is a number", "5: x", "a key must be text"),
    top("a key that is nothing", "null: x", "a key must be text"),
    top("a key that is a list", "[a]: x", "not a list or a mapping"),
    top("a key for other languages", "__proto__: x", "unknown field '__proto__'"),
    top("a key with an escape", '"\\e[31m": x', "\\u001b[31m"),
    top("a key written backwards", '"na\\u202eme": x', "did you mean 'name'?"),
    as_json("JSON of 3,000 levels", '{"name": ' + "[" * 3000 + "]" * 3000 + "}", "deeper than 64"),
    as_json("a JSON infinity", '{"name": "x", "jobs": [{"id": "a", "timeout": Infinity}]}', "finite"),
    as_json("a JSON number beyond numbers", '{"name": "x", "jobs": [{"id": "a", "timeout": 1e999}]}', "finite"),
    as_json("a JSON number of 5,000 digits", f'{{"max_parallel": {NINES}}}', "too many digits"),
    as_json("half a JSON character", '{"name": "\\ud800", "jobs": [{"id": "a"}]}', "half of a surrogate pair"),
    as_json("JSON and more", '{"name": "x", "jobs": [{"id": "a"}]} more', ":1:38", "not valid JSON"),
    as_json("JSON after a mark", b'\xef\xbb\xbf{"name": }', "not valid JSON"),
    as_json("JSON with a comment", '{"name": "x" // no\n}', "not valid JSON"),
    plan("half a YAML character", 'name: "\\ud800"\njobs: [{id: a}]', "not valid YAML"),
    plan("200 mappings", f"name: x\njobs: {'{a: ' * 200}1{'}' * 200}", "deeper than 64"),
    plan("an open quote", "name: 'x\njobs: []", "not valid YAML"),
    plan("a field that stands out", "name: x\njobs:\n  - id: a\n work: b\n", ":4:2", "not valid YAML"),
    plan("a TOML date", 'name = 2024-01-01\n[[jobs]]\nid = "a"\n', "a date or time", file="plan.toml"),
    plan("a TOML nan", 'name = "x"\n[[jobs]]\nid = "a"\ntimeout = nan\n', "finite", file="plan.toml"),
    plan("TOML of 3,000 levels", f"a = {'[' * 3000}{']' * 3000}", "deeper than 64", file="plan.toml"),
]
NONE = "no plan in this repository yet"
VERBS = [
    *(
        said(f"{verb} of nothing", verb, 2, "Missing argument 'JOB'")
        for verb in ("job", "approve", "force-fail", "attempts")
    ),
    said("reshape of nothing", "reshape", 2, "Missing argument 'PLAN'"),
    said("validate of nothing", "validate", 2, "Cannot read 'plan.yaml'"),
    *(
        said(f"{verb} where no plan is", f"{verb}{more}", 3, NONE)
        for verb, more in {
            "pause": "", "resume": "", "undo": " --yes", "land": "", "delete": " --yes", "purge": " --yes", "diff": "",
            "wait": "", "graph": "", "job": " a", "logs": "", "approve": " a --yes", "force-fail": " a",
            "attempts": " a",
        }.items()
    ),
    *(said(f"{verb} of too much", f"{verb} x", 2, "unexpected extra") for verb in ("schema plan", "doctor", "list")),
    said("reshape of an unknown plan", "reshape x --remove y", 3, "no plan"),
    said("status of two plans", "status a b", 2, "unexpected extra argument"),
    said("status with an unknown option", "status --nope", 2, "--nope"),
    said("a demo with an unknown option", "demo --nope", 2, "--nope"),
    said("a version with a value", "--version=3", 2, "does not take a value"),
    said("a repository without a name", "-C", 2, "requires an argument"),
    said("a phase without a name", "logs a --phase", 2, "requires an argument"),
    said("a wait in words", "wait --timeout soon", 2, "--timeout"),
    said("a wait for no number", "wait --timeout nan", 2, "finite number"),
    said("a wait for ever and ever", "wait --timeout inf", 2, "finite number"),
    said("attempt 0", "logs a --attempt 0", 2, "x>=1"),
    said("all attempts and one of them", "logs a --all --attempt 2", 2, "exclude each other"),
    said("a list and one of it", "recover --list refs/x y", 2, "'--list' takes no REF"),
    said("1,025 jobs at once", "run FILE --max-parallel 1025", 2, "0<=x<=1024"),
    said("one and a half jobs at once", "run FILE --max-parallel 1.5", 2, "--max-parallel"),
    said("a measurement of no jobs", "bench --jobs 0", 2, "--jobs"),
    said("a measurement of nothing known", "bench nothing", 2, "is not one of"),
    said("a completion for no shell", "completion", 2, "Missing argument"),
    said("an empty --base", "run FILE --base=", 2, "not a branch or commit"),
    said("an empty --target", "run FILE --target=", 2, "not a branch or commit"),
    said("HEAD as --target", "run FILE --target HEAD", 2, "not a name that git allows"),
    said("a --target like an option", "run FILE --target=--all", 2, "not a branch or commit"),
    said("two commits as --base", "run FILE --base a..b", 2, "no branch or commit 'a..b'"),
    said("a tree as --base", "run FILE --base HEAD^{tree}", 2, "no branch or commit"),
    said("the null device as plan", "run /dev/null", 2, "the file is empty"),
    said("a folder to write a plan to", "init .", 2, "exists already"),
    said("a plan in no folder", "init /nonexist/plan.yaml", 2, "Cannot write"),
    said("a drawing in no folder", "graph FILE -o /nonexist/x.svg", 2, "Cannot write"),
    said("a plan named with 5,000 letters", f"status {'x' * 5000}", 3, "no plan"),
    said("a plan named with an escape", "status a\x1b[31m", 3, "no plan"),
    said("a plan named backwards", "status a\u202eb", 3, "no plan"),
    said("a plan named as a path", "status ../../etc", 3, "no plan"),
    said("a plan named as an option", "status -- -x", 3, "no plan"),
    said("a verb with an escape", "a\x1b[31mb", 2, "no command"),
    said("a verb written backwards", "a\u202eb", 2, "no command"),
    said("a capacity beyond all", "list", 2, "from 0 to 1024", ORCHARD_CAPACITY="999999999999999999"),
    said("a negative grace", "list", 2, "from 0 to 3600", ORCHARD_GRACE="-1"),
    said("a grace that is no number", "list", 2, "number of seconds", ORCHARD_GRACE="nan"),
    said("a grace without end", "list", 2, "number of seconds", ORCHARD_GRACE="inf"),
    said("half a job in a variable", "list", 2, "whole number", ORCHARD_MAX_PARALLEL="1.5"),
    said("a log of lots", "list", 2, "whole number", ORCHARD_LIMITS_LOG_BYTES="lots"),
    said("a failpoint without a number", "run FILE", 2, "ORCHARD_FAILPOINT", ORCHARD_FAILPOINT="x"),
    said("a failpoint at no time", "run FILE", 2, "NTH of 1 or more", ORCHARD_FAILPOINT="landing.before-move:0:kill"),
    said("a failpoint that sings", "run FILE", 2, "'sing'", ORCHARD_FAILPOINT="landing.before-move:1:sing"),
    said("git's folder for worktrees", "run FILE", 2, "holds the repository", ORCHARD_WORKTREE_ROOT=".git"),
    said("a root of two lines for worktrees", "run FILE", 2, "control characters", ORCHARD_WORKTREE_ROOT="a\nb"),
]  # fmt: skip
HOSTILE = [*NAMES, *VALUES, *WHOLE, *VERBS]


def change(name: str, stdin: bytes, *says: str) -> Row:
    """A bad change of a graph."""
    return said(name, "reshape held -", 2, *says, stdin=stdin)


def nobody(verb: str) -> str:
    """That there is nothing of this name; a job can be canceled as well."""
    return "no plan or job 'nope'" if verb == "cancel" else "no plan 'nope'"


AMBIGUOUS = "could be any of 2 plans"
MISNAMED = [
    *(
        said(f"{verb} of a plan that is not there", f"{verb} nope{more}", 3, nobody(verb), "orchard list")
        for verb, more in {
            "cancel": "", "pause": "", "resume": "", "land": "", "undo": " --yes", "delete": " --yes",
            "purge": " --yes", "wait": "", "graph": "", "reshape": " --remove z", "status": "",
        }.items()
    ),
    *(
        said(f"{verb} of one of two plans", f"{verb} land{more}", 3, AMBIGUOUS)
        for verb, more in {"pause": "", "resume": "", "wait": "", "graph": "", "reshape": " --remove z"}.items()
    ),
    *(
        said(f"{verb} of the beginning of a plan", f"{verb} land{more}", 3, "the beginning of an id is not enough")
        for verb, more in {"cancel": "", "land": " --yes", "undo": " --yes", "delete": " --yes",
                           "purge": " --yes"}.items()
    ),
    *(
        said(f"{verb} of a job that is not there", f"{verb} nope --plan landed{more}", 3, "no job 'nope'")
        for verb, more in {
            "retry": "", "attempts": "", "diff": "", "approve": " --yes", "force-fail": "", "logs": "",
        }.items()
    ),
    *(
        said(f"{verb} in a plan that is not there", f"{verb} alpha --plan nope{more}", 3, "no plan 'nope'")
        for verb, more in {
            "retry": "", "attempts": "", "diff": "", "approve": " --yes", "force-fail": "", "job": "",
        }.items()
    ),
    *(
        said(f"{verb} of one of two jobs", f"{verb} al --plan landed{more}", 3, "alpha, alpine")
        for verb, more in {"retry": "", "attempts": "", "diff": "", "logs": ""}.items()
    ),
    said("a plan after one of two", "run -", 3, AMBIGUOUS, stdin=b"name: x\nafter: land\njobs: [{id: a, work: x}]\n"),
    said("a job after its plan", "job alpha:landed", 3, "no plan 'alpha'"),
    said("a job of a plan without a name", "job :alpha", 2, "must not be empty"),
    said("a retry in one of two plans", "retry alpha --plan land", 3, AMBIGUOUS),
    said("a retry before the start", "retry z --plan held", 2, "only a failed or canceled job"),
    said("a retry with checks of no file", "retry bad --plan failed --precheck @nofile.yaml", 2, "nofile.yaml"),
    said("a retry with late checks of no file", "retry bad --plan failed --postcheck @nofile.yaml", 2, "nofile.yaml"),
    said("a pause of what failed", "pause failed", 2, "cannot be paused"),
    said("an undo before the start", "undo held --yes", 2, "has not landed"),
    said("a purge of what waits without a yes", "purge held", 4, "without a terminal", "--yes"),
    said("a failure of the beginning of a job", "force-fail alph --plan landed", 3, "not enough", "alpha"),
    said("approval of what failed", "approve bad --plan failed --yes", 2, "does not wait for approval"),
    said("a failure of the validation", "force-fail __snapshot-validation__ --plan landed", 2, "succeeded already"),
    said("a change in no file", "reshape held nofile.json", 2, "Cannot read"),
    said("a change in a folder", "reshape held .", 2, "Is a directory"),
    said("other needs of nobody", "reshape held --set-needs q=z", 2, "no job 'q'"),
    said("needs of somebody unknown", "reshape held --set-needs z=q", 2, "no job 'q'"),
    change("an empty change", b"", "the file is empty"),
    change("no changes", b"[]", "No change"),
    change("half a change", b"{", "not valid JSON"),
    change("a change of 3 MiB", b'"' + b"x" * (3 << 20) + b'"', "2097152"),
    change("a change with a slip", b'[{"op": "remove", "jobb": "z"}]', "unknown field 'jobb'"),
    change("a job that is there", b'[{"op": "add", "job": {"id": "z", "work": "true"}}]', "given twice"),
    change("a new job that needs nobody known", b'[{"op": "add", "job": {"id": "y", "needs": ["q"]}}]', "no job 'q'"),
    change("a new job that climbs", b'[{"op": "add", "job": {"id": "../y", "work": "true"}}]', "not a valid id"),
    change("a new job for an agent", b'[{"op": "add", "job": {"id": "y", "work": "@agent x"}}]', "work for an agent"),
]  # fmt: skip
