"""Whatever is given, there is a plan or a list of problems; never a traceback."""

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.errors import InvalidInput
from orchard.model.plan import Plan
from orchard.planfile.parse import parse, parse_value, parse_work
from orchard.planfile.places import Places, Unreadable
from orchard.planfile.yaml import read_yaml
from tests.examples import examples

Format = Literal["yaml", "json", "toml"]

YAML = b"""\
name: "Add login"
verify: {command: make test, timeout: 10m}
env: {A: 1.10, B: no}
jobs:
  - id: models
    work: "@agent Add a model"
  - id: api
    group: g/h
    needs: [models]
    heal: 3
    work:
      type: agent
      instructions: |
        # Login
    postchecks: [a, {executable: b, args: [c]}]
groups:
  - name: g
    jobs: [{id: x, needs: models}]
"""
JSON = b'{"name": "p", "jobs": [{"id": "a", "env": {"A": 1.5}, "work": {"command": "x"}}, {"id": "b", "needs": ["a"]}]}'
TOML = b'name = "p"\n[env]\nA = 1.5\n[[jobs]]\nid = "a"\n[[jobs]]\nid = "b"\nneeds = ["a"]\nwork = {command = "x"}\n'
SAMPLES: dict[Format, bytes] = {"yaml": YAML, "json": JSON, "toml": TOML}

formats = st.sampled_from(sorted(SAMPLES))
_marks = b"""{ } [ ] " ' &a *a !!x <<: | > # \\ \\ud800 \\0 @ - / .. , = ? """
_words = b"null 1e999 .nan NaN nan 2026-01-01 id a 0 true"
_breaks = [
    b"\n",
    b"  ",
    b"- ",
    b": ",
    b"---\n",
    b"%YAML 1.1\n",
    b"[[a]]\n",
    b"[a.b]\n",
    b"a.b = 1\n",
    b'"""',
    b"\t",
    b"\r",
]
_odd = [b"\xff", b"\xc2\x85", b"\xe2\x80\xa8", b"\x00", b"9" * 5000, b"\xef\xbb\xbf", b"\xf0\x9f\x8c\xb3"]
snippets = st.sampled_from([*_marks.split(), *_words.split(), *_breaks, *_odd])


@st.composite
def mutated(draw: st.DrawFn) -> tuple[bytes, Format]:
    """A plan that was right, after a few accidents."""
    name: Format = draw(formats)
    data = SAMPLES[name]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.sampled_from([0, 0, 1, 2, 10]))
        data = data[:at] + draw(snippets | st.binary(max_size=2)) + data[at + cut :]
    return data, name


def check(data: bytes, name: Format) -> None:
    try:
        plan = parse(data, f"p.{name}")
    except InvalidInput as refused:
        assert refused.problems
        assert "is not valid here" not in refused.message  # the wording of a kind of error that was forgotten
        assert refused.message.replace("\n", "").isprintable()
    else:
        assert isinstance(plan, Plan)
        assert plan.in_order


@examples(400)
@given(mutated())
def test_a_damaged_plan_is_read_or_refused(damaged: tuple[bytes, Format]) -> None:
    check(*damaged)


@examples(150)
@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")), formats)
def test_any_bytes_are_read_or_refused(data: bytes, name: Format) -> None:
    check(data, name)


_names = """name jobs groups id needs dependencies work type command executable args env instructions on_failure heal
no_auto_heal timeout prechecks setup budget tokens group cwd priority deploy land verify mcp_servers x [key]"""
keys = st.sampled_from([*_names.split(), "", "\x1b"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2000)
    | st.floats()
    | st.sampled_from(
        ["a", "b", "shell", "agent", "@x", "@x y", "10m", "", "-a", "a/b", "manual", "\0", "\ud800", "a\nb"]
    )
    | st.text(max_size=5)
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=25
)


@examples(300)
@given(values, st.lists(values, max_size=3), st.dictionaries(keys, values, max_size=3))
def test_any_value_is_a_plan_or_refused(value: Any, jobs: list[Any], fields: dict[str, Any]) -> None:
    for candidate in (value, {"name": "p", **fields, "jobs": jobs}, {"name": "p", "jobs": [{"id": "a", **fields}]}):
        try:
            assert parse_value(candidate).in_order
        except InvalidInput as refused:
            assert "is not valid here" not in refused.message


@examples(150)
@given(values)
def test_any_value_is_a_work_or_refused(value: Any) -> None:
    try:
        parse_work(value, "setup[0]")
    except InvalidInput as refused:
        assert all(problem.path.startswith("setup[0]") for problem in refused.problems)


def read(text: str, pure: bool) -> tuple[str, Any]:
    places = Places()
    try:
        return "value", (read_yaml(text, places, pure=pure), places)
    except Unreadable:
        return "refused", None


@pytest.mark.parametrize("text", [YAML.decode(), "- a\n- {b: 1, c: [2, 0x1F, ~]}\n- |\n  x\n- >-\n  y\n  z\n"])
def test_the_slow_reader_reads_what_the_fast_one_reads_at_the_same_places(text: str) -> None:
    fast, slow = read(text, pure=False), read(text, pure=True)

    assert fast == slow
    assert fast[0] == "value"


@examples(150)
@given(mutated())
def test_the_slow_reader_reads_or_refuses_too(damaged: tuple[bytes, Format]) -> None:
    assert read(damaged[0].decode(errors="replace"), pure=True)[0] in ("value", "refused")
