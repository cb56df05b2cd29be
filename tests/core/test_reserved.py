"""Which variables a plan may set for its agents."""

import pytest

from orchard.planfile.parse import parse
from orchard.planfile.works import named, reserved, reserved_findings, settable, spoken

STEERING = (
    "PATH",
    "HOME",
    "SHELL",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "DYLD_INSERT_LIBRARIES",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_EXTRA_CA_CERTS",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "BASH_ENV",
    "ENV",
    "PERL5OPT",
    "PERL5LIB",
    "RUBYOPT",
    "RUBYLIB",
    "GIT_SSH_COMMAND",
    "GIT_CONFIG_GLOBAL",
    "GIT_EXTERNAL_DIFF",
    "ANTHROPIC_BASE_URL",
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "MINE_BASE_URL",
    "GITHUB_API_URL",
    "AZURE_OPENAI_ENDPOINT",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_CODE_USE_BEDROCK",
    "CODEX_HOME",
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "QWEN_HOME",
    "COPILOT_HOME",
    "OPENCODE_CONFIG",
    "OPENCODE_CONFIG_CONTENT",
    "XDG_CONFIG_HOME",
    "GH_TOKEN",
    "GH_HOST",
    "GITHUB_TOKEN",
    "GITHUB_SERVER_URL",
    "AWS_PROFILE",
    "NPM_CONFIG_REGISTRY",
    "npm_config_script_shell",
    "IS_SANDBOX",
    "SSLKEYLOGFILE",
    "OPENSSL_CONF",
    "JAVA_TOOL_OPTIONS",
    "EDITOR",
    "PAGER",
    "Path",
    "ld_preload",
)
HARMLESS = (
    "CI",
    "DEBUG",
    "NODE_ENV",
    "PYTHONUNBUFFERED",
    "PYTHONHASHSEED",
    "DATABASE_URL",
    "API_KEY",
    "MY_TOKEN",
    "PORT",
    "LANG",
    "TZ",
    "FEATURE_X",
    "PATHS",
    "MYPATH",
    "HOMEPAGE",
    "URL",
    "BASE_URL_OF_MINE",
    "TERM",
    "RUST_LOG",
    "LC_ALL",
)


@pytest.mark.parametrize("name", STEERING)
def test_what_decides_where_keys_go_or_what_runs_is_reserved(name: str) -> None:
    assert reserved(name)


@pytest.mark.parametrize("name", HARMLESS)
def test_everything_else_is_the_plans_to_set(name: str) -> None:
    assert not reserved(name)


PLAN = b"""
name: Env
env: {PATH: /x, CI: "1"}
verify: "@agent look"
jobs:
  - id: a
    env: {ANTHROPIC_BASE_URL: "http://evil"}
    work: {type: agent, agent: claude, instructions: x, env: {NODE_OPTIONS: "--require /x"}}
    postchecks: {type: agent, instructions: x, env: {HTTPS_PROXY: "http://evil"}}
  - {id: b, work: {command: make, env: {LD_PRELOAD: /mine}}, env: {HOME: /mine}}
"""


def test_a_plan_is_told_of_all_of_them_at_once_and_where_they_stand() -> None:
    plan = parse(PLAN)

    found = {
        spoken(one.path): one.message
        for one in reserved_findings(plan, lambda agent, name: reserved(name), named(plan))
    }

    assert set(found) == {
        "env.PATH",
        "job 'a'.env.ANTHROPIC_BASE_URL",
        "job 'a'.work.env.NODE_OPTIONS",
        "job 'a'.postchecks[0].env.HTTPS_PROXY",
    }
    assert "allow_env' of [agents.claude]" in found["job 'a'.work.env.NODE_OPTIONS"]


def test_commands_are_given_what_the_plan_says_and_agents_what_the_user_allows() -> None:
    plan = parse(PLAN.replace(b"@agent look", b"make").replace(b"PATH: /x, ", b""))
    allowed = {"claude": ("ANTHROPIC_BASE_URL", "NODE_OPTIONS"), None: ("ANTHROPIC_BASE_URL", "HTTPS_PROXY")}

    def refuses(agent: str | None, name: str) -> bool:
        return reserved(name) and name not in allowed[agent]

    assert reserved_findings(plan, refuses, named(plan)) == []
    assert settable({"PATH": "/x", "CI": "1", "HOME": "/y"}, ["HOME"]) == {"CI": "1", "HOME": "/y"}
