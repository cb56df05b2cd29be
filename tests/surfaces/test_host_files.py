"""Files of other programs: one entry is set or taken out, and everything else stays as it was written."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.surfaces.cli.external.text import BadText, comments_of, edited, read_text
from orchard.surfaces.mcp.hosts import HOSTS, Form, entry, is_ours, place, scopes
from orchard.surfaces.mcp.selection import TOOLSETS
from tests.examples import examples

KEYS = ("servers", "orchard")
ENTRY: dict[str, Any] = {"command": "/usr/bin/orchard", "args": ["mcp", "--toolsets", "core,jobs"]}
TABLE: dict[str, Any] = {**ENTRY, "startup_timeout_sec": 30}

# ---------------------------------------------------------------------------------------- the page

PAGE = (Path(__file__).parent.parent.parent / "docs" / "mcp.md").read_text("utf-8")


def test_the_page_names_every_host_with_its_files() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (`[^`]+`|-) \| (.+?) \|", PAGE, re.MULTILINE)

    hosts = {host: (project.strip("`"), user.strip("`")) for host, project, user in rows if host in HOSTS}

    assert list(hosts) == list(HOSTS)
    top, home = Path("/top"), Path("/home/me")
    for host, (project, user) in hosts.items():
        assert (project == "-") == ("project" not in scopes(host))
        assert project == "-" or place(host, "project", top, {}).file == top / project
        found = place(host, "user", None, {"HOME": str(home)}).file
        differs = host in ("vscode", "claude-desktop")  # from system to system
        assert user == f"~/{found.relative_to(home)}" or (differs and found.name in user)


def test_the_page_names_every_tool_in_its_toolset() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ((?:`\w+` ?)+) \|$", PAGE, re.MULTILINE)

    assert {name: tuple(tools.replace("`", "").split()) for name, tools in rows} == TOOLSETS


def test_the_page_shows_the_entry_that_is_written() -> None:
    (shown,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

    assert json.loads(shown)["mcpServers"]["orchard"] == entry("claude", "project", ["/path/to/orchard", "mcp"])


@pytest.mark.parametrize(
    ("found", "ours"),
    [
        ({"command": "/x/bin/orchard", "args": ["mcp"]}, True),
        ({"command": "orchard", "args": ["--repo", "x", "mcp", "--read-only"]}, True),
        ({"command": "/x/python3", "args": ["-m", "orchard", "mcp"]}, True),
        ({"type": "local", "command": ["/x/bin/orchard", "mcp"], "enabled": True}, True),
        ({"command": ["npx", "orchard", "mcp"]}, False),
        ({"command": []}, False),
        ({"command": "orchard", "args": ["run"]}, False),
        ({"command": "orchard"}, False),
        ({"command": "npx", "args": ["orchard", "mcp"]}, False),
        ({"command": 1, "args": ["mcp"]}, False),
        ({"command": "orchard", "args": "mcp"}, False),
        ({"url": "http://127.0.0.1/mcp"}, False),
        ("orchard", False),
        (None, False),
    ],
)
def test_an_entry_is_known_as_ours_by_what_it_starts(found: object, ours: bool) -> None:
    assert is_ours(found) is ours


# ------------------------------------------------------------------------------------------- JSON

COMMENTED = """\
// for the whole team
{
  /* the servers */
  "servers": {
    // first
    "other": {"command": "x", "args": []}, // beside it
    "last": {
      "command": "y" // inside
    } // after the last
    // at the end
  },
  "inputs": [1.50, 1e3,], // odd numbers stay
}
// behind it
"""

LAYOUTS = [
    "{}",
    "{ }\n",
    '{"servers": {}}',
    '{"servers": {"other": 1}}',
    '{"servers":{"other":{"a":[1,2]}},"b":2}\n',
    '{\n  "b": 2\n}\n',
    '{\n\t"servers": {\n\t\t"other": {"a": 1}\n\t},\n\t"b": 2\n}',
    '{\r\n  "servers": {\r\n    "other": 1\r\n  }\r\n}\r\n',
    '{\n    "servers": {\n    }\n}\n',
    '\n\n  {\n    "servers": {"other": 1\n    } }\n',
    '{"servers": {"other": "a \\" } , // not a comment"}}',
    '{"a": 1,\n "servers": {"other": 1}}',
]


@pytest.mark.parametrize("text", LAYOUTS)
def test_an_entry_is_added_and_taken_out_again_and_the_rest_is_as_it_was(text: str) -> None:
    before = json.loads(text)

    added = edited(text, "json", KEYS, ENTRY)
    again = edited(added, "json", KEYS, None)

    value = json.loads(added)
    assert value["servers"].pop("orchard") == ENTRY
    assert value == {"servers": {}, **before}
    assert json.loads(again) == {"servers": {}, **before}
    assert "\r\n" not in text or "\n" not in added.replace("\r\n", "")


@pytest.mark.parametrize("text", [text for text in LAYOUTS if '"other"' in text])
def test_taking_out_what_was_added_gives_the_same_bytes(text: str) -> None:
    assert edited(edited(text, "json", KEYS, ENTRY), "json", KEYS, None) == text


def test_no_comment_is_lost_or_moved_to_another_line() -> None:
    added = edited(COMMENTED, "jsonc", KEYS, ENTRY)

    assert comments_of(added) == comments_of(COMMENTED)
    assert '"y" // inside' in added and '"last": {\n' in added
    assert "}, // after the last\n    // at the end\n" in added
    assert "[1.50, 1e3,], // odd numbers stay" in added
    assert read_text(added, "jsonc")["servers"]["orchard"] == ENTRY
    assert edited(added, "jsonc", KEYS, None).replace(", // after", " // after") == COMMENTED


def test_an_entry_is_replaced_in_its_place() -> None:
    text = '{\n  "servers": {\n    "orchard": {"command": "old"}, // ours\n    "other": 1\n  }\n}\n'

    changed = edited(text, "jsonc", KEYS, ENTRY)

    assert list(read_text(changed, "jsonc")["servers"]) == ["orchard", "other"]
    assert "}, // ours\n" in changed and '\n      "command": "/usr/bin/orchard",\n' in changed


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("end", ["", ","])
@pytest.mark.parametrize("between", ["\n    ", " ", "", "\n"])
def test_an_entry_is_taken_out_wherever_it_stands(at: int, end: str, between: str) -> None:
    names = ["a", "b"]
    names.insert(at, "orchard")
    inner = ",".join(f'{between}"{name}": {{"x": [1]}}' for name in names)
    text = f'{{"servers": {{{inner}{end}{between}}}}}'

    rest = edited(text, "jsonc", KEYS, None)

    assert read_text(rest, "jsonc") == {"servers": {"a": {"x": [1]}, "b": {"x": [1]}}}


@pytest.mark.parametrize(
    ("text", "form", "why"),
    [
        ("{", "jsonc", "expecting"),
        ("[]", "jsonc", "does not hold an object"),
        ("nonsense", "json", "line 1"),
        ('{"a": 1}}', "jsonc", "extra data"),
        ('{"a": tru e}', "jsonc", "expecting"),
        ('{"a": 1 2}', "jsonc", "expecting"),
        ("{,}", "jsonc", "expecting"),
        ('{"a": [,]}', "jsonc", "expecting"),
        ('{"a":,}', "jsonc", "expecting"),
        ('{"a": "x\ny"}', "jsonc", "not JSON"),
        ('{"servers": []}', "jsonc", "'servers' is not an object"),
        ('{"servers": null}', "json", "'servers' is not an object"),
        ('{"servers": {}, "servers": {}}', "jsonc", "'servers' is given twice"),
        ('{"servers": {"orchard": 1, "orchard": 2}}', "json", "'orchard' is given twice"),
        ("{} // a comment", "json", "extra data"),
        ('{"a": 1,}', "json", "line 1"),
        ('{"a": /* open', "jsonc", "line 1"),
        ("{} /* open", "jsonc", "line 1"),
        ("/* " * 300_000, "jsonc", "line 1"),
        ('{"' + '\\"' * 300_000, "jsonc", "line 1"),
        ("{" + ", ".join(f'"{n}": 1' for n in (*range(100_000), 99_999)) + "}", "json", "'99999' is given twice"),
        ("\ufeff{}", "json", "line 1"),
        ('{\n "a": 1\n "b": 2}', "jsonc", "line 3"),
        ("[" * 100_000 + "]" * 100_000, "jsonc", "nested too deep"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(text: str, form: Form, why: str) -> None:
    with pytest.raises(BadText, match=why):
        edited(text, form, KEYS, ENTRY)


def test_an_empty_file_becomes_one_with_our_entry() -> None:
    assert json.loads(edited(" \n", "json", KEYS, ENTRY)) == {"servers": {"orchard": ENTRY}}


blanks = st.sampled_from(["", " ", "\n", "\n  ", "\t", " // c\n", "/* c */", "\r\n"])
words = st.text(st.characters(codec="utf-8"), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """A value as somebody may have written it: blanks, comments and commas anywhere."""

    def gap() -> str:
        return draw(blanks)

    if isinstance(value, dict):
        parts = [f"{gap()}{json.dumps(key)}{gap()}:{draw(written(held))}" for key, held in value.items()]
    elif isinstance(value, list):
        parts = [draw(written(held)) for held in value]
    else:
        return f"{gap()}{json.dumps(value)}{gap()}"
    comma: bool = draw(st.booleans())
    end = gap() + (f",{gap()}" if parts and comma else "")
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{gap()}{opening}{','.join(parts)}{end}{closing}{gap()}"


@given(st.data(), st.dictionaries(words, values, max_size=3), st.dictionaries(words, values, max_size=3))
@examples(300)
def test_any_file_keeps_its_values_and_comments(data: st.DataObject, top: dict[str, Any], servers: Any) -> None:
    top = {**top, **({"servers": servers} if data.draw(st.booleans()) else {})}
    top.get("servers", {}).pop("orchard", None)
    text = data.draw(written(top))

    added = edited(text, "jsonc", KEYS, ENTRY)
    gone = edited(added, "jsonc", KEYS, None)

    assert read_text(added, "jsonc") == {**top, "servers": {**top.get("servers", {}), "orchard": ENTRY}}
    assert read_text(gone, "jsonc") == {"servers": {}, **top}
    assert comments_of(added) == comments_of(text) == comments_of(gone)


# ------------------------------------------------------------------------------------------- TOML

HEADER = ("mcp_servers", "orchard")
TOML = '''\
# my settings
model = "gpt"   # the best
notify = [
  "a", # [mcp_servers.orchard]
  ["b"],
]
text = """
[mcp_servers.orchard]
command = "not a table"
"""

[mcp_servers.other]
command = 'x'
env = { A = "[b]" }

# about projects
[projects."/some/where"]
trust_level = "trusted"
'''


def test_a_table_is_added_at_the_end_and_taken_out_again() -> None:
    added = edited(TOML, "toml", HEADER, TABLE)

    assert added.startswith(TOML)
    assert tomllib.loads(added)["mcp_servers"]["orchard"] == TABLE
    assert edited(added, "toml", HEADER, None) == TOML


@pytest.mark.parametrize("name", ["mcp_servers.orchard", ' "mcp_servers" . orchard ', "mcp_servers.'orchard'"])
def test_a_table_is_replaced_in_its_place_with_those_below_it(name: str) -> None:
    ours = f'[{name}] # ours\ncommand = "old"\nargs = [\n  "a",\n]\n\n[mcp_servers.orchard.env]\nA = "b"\n'
    text = TOML.replace("# about projects", f"{ours}\n# about projects")

    changed = edited(text, "toml", HEADER, TABLE)
    gone = edited(text, "toml", HEADER, None)

    assert tomllib.loads(changed)["mcp_servers"]["orchard"] == TABLE
    assert changed.index("[mcp_servers.orchard]\ncommand = ") < changed.index("# about projects")
    assert "# about projects\n[projects" in changed and "# about projects\n[projects" in gone
    assert tomllib.loads(gone) == tomllib.loads(TOML)


@pytest.mark.parametrize("text", ["", "\n", "a = 1", "a = 1\n", "a = nan\n", "[mcp_servers]\n", "[[x]]\ny = 1\n"])
def test_a_table_is_added_to_any_file(text: str) -> None:
    added = edited(text, "toml", HEADER, TABLE)

    assert tomllib.loads(added)["mcp_servers"]["orchard"] == TABLE
    assert edited(added, "toml", HEADER, None).strip() == text.strip()


OURS = 'orchard = {command = "/usr/bin/orchard", args = ["mcp", "--toolsets", "core,jobs"], startup_timeout_sec = 30}'


@pytest.mark.parametrize(
    ("text", "changed", "gone"),
    [
        ("mcp_servers = {} # c\n", f"mcp_servers = {{{OURS}}} # c\n", "mcp_servers = {} # c\n"),
        (
            'mcp_servers = { other = { command = "x" } } # c\na = 1\n',
            f'mcp_servers = {{ other = {{ command = "x" }}, {OURS} }} # c\na = 1\n',
            'mcp_servers = { other = { command = "x" } } # c\na = 1\n',
        ),
        (
            "mcp_servers = {other={a=1}, orchard={a = [1,2]},z =  2}\r\n",
            f"mcp_servers = {{other={{a=1}}, {OURS},z =  2}}\r\n",
            "mcp_servers = {other={a=1}, z =  2}\r\n",
        ),
        (
            "mcp_servers = { other = 1, orchard.a = 1, orchard.env.b = 2 }\n",
            f"mcp_servers = {{ other = 1, {OURS} }}\n",
            "mcp_servers = { other = 1 }\n",
        ),
        (
            "# a\nmcp_servers.orchard.a = 1 # b\n# c\nmcp_servers . 'orchard' . b = 2\nmcp_servers.z.y = 3 # d\n[q]\n",
            f"# a\nmcp_servers.{OURS}\n# c\nmcp_servers.z.y = 3 # d\n[q]\n",
            "# a\n# c\nmcp_servers.z.y = 3 # d\n[q]\n",
        ),
        (
            "[mcp_servers]\n# a\n\n  orchard = { command = 'x' } # b\nother={}",
            f"[mcp_servers]\n# a\n\n  {OURS} # b\nother={{}}",
            "[mcp_servers]\n# a\n\nother={}",
        ),
        (
            "[mcp_servers]\norchard.a = 1\nother.b = 1\n\n[mcp_servers.orchard.env]\nA = 1\n\n# c\n[q]\n",
            f"[mcp_servers]\n{OURS}\nother.b = 1\n\n# c\n[q]\n",
            "[mcp_servers]\nother.b = 1\n\n# c\n[q]\n",
        ),
    ],
)
def test_inline_and_dotted_forms_are_changed_in_their_place(text: str, changed: str, gone: str) -> None:
    assert edited(text, "toml", HEADER, TABLE) == changed
    assert edited(text, "toml", HEADER, None) == gone
    assert edited(changed, "toml", HEADER, None) == gone


def test_a_table_that_stands_in_several_places_is_gathered_in_the_first() -> None:
    text = "[a]\n\n[mcp_servers.orchard.env]\nA = 1\n# b\n[b]\nx = 1\n\n[mcp_servers.orchard]\ny = 1\n# c\n[a.d]\n"

    changed, gone = edited(text, "toml", HEADER, TABLE), edited(text, "toml", HEADER, None)

    assert gone == "[a]\n# b\n[b]\nx = 1\n# c\n[a.d]\n"
    assert re.sub(r"\n\[mcp_servers\.orchard\]\n(\w+ = .*\n){3}", "", changed) == gone


def test_comments_between_our_tables_stay() -> None:
    text = "a = 1\n\n[mcp_servers.orchard]\nx = 1\n\n# b\n[mcp_servers.orchard.env]\nA = 1\n\n# c\n[q]\n"

    assert edited(text, "toml", HEADER, None) == "a = 1\n\n# b\n\n# c\n[q]\n"


@pytest.mark.parametrize("text", ["[[a]]\nx = 1\n[b]\n[[a]]\n", "[mcp_servers.b]\n[[a]]\nx = 1\n[[a.c]]\nd = 1\n"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_others_stay_in_their_order_whatever_it_is(text: str, ends: str) -> None:
    text = text.replace("\n", ends)
    block = "[mcp_servers.orchard]\nx = 1\n".replace("\n", ends)

    added = edited(text, "toml", HEADER, {"x": 1})

    assert added == text + ends + block
    assert edited(added, "toml", HEADER, {"x": 2}) == text + ends + block.replace("1", "2")
    assert edited(added, "toml", HEADER, None) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mcp_servers = 1\n", "'mcp_servers' is not a table"),
        ("[[mcp_servers]]\nname = 1\n", "'mcp_servers' is not a table"),
        ("mcp_servers = {\n  other = 1\n}\n", "line 1"),
        ("x = " + "[" * 100_000 + "]" * 100_000, "nested too deep"),
        ("a.b = 1\n[a]\n", "line 2"),
    ],
)
def test_what_is_no_table_or_no_toml_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(BadText, match=why):
        edited(text, "toml", HEADER, TABLE)


@pytest.mark.parametrize("wrong", ["[mcp_servers.orchard]\n", "a = 2\n[mcp_servers.orchard]\nx = 1\n", "a = ", ""])
def test_a_text_that_says_anything_else_than_was_meant_is_never_handed_out(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchard.surfaces.cli.external.toml.edited_toml", lambda *given, **more: wrong)

    with pytest.raises(BadText, match="cannot be changed here"):
        edited("a = 1\n", "toml", HEADER, {"x": 1})


def test_broken_toml_is_refused_with_its_line() -> None:
    with pytest.raises(BadText, match="line 2"):
        edited("a = 1\nb = \n", "toml", HEADER, TABLE)


def test_line_ends_of_windows_are_kept() -> None:
    text = TOML.replace("\n", "\r\n")

    added = edited(text, "toml", HEADER, TABLE)

    assert "\n" not in added.replace("\r\n", "")
    assert edited(added, "toml", HEADER, None) == text


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_word_can_be_written(word: str) -> None:
    table = {"command": word, "args": [word]}

    assert tomllib.loads(edited("", "toml", HEADER, table))["mcp_servers"]["orchard"] == table
