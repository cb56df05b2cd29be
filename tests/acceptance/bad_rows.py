"""Mistakes that users make, and what they are told: the table of `test_bad_input.py`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One mistake: the words (FILE stands for the file with `text`), and what the user is told."""

    name: str
    code: int
    says: tuple[str, ...]
    words: tuple[str, ...] = ("run", "FILE")
    text: str | bytes = ""
    file: str = "plan.yaml"
    stdin: bytes = b""
    env: tuple[tuple[str, str], ...] = ()


def plan(name: str, text: str | bytes, *says: str, code: int = 2, file: str = "plan.yaml") -> Row:
    return Row(name, code, says, text=text, file=file)


def said(name: str, line: str, code: int, *says: str, stdin: bytes = b"", **env: str) -> Row:
    return Row(name, code, says, tuple(line.split()), GOOD, stdin=stdin, env=tuple(env.items()))


GOOD = 'name: Good\ntarget: goal\njobs:\n  - {id: alpha, work: "echo a > a.txt"}\n'
ONE = '  - {id: a, work: "true"}\n'
TOP = f"name: P\njobs:\n{ONE}"
JOBS = "name: P\njobs:\n"
MANY = "".join(f"  - {{id: j{n}}}\n" for n in range(201))

SYNTAX = [
    plan("an empty file", "", "the file is empty"),
    plan("nothing but null", "null", "the file is empty"),
    plan("nothing but a comment", "# soon\n", "the file is empty"),
    plan("a list", "[]", "must be an object", "not a list"),
    plan("a number", "42", "not a whole number"),
    plan("an open bracket", "name: [x", ":2:1", "not valid YAML"),
    plan("a tab", "name: x\n\tjobs: []", ":2:1", "a tab"),
    plan("a tag", "name: !!python/object x\njobs: []", "tags", "remove it"),
    plan("an anchor and an alias", f"name: &a x\ntarget: *a\njobs:\n{ONE}", "anchors", "aliases"),
    plan("a merge key", f"name: x\n<<: {{a: 1}}\njobs:\n{ONE}", "merge keys"),
    plan("a key twice", f"name: x\nname: y\njobs:\n{ONE}", ":2:1", "given twice"),
    plan("two documents", "name: x\n---\nname: y\n", "one document"),
    plan("a null byte", b"name: \x00x\n", ":1:7", "not allowed"),
    plan("Latin-1", b"name: \xe9t\xe9\njobs: []", "not UTF-8", "0xe9"),
    plan("a binary", bytes(range(256)) * 8, "not UTF-8"),
    plan("a UTF-16 file", "name: x".encode("utf-16"), "not UTF-8"),
    plan("open JSON", '{"name": "x",', "not valid JSON", file="plan.json"),
    plan("a JSON key twice", '{"name": "x", "name": "y", "jobs": []}', "given twice", file="plan.json"),
    plan("a JSON NaN", '{"name": "x", "max_parallel": NaN, "jobs": [{"id": "a"}]}', "finite", file="plan.json"),
    plan("a TOML key without value", "name = \n", "not valid TOML", ":1:8", file="plan.toml"),
    plan("a TOML key twice", 'name = "x"\nname = "y"\n', "not valid TOML", file="plan.toml"),
    plan("a TOML need of nobody", 'name = "x"\n[[jobs]]\nid = "a"\nneeds = ["b"]\n', "no job 'b'", file="plan.toml"),
]
MEANING = [
    plan("no name", f"jobs:\n{ONE}", "name: is required"),
    plan("an empty name", f"name: ''\njobs:\n{ONE}", "name: must not be empty"),
    plan("a name of two lines", f'name: "a\\nb"\njobs:\n{ONE}', "one line"),
    plan("no jobs", "name: x", "at least one job"),
    plan("a list without jobs", "name: x\njobs: []", "at least one job"),
    plan("jobs as an object", "name: x\njobs: {a: 1}", "must be a list"),
    plan("an unknown field", f"max_paralel: 3\n{TOP}", "max_paralel", "did you mean 'max_parallel'?"),
    plan("an unknown field of a job", f"{JOBS}  - {{id: a, wrok: x}}\n", "did you mean 'work'?"),
    plan("an id twice", f"{JOBS}{ONE}{ONE}", "jobs[1].id", "given twice"),
    plan("a need of itself", f"{JOBS}  - {{id: a, needs: [a]}}\n", "needs itself"),
    plan("an unknown need", f"{JOBS}  - {{id: alpha}}\n  - {{id: b, needs: [alpa]}}\n", "did you mean 'alpha'?"),
    plan("a circle", f"{JOBS}  - {{id: a, needs: [b]}}\n  - {{id: b, needs: [a]}}\n", "a -> b -> a"),
    plan("an id with a blank", f"{JOBS}  - {{id: A B}}\n", "not a valid id"),
    plan("an id like an option", f"{JOBS}  - {{id: '-x'}}\n", "not a valid id"),
    plan("an id with an escape", f'{JOBS}  - {{id: "a\\e[2J"}}\n', "not a valid id"),
    plan("an id of ours", f"{JOBS}  - {{id: __snapshot-validation__}}\n", "not a valid id"),
    plan("a group with a blank", "name: x\ngroups: [{name: a b, jobs: [{id: c}]}]", "not a valid group"),
    plan("a timeout in words", f"{JOBS}  - {{id: a, work: x, timeout: soon}}\n", "not a duration"),
    plan("a negative timeout", f"{JOBS}  - {{id: a, work: x, timeout: -1}}\n", "more than 0"),
    plan("a folder outside", f"{JOBS}  - {{id: a, work: {{command: x, cwd: ../..}}}}\n", "inside the worktree"),
    plan("another repository", f"{JOBS}  - {{id: a, work: x, env: {{GIT_DIR: /x}}}}\n", "another repository"),
    plan("a variable of ours", f"{JOBS}  - {{id: a, work: x, env: {{ORCHARD_JOB: b}}}}\n", "set by Orchard"),
    plan("an unknown type", f"{JOBS}  - {{id: a, work: {{type: shel, command: x}}}}\n", "did you mean 'shell'?"),
    plan("empty work", f"{JOBS}  - {{id: a, work: ''}}\n", "must not be empty"),
    plan("an unknown shell", f"{JOBS}  - {{id: a, work: {{command: x, shell: fish}}}}\n", "not 'fish'"),
    plan("an agent", f"{JOBS}  - {{id: a, work: '@agent do it'}}\n", "work for an agent"),
    plan("an unknown way to land", f"land: maybe\n{TOP}", "'auto', 'ask', 'never' or 'pr'"),
    plan("an unknown way to merge", f"merge: rebase\n{TOP}", "'squash' or 'merge'"),
    plan("an unknown way to deploy", f"deploy: by hand\n{TOP}", "'auto' or 'manual'"),
    plan("fewer jobs than none", f"max_parallel: -1\n{TOP}", "at least 0"),
    plan("a number in words", f"max_parallel: many\n{TOP}", "must be a whole number"),
    plan("no budget at all", f"budget: {{minutes: 0}}\n{TOP}", "more than 0"),
    plan("a setup of 3", f"setup: 3\n{TOP}", "setup"),
    plan("a base that is not there", f"base: nowhere\n{TOP}", "no branch or commit 'nowhere'"),
    plan("a target with dots", f"target: a..b\n{TOP}", "not a name that git allows"),
    plan("a target like an option", f"target: '-D'\n{TOP}", "must not begin with '-'"),
    plan("a target below a branch", f"target: main/sub\n{TOP}", "clashes"),
    plan("after a plan of nobody", f"after: nothing\n{TOP}", "no plan 'nothing'", code=3),
    plan("the root as worktree root", f"worktree_root: /\n{TOP}", "holds the repository"),
    plan("the .git as worktree root", f"worktree_root: .git\n{TOP}", "worktree_root"),
    plan("the top as worktree root", f"worktree_root: .\n{TOP}", "worktree_root"),
]
LIMITS = [
    plan("a name of 201 characters", f"name: {'x' * 201}\njobs:\n{ONE}", "longer than 200"),
    plan("more than 2 MiB", f"{TOP}#{'x' * (2 << 20)}", "2097152"),
    plan("a command of 257 KiB", f"{JOBS}  - {{id: a, work: '{'x' * 257 * 1024}'}}\n", "262144"),
    plan("100 levels", f"name: {'[' * 100}{']' * 100}", "deeper than 64"),
    plan("201 needs", f"{JOBS}  - {{id: z, needs: [{','.join(f'j{n}' for n in range(201))}]}}\n{MANY}", "200 others"),
    plan("10,001 jobs", JOBS + "".join(f"  - {{id: j{n}}}\n" for n in range(10_001)), "at most 10000"),
]
USAGE = [
    said("an unknown verb", "runn FILE", 2, "no command 'runn'", "'run'"),
    said("a verb that comes later", "dashboard", 2, "no command 'dashboard'"),
    said("a port that is none", "serve --port 70000", 2, "not in the range", "orchard serve --help"),
    said("an address for everybody, in the clear", "serve --host 0.0.0.0", 2, "encrypted", "--tls-cert"),
    said("a toolset that is none", "mcp --toolsets cor", 2, "no toolset 'cor'", "'core'"),
    said("a tool that is none", "mcp --tools get_plam", 2, "no tool 'get_plam'", "'get_plan'"),
    said("tools for an installation, in the wrong place", "mcp --toolsets all install --host claude", 2, "install"),
    said("a host that is none", "mcp install --host emacs", 2, "'emacs' is not one of"),
    said("no host", "mcp install", 2, "Missing option '--host'", "claude"),
    said("a skill for a host that is none", "skill install --host emacs", 2, "'emacs' is not one of"),
    said("an unknown option", "run FILE --fast", 2, "--fast", "orchard run --help"),
    said("no plan", "run", 2, "no file plan.yaml", "orchard init"),
    said("two plans", "run FILE FILE", 2, "unexpected extra argument"),
    said("a file that is not there", "run nofile.yaml", 2, "no file nofile.yaml", "orchard init"),
    said("a folder as plan", "run .", 2, "Is a directory"),
    said("a folder to validate", "validate .", 2, "Is a directory"),
    said("nothing on stdin", "run -", 2, "<stdin>", "the file is empty"),
    said("half a plan on stdin", "run -", 2, "<stdin>:1:1", "at least one job", stdin=b"name: x"),
    said("a repository that is not there", "-C /nonexist status", 2, "does not exist"),
    said("a file as repository", "-C FILE status", 2, "is a file"),
    said("an unknown --land", "run FILE --land no", 2, "--land", "'never'"),
    said("a negative limit", "run FILE --max-parallel -1", 2, "0<=x<=1024"),
    said("a limit in words", "run FILE --max-parallel few", 2, "--max-parallel"),
    said("an unknown --base", "run FILE --base nowhere", 2, "no branch or commit 'nowhere'"),
    said("a --base like an option", "run FILE --base=-x", 2, "not a branch or commit"),
    said("a bad --target", "run FILE --target a..b", 2, "not a name that git allows"),
    said("an unknown format", "graph FILE --format png", 2, "'svg'"),
    said("a folder to draw into", "graph FILE -o .", 2, "is a directory"),
    said("a negative timeout to wait", "wait --timeout -1", 2, "--timeout"),
    said("a negative tail", "logs alpha -n -1", 2, "--tail"),
    said("an unknown shell to complete", "completion tcsh", 2, "'bash', 'zsh', 'fish'"),
    said("a file that is there", "init FILE", 2, "exists already", "left as it is"),
    said("settings to write", "config set", 2, "'show'"),
    said("JSON asked for", "run --json --nope", 2, '"exit_code": 2', "--nope"),
    said("no plan yet to look at", "status", 3, "no plan in this repository yet", "orchard run plan.yaml"),
    said("no plan yet to retry", "retry", 3, "no plan in this repository yet"),
    said("no plan yet to cancel", "cancel", 3, "no plan in this repository yet"),
    said("nothing saved under that name", "recover refs/orchard/wip/a/b/1 /tmp/nowhere", 3, "refs/orchard/wip/a/b/1"),
    said("saved work without a folder", "recover refs/x", 2, "folder is needed"),
    said("max_parallel in words", "run FILE", 2, "ORCHARD_MAX_PARALLEL", ORCHARD_MAX_PARALLEL="many"),
    said("a negative capacity", "run FILE", 2, "ORCHARD_CAPACITY: must be from 0", ORCHARD_CAPACITY="-3"),
    said("an unknown resolver", "status", 2, "ORCHARD_RESOLVER", "theirs", ORCHARD_RESOLVER="me"),
    said("the root for worktrees", "run FILE", 2, "ORCHARD_WORKTREE_ROOT", ORCHARD_WORKTREE_ROOT="/"),
    said("a grace in words", "run FILE", 2, "number of seconds", ORCHARD_GRACE="soon"),
    said("a flag that is neither", "list", 2, "true, false or 'auto'", ORCHARD_HEAL_ENABLED="perhaps"),
    said("a log of one byte", "list", 2, "must be from 1024", ORCHARD_LIMITS_LOG_BYTES="1"),
    said("an unknown failpoint", "run FILE", 2, "'nowhere' is not a failpoint", ORCHARD_FAILPOINT="nowhere:1:kill"),
    said("no git", "run FILE", 1, "no 'git' on the PATH", "Install git", PATH="/nonexist"),
]  # fmt: skip
SETTINGS: list[tuple[str, bytes, int, str]] = [
    ("no TOML", b"x = \n", 2, "orchard.toml:1: is not valid TOML"),
    ("an unknown key", b"max_paralel = 3\n", 2, "did you mean 'max_parallel'?"),
    ("a wrong kind", b'max_parallel = "x"\n', 2, "must be a whole number"),
    ("a value out of range", b"max_parallel = -1\n", 2, "from 0 to 1024"),
    ("an unknown key of a section", b"[limits]\ngrce = 1\n", 2, "orchard.toml:2 limits.grce"),
    ("a section that is none", b"heal = true\n", 2, "[heal]"),
    ("a worktree root outside", b'worktree_root = "../elsewhere"\n', 2, "worktree_root"),
    ("no text", b"\xff\xfe", 2, "not UTF-8"),
    ("too much text", b"#" + b"x" * 70_000, 2, "64 KiB"),
    ("too many levels", b"x=" + b"[" * 2000 + b"]" * 2000, 2, "nested too deep"),
    ("an unknown key of a row", b'[agents.claude]\nmodle = "x"\n', 2, "orchard.toml:2 agents.claude.modle"),
    ("a row for an agent that does not exist", b"[agents.cladue]\n", 2, "did you mean 'claude'?"),
    ("an agent that nobody agreed to", b'[agents.mine]\ncommand = "true"\n', 4, "orchard trust"),
    ("a command as the agent", b'agent = "acp:true"\n', 4, "orchard trust"),
    ("programs that nobody agreed to", b'setup = ["true"]\n', 4, "orchard trust"),
]

