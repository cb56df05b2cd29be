"""The table of settings, and how layers become one configuration."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields

from orchard.config.keys import KEYS, NAMES_AGENT, NEEDS_TRUST, ROWS
from orchard.config.layers import (
    DEFAULT,
    Config,
    Layer,
    environment_layers,
    flag_layers,
    flatten,
    merge_layers,
)
from orchard.errors import InvalidInput


def file_layer(values: dict[str, object], text: str = "", repository: bool = False) -> Layer:
    return Layer("orchard.toml", values, file="orchard.toml", text=text, repository=repository)


def problems_of(*layers: Layer) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        merge_layers(layers)
    return [str(problem) for problem in caught.value.problems]


def field_names(value: object, prefix: str = "") -> Iterator[str]:
    assert isinstance(value, Struct)
    for spec in fields(value):
        inner = getattr(value, spec.name)
        if spec.name in ("agents", "builtin", "mcp_servers", "narrowing"):
            continue  # rows, which the user names
        name = prefix + spec.name.rstrip("_")
        yield from field_names(inner, f"{name}.") if isinstance(inner, Struct) else [name]


def test_every_field_of_the_configuration_is_a_key_and_every_key_a_field() -> None:
    assert set(field_names(Config())) == set(KEYS)


def test_every_default_passes_its_own_check() -> None:
    for name, value in flatten(Config()).items():
        given = KEYS[name].nothing if value is None else value
        assert KEYS[name].kind.check(given) == value


def test_without_layers_everything_is_the_default() -> None:
    resolved = merge_layers([])

    assert resolved.config == Config()
    assert set(resolved.origins.values()) == {DEFAULT}
    assert set(resolved.origins) == set(KEYS)


def test_a_later_layer_wins_key_by_key_and_lists_are_replaced() -> None:
    weak = Layer("user", {"max_parallel": 2, "heal": {"attempts": 1}, "pass_env": ["A", "B"]})
    strong = Layer("repo", {"max_parallel": 8, "heal": {"enabled": False}, "pass_env": ["C"]})

    resolved = merge_layers([weak, strong])

    assert resolved.config.max_parallel == 8
    assert (resolved.config.heal.enabled, resolved.config.heal.attempts) == (False, 1)
    assert resolved.config.pass_env == ("C",)
    assert (resolved.origins["heal.attempts"], resolved.origins["heal.enabled"]) == ("user", "repo")


def test_an_ignored_key_falls_back_to_the_layer_below() -> None:
    below = Layer("user", {"setup": ["make deps"]})
    above = Layer("repo", {"setup": ["evil"], "max_parallel": 3}, ignored=frozenset({"setup"}))

    resolved = merge_layers([below, above])

    assert (resolved.config.setup, resolved.config.max_parallel) == (("make deps",), 3)
    assert resolved.origins["setup"] == "user"


def test_setup_keeps_works_as_they_were_written() -> None:
    work = {"type": "process", "executable": "uv", "args": ["sync"]}

    assert merge_layers([Layer("x", {"setup": ["make", work]})]).config.setup == ("make", work)


def test_the_level_of_the_wall_may_be_written_as_one_word() -> None:
    assert merge_layers([Layer("user", {"sandbox": "bwrap"})]).config.sandbox.level == "bwrap"
    both = merge_layers(
        [Layer("user", {"sandbox": {"level": "bwrap", "expose": ["~/x"]}}), Layer("v", {"sandbox": "off"})]
    )
    assert (both.config.sandbox.level, both.config.sandbox.expose) == ("off", ("~/x",))
    layers, warnings = environment_layers({"ORCHARD_SANDBOX": "landlock"})
    assert (merge_layers(layers).config.sandbox.level, warnings) == ("landlock", [])


def test_zero_lifts_a_time_limit_of_a_weaker_layer() -> None:
    resolved = merge_layers([Layer("user", {"limits": {"idle": 60}}), Layer("repo", {"limits": {"idle": 0}})])

    assert resolved.config.limits.idle is None


BAD: list[tuple[dict[str, object], str, str]] = [
    ({"max_parallel": "4"}, "max_parallel", "must be a whole number, not '4'"),
    ({"max_parallel": True}, "max_parallel", "must be a whole number, not true or false"),
    ({"max_parallel": 1.5}, "max_parallel", "must be a whole number, not a number"),
    ({"max_parallel": -1}, "max_parallel", "must be from 0 to 1024, not -1"),
    ({"max_parallel": 10**5000}, "max_parallel", "must be from 0 to 1024"),
    ({"max_paralel": 1}, "max_paralel", "did you mean 'max_parallel'?"),
    ({"grace": 1}, "grace", "did you mean 'limits.grace'?"),
    ({"resolver": "our"}, "resolver", "must be one of agent, ours, theirs, fail, not 'our'; did you mean 'ours'?"),
    ({"resolver": 3}, "resolver", "must be text, not a whole number"),
    ({"heal": True}, "heal", "must be a table, [heal]"),
    ({"heal": {"enabled": 1}}, "heal.enabled", "must be true, false or 'auto', not a whole number"),
    ({"heal": {"attempt": 1}}, "heal.attempt", "did you mean 'heal.attempts'?"),
    ({"heal.attempts": 1}, "'heal.attempts'", "did you mean 'heal.attempts'?"),
    ({"limits": {"grace": float("nan")}}, "limits.grace", "must be from 0 to 3600 seconds"),
    ({"limits": {"grace": float("inf")}}, "limits.grace", "must be from 0 to 3600 seconds"),
    ({"limits": {"idle": -1}}, "limits.idle", "must be from 0 to"),
    ({"limits": {"wall": "1h"}}, "limits.wall", "must be a number of seconds, not '1h'"),
    ({"limits": {"log_bytes": 0}}, "limits.log_bytes", "must be from 1024 to"),
    ({"setup": "make"}, "setup", "must be a list of works, not 'make'"),
    ({"setup": [""]}, "setup", "must be a command"),
    ({"setup": [3]}, "setup", "must be text, not a whole number"),
    ({"setup": ["x"] * 101}, "setup", "must hold at most 100 works, not 101"),
    ({"pass_env": ["A B"]}, "pass_env", "must be the name of an environment variable, not 'A B'"),
    ({"worktree": {"link": ["../x"]}}, "worktree.link", "must not leave the repository, not '../x'"),
    ({"worktree": {"link": ["/etc"]}}, "worktree.link", "must be a path inside the repository"),
    ({"worktree": {"link": ["a/.GIT/x"]}}, "worktree.link", "must not be in '.git'"),
    ({"worktree": {"copy": ["../node_modules"]}}, "worktree.copy", "must not leave the repository"),
    ({"worktree": {"copy": ["/opt/venv"]}}, "worktree.copy", "must be a path inside the repository"),
    ({"worktree": {"include": ["a\nb"]}}, "worktree.include", "without control characters, not 'a\\nb'"),
    ({"worktree": {"keep": [""]}}, "worktree.keep", "must be a path or pattern"),
    ({"worktree_root": "."}, "worktree_root", "must be the path of a folder of its own"),
    ({"worktree_root": "a/.."}, "worktree_root", "must be the path of a folder of its own"),
    ({"worktree_root": "-x"}, "worktree_root", "leading '-' or '~'"),
]
BAD += [
    ({"sandbox": "none"}, "sandbox.level", "must be one of off, landlock, auto, bwrap, not 'none'"),
    ({"sandbox": 3}, "sandbox", "must be a table, [sandbox]"),
    ({"sandbox": {"expose": ["data"]}}, "sandbox.expose", "must be a path that begins with '/' or '~/'"),
    ({"sandbox": {"write": ["~/../other"]}}, "sandbox.write", "without '..'"),
    ({"sandbox": {"allow": ["host/path"]}}, "sandbox.allow", "must be a host"),
    ({"sandbox": {"allow": ["host:70000"]}}, "sandbox.allow", "must be a host"),
    ({"sandbox": {"memory": -1}}, "sandbox.memory", "must be from 0 to"),
]


@pytest.mark.parametrize(("values", "path", "message"), BAD, ids=[f"{n}-{bad[1]}" for n, bad in enumerate(BAD)])
def test_a_bad_value_is_named_with_its_rule(values: dict[str, object], path: str, message: str) -> None:
    (problem,) = problems_of(file_layer(values))

    assert problem.startswith(f"orchard.toml {path}: ")
    assert message in problem


def test_all_problems_of_all_layers_come_at_once() -> None:
    found = problems_of(file_layer({"max_parallel": "x", "nope": 1}), Layer("ORCHARD_RESOLVER", {"resolver": "x"}))

    assert len(found) == 3
    assert found[-1].startswith("ORCHARD_RESOLVER: must be one of")


def test_problems_name_the_line_where_the_key_stands() -> None:
    text = '# max_parallel = 1\nmax_parallel = "x"\n\n[limits]\n  grace = "y"\n[heal]\nattempts = -1\n[nope]\n'
    values: dict[str, object] = {
        "max_parallel": "x",
        "limits": {"grace": "y"},
        "heal": {"attempts": -1},
        "nope": {},
    }

    found = problems_of(file_layer(values, text))

    assert [line.split(": ")[0] for line in found] == [
        "orchard.toml:2 max_parallel",
        "orchard.toml:5 limits.grace",
        "orchard.toml:7 heal.attempts",
        "orchard.toml:8 nope",
    ]


def test_a_key_with_control_characters_cannot_paint_the_terminal() -> None:
    (problem,) = problems_of(file_layer({"\x1b[2J\nfake: ok" + "x" * 500: 1}))

    assert problem.isprintable()
    assert len(problem) < 200


def test_thousands_of_bad_keys_give_a_bounded_message() -> None:
    found = problems_of(file_layer({f"key{number}": 1 for number in range(20_000)}))

    assert len(found) == 101
    assert found[-1] == "... and more"


@pytest.mark.parametrize("root", ["/home", "../elsewhere", "a/../../b", ".git/trees", "a/.git"])
def test_a_repositorys_file_cannot_put_worktrees_outside_the_repository(root: str) -> None:
    (problem,) = problems_of(file_layer({"worktree_root": root}, repository=True))

    assert "orchard.toml worktree_root: must" in problem


def test_the_user_may_put_worktrees_anywhere() -> None:
    assert merge_layers([file_layer({"worktree_root": "/big/disk"})]).config.worktree_root == "/big/disk"


def test_what_runs_programs_or_loosens_safety_needs_trust() -> None:
    runs_programs = {"setup", "worktree.include", "worktree.copy", "worktree.link", "pass_env", "agents", "mcp_servers"}
    assert set(NEEDS_TRUST) == runs_programs | {
        "tracing.endpoint",
        "tracing.headers_env",
        "notify.command",
        "notify.webhook",
        "notify.secret_env",
        "notify.on",
        "sandbox.expose",
        "sandbox.write",
        "sandbox.allow",
        "forge.github",
        "forge.gitlab",
    }


@pytest.mark.parametrize(
    "text", ["http://git.example.org", "https://x", "a b", "-x", "x/y", "me@x", "x:port", "", "*.x"]
)
def test_a_server_for_tokens_is_one_host(text: str) -> None:
    with pytest.raises(InvalidInput, match="must be a host"):
        merge_layers([file_layer({"forge": {"github": [text]}})])


def test_every_key_that_can_name_a_command_as_an_agent_is_known() -> None:
    def takes_a_command(name: str) -> bool:
        try:
            return KEYS[name].kind.check("acp:x") == "acp:x" and name not in ("worktree_root", "notify.command")
        except ValueError:
            return False

    assert {name for name in KEYS if takes_a_command(name)} == set(NAMES_AGENT)


# ------------------------------------------------------------------------------------ environment


def test_every_key_can_be_set_by_a_variable_named_after_it() -> None:
    env = {
        "ORCHARD_MAX_PARALLEL": "7",
        "ORCHARD_AGENT": "claude",
        "ORCHARD_RESOLVER": "ours",
        "ORCHARD_RESOLVER_AGENT": "codex",
        "ORCHARD_AGENT_TOOLS": "no",
        "ORCHARD_PUSH": "yes",
        "ORCHARD_WORKTREE_ROOT": "trees",
        "ORCHARD_SETUP": "make deps\nmake more, please\n",
        "ORCHARD_PASS_ENV": "A, B",
        "ORCHARD_HEAL_ENABLED": "no",
        "ORCHARD_HEAL_ATTEMPTS": "2",
        "ORCHARD_HEAL_AGENT": "builtin",
        "ORCHARD_WORKTREE_INCLUDE": ".env",
        "ORCHARD_WORKTREE_COPY": ".venv",
        "ORCHARD_WORKTREE_LINK": "node_modules",
        "ORCHARD_WORKTREE_KEEP": "target,dist",
        "ORCHARD_WORKTREE_POOL": "0",
        "ORCHARD_WORKTREE_KEEP_SIZE": "2GiB",
        "ORCHARD_WORKTREE_SUBMODULES": "yes",
        "ORCHARD_CAPACITY_GLOBAL": "3",
        "ORCHARD_SANDBOX_LEVEL": "bwrap",
        "ORCHARD_SANDBOX_NETWORK": "off",
        "ORCHARD_SANDBOX_EXPOSE": "~/data",
        "ORCHARD_SANDBOX_WRITE": "~/.cache/x",
        "ORCHARD_SANDBOX_ALLOW": "10.0.0.5:443",
        "ORCHARD_SANDBOX_MEMORY": "1000000",
        "ORCHARD_SANDBOX_PROCESSES": "100",
        "ORCHARD_SANDBOX_FILES": "256",
        "ORCHARD_SANDBOX_DISK": "1000000",
        "ORCHARD_NOTIFY_BELL": "yes",
        "ORCHARD_NOTIFY_DESKTOP": "yes",
        "ORCHARD_NOTIFY_COMMAND": "say done",
        "ORCHARD_NOTIFY_WEBHOOK": "https://example.org/hook",
        "ORCHARD_NOTIFY_SECRET_ENV": "HOOK_KEY",
        "ORCHARD_NOTIFY_ON": "failed,waiting",
        "ORCHARD_FORGE_GITHUB": "ghe.example.org",
        "ORCHARD_FORGE_GITLAB": "git.example.org:8443,http://127.0.0.1:8080",
        "ORCHARD_LIMITS_GRACE": "1.5",
        "ORCHARD_LIMITS_LOG_BYTES": "2048",
        "ORCHARD_LIMITS_IDLE": "60",
        "ORCHARD_LIMITS_WALL": "0",
        "ORCHARD_TRACING_ENDPOINT": "http://localhost:4318",
        "ORCHARD_TRACING_HEADERS_ENV": "TRACE_HEADERS",
        "ORCHARD_LIMITS_INTERACTIVE": "60",
        "ORCHARD_LIMITS_ASK": "60",
        "ORCHARD_LIMITS_SUBTASKS_PER_JOB": "3",
        "ORCHARD_LIMITS_SUBTASKS_PER_PLAN": "9",
        "ORCHARD_HEALTH_IDLE": "0",
        "ORCHARD_HEALTH_SLOW": "60",
        "ORCHARD_HEALTH_STUCK": "90.5",
        "ORCHARD_HEALTH_LOOPING": "3",
        "ORCHARD_HEALTH_FAILING": "0",
        **{f"ORCHARD_HEALTH_ON_{name}": "ask" for name in ("IDLE", "SLOW", "STUCK", "LOOPING", "FAILING")},
    }

    layers, warnings = environment_layers(env)
    resolved = merge_layers(layers)

    assert not warnings
    assert set(resolved.origins.values()) == set(env)
    assert resolved.config.setup == ("make deps", "make more, please")
    assert resolved.config.worktree.keep == ("target", "dist")
    assert (resolved.config.limits.grace, resolved.config.limits.wall) == (1.5, None)
    assert resolved.config.heal.enabled is False
    assert resolved.config.agent == "claude"
    assert (resolved.config.health.idle, resolved.config.health.stuck) == (None, 90.5)
    assert resolved.config.health.action("failing") == "ask"


def test_limits_and_capacity_have_short_variables_and_the_full_one_wins() -> None:
    layers, _ = environment_layers({"ORCHARD_CAPACITY": "5", "ORCHARD_GRACE": "2", "ORCHARD_LIMITS_GRACE": "3"})

    resolved = merge_layers(layers)

    assert (resolved.config.capacity.global_, resolved.config.limits.grace) == (5, 3.0)
    assert resolved.origins["limits.grace"] == "ORCHARD_LIMITS_GRACE"


@pytest.mark.parametrize("value", ["four", "1e3", "0x10", "9" * 5000, "nan", "1.5"])
def test_a_bad_variable_is_an_error_that_names_it(value: str) -> None:
    layers, _ = environment_layers({"ORCHARD_MAX_PARALLEL": value})

    (problem,) = problems_of(*layers)

    assert problem.startswith("ORCHARD_MAX_PARALLEL: must be")


def test_an_empty_variable_counts_as_not_set() -> None:
    assert environment_layers({"ORCHARD_MAX_PARALLEL": ""}) == ([], [])


def test_unknown_variables_are_warned_about_and_the_engines_own_are_not() -> None:
    env = {"ORCHARD_MAX_PARALEL": "1", "ORCHARD_SANDBOXX": "x", "ORCHARD_JOB": "a", "ORCHARD_TOKEN": "b", "HOME": "c"}

    layers, warnings = environment_layers(env)

    assert not layers
    assert warnings == [
        "ORCHARD_MAX_PARALEL is not a setting and is ignored; did you mean 'ORCHARD_MAX_PARALLEL'?",
        "ORCHARD_SANDBOXX is not a setting and is ignored; did you mean 'ORCHARD_SANDBOX'?",
    ]


def test_flags_that_were_not_given_do_not_count() -> None:
    layers = flag_layers({"max_parallel": 2, "limits.grace": 0.5, "resolver": None})

    resolved = merge_layers(layers)

    assert (resolved.config.max_parallel, resolved.config.limits.grace) == (2, 0.5)
    assert resolved.origins["limits.grace"] == "--limits-grace"
    assert resolved.origins["resolver"] == DEFAULT


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from([*KEYS, "heal", "worktree", "limits", "capacity", *ROWS, "sandbox"]) | st.text(max_size=12)


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.booleans())
def test_whatever_a_file_holds_it_is_a_configuration_or_a_list_of_problems(
    values: dict[str, object], repository: bool
) -> None:
    try:
        resolved = merge_layers([file_layer(values, repository=repository)])
    except InvalidInput as error:
        assert all(str(problem).isprintable() for problem in error.problems)
    else:
        assert set(flatten(resolved.config)) == set(KEYS)