PLANS = {
    "landed": '  - {id: alpha, work: "echo a > a.txt"}\n  - {id: alpine, work: "echo b > b.txt"}\n',
    "landlord": '  - {id: alpha, work: "echo a > a.txt"}\n',
    "failed": '  - {id: bad, work: "exit 3"}\n  - {id: after, needs: [bad], work: "true"}\n',
    "held": 'start_paused: true\njobs:\n  - {id: z, work: "echo a > a.txt"}\n',
}
STATES = [
    said("retry of a landed plan", "retry landed", 2, "no failed or canceled job"),
    said("retry of a job that succeeded", "retry alpha --plan landed", 2, "'alpha' is succeeded"),
    said("retry of a blocked job", "retry after --plan failed", 2, "'after' is blocked"),
    said("retry of the validation job", "retry __snapshot-validation__ --plan landed", 2, "is succeeded"),
    said("retry of jobs of two plans", "retry failed:bad landed:alpha", 2, "different plans"),
    said("retry from an unknown phase", "retry bad --plan failed --from lunch", 2, "--from", "'merging'"),
    said("retry with work of no file", "retry bad --plan failed --work @nofile.yaml", 2, "nofile.yaml"),
    said("an unknown job", "job nope --plan landed", 3, "no job 'nope'", "orchard status"),
    said("a job with a slip", "logs bda --plan failed", 3, "did you mean 'bad'?"),
    said("an unknown plan", "logs bad --plan nope", 3, "no plan 'nope'", "orchard list"),
    said("an unknown plan before a job", "job nope:bad", 3, "no plan 'nope'"),
    said("a job that could be two", "job al --plan landed", 3, "alpha, alpine", "full id"),
    said("a plan that could be two", "status land", 3, "could be any of 2 plans", "whole id"),
    said("an attempt that was not made", "logs alpha --plan landed --attempt 9", 3, "no attempt 9"),
    said("an unknown phase", "logs alpha --plan landed --phase lunch", 2, "--phase"),
    said("approval that nobody waits for", "approve alpha --plan landed --yes", 2, "does not wait"),
    said("a landing of what has landed", "land landed", 2, "has landed"),
    said("a landing of what failed", "land failed", 2, "nothing to land"),
    said("a landing before the start", "land held", 2, "nothing to land"),
    said("a pause of what is over", "pause landed", 2, "cannot be paused"),
    said("a cancel of what is over", "cancel landed", 2, "nothing to cancel"),
    said("a failure after success", "force-fail alpha --plan landed", 2, "is succeeded already"),
    said("a failure after failure", "force-fail bad --plan failed", 2, "is failed already"),
    said("an undo of nothing", "undo failed --yes", 2, "has not landed"),
    said("a purge without a yes", "purge landed", 4, "without a terminal", "--yes"),
    said("a diff before the start", "diff z --plan held", 3, "no result yet"),
    said("a screen in a pipe", "watch", 2, "on a terminal only"),
    said("a reshape of what is over", "reshape landed --remove alpha", 2, "can no longer be changed"),
    said("a reshape without a change", "reshape held", 2, "No change"),
    said("a reshape of an unknown job", "reshape held --remove nope", 2, "no job 'nope'"),
    said("a reshape that leaves nothing", "reshape held --remove z", 2, "nothing would be left"),
    said("a reshape of our job", "reshape held --remove __snapshot-validation__", 2, "follows the others"),
    said("a reshape into a circle", "reshape held --set-needs z=z", 2, "circular"),
    said("a reshape without '='", "reshape held --set-needs z", 2, "JOB=A,B"),
    said("a reshape of a job that ran", "reshape failed --set-needs bad=after", 2, "has started"),
    said("a reshape by text", "reshape held -", 2, "no list of changes", stdin=b'"x"'),
    said("an unknown change", "reshape held -", 2, "did you mean 'add'?", stdin=b'[{"op": "ad"}]'),
    said("1,001 changes", "reshape held -", 2, "at most 1000", stdin=b"[1%s]" % (b", 1" * 1000)),
    said("the saved work of nobody", "recover --plan nope", 3, "no plan 'nope'"),
]  # fmt: skip
