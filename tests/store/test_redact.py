"""Secrets and control sequences that must not leave a log."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.model.secrets import looks_secret, secrets_in, secrets_of
from orchard.planfile.parse import parse
from orchard.store.redact import CARRY, Redactor, redact_text
from orchard.text import for_screen
from tests.examples import examples

SECRET = "hunter2/pä+ss=w?rd&more"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\nabc+/=\n-----END RSA PRIVATE KEY-----"
RAW = SECRET.encode()

TOKENS = [
    b"sk-ant-api03-abcdefghijklmnop",
    b"ghp_abcdefghijklmnopqrst0123456789ABCDEF",
    b"gho_abcdefghijklmnopqrst0123456789ABCDEF",
    b"ghs_abcdefghijklmnopqrst0123456789ABCDEF",
    b"github_pat_11ABCDEFG0abcdefghij_klmnopqrstuvwxyz",
    b"xoxb-123456789012-abcdefghijkl",
    b"AKIAIOSFODNN7EXAMPLE",
    b"AIzaSyA-1234567890abcdefghijklmnopqrstuv",
    b"glpat-abcdefghij0123456789",
    b"npm_abcdefghijklmnopqrstuvwxyz0123456789",
    b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    KEY.encode(),
]


def fed(redactor: Redactor, *chunks: bytes) -> bytes:
    return b"".join([*(redactor.feed(chunk) for chunk in chunks), redactor.close()])


def base64_forms(data: bytes) -> list[bytes]:
    return [
        encode(before + data + after)
        for before in (b"", b"x", b"xy", b"xyz")
        for after in (b"", b"q", b"qr")
        for encode in (base64.b64encode, base64.urlsafe_b64encode)
    ]


@pytest.mark.parametrize(
    "printed",
    [
        RAW,
        quote(SECRET, safe="").encode(),
        quote(SECRET, safe="").lower().encode(),
        quote(SECRET).encode(),
        quote_plus(SECRET).encode(),
        RAW.hex().encode(),
        RAW.hex().upper().encode(),
        json.dumps(SECRET).encode(),
        json.dumps(SECRET, ensure_ascii=False).encode(),
    ],
)
def test_a_known_value_is_found_however_it_is_printed(printed: bytes) -> None:
    shown = fed(Redactor([SECRET]), b"value: " + printed + b" end\n")

    assert shown.replace(b'"', b"") == b"value: [redacted] end\n"


@pytest.mark.parametrize("printed", base64_forms(b"~~~???>>>~~~???>>>"))
def test_a_known_value_is_found_anywhere_inside_base64(printed: bytes) -> None:
    shown = fed(Redactor(["~~~???>>>~~~???>>>"]), b"Basic=" + printed + b"\n")

    assert b"[redacted]" in shown
    assert len(shown) < len(b"Basic=[redacted]\n") + 12


@pytest.mark.parametrize("token", TOKENS)
def test_tokens_are_known_by_their_shape(token: bytes) -> None:
    assert fed(Redactor(), b"got '" + token + b"' back\n") == b"got '[redacted]' back\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"Authorization: Bearer abc.def-ghi123", b"Authorization: Bearer [redacted]"),
        (b"authorization: basic dXNlcjpwYXNz", b"authorization: basic [redacted]"),
        (b"postgres://ada:s3cr3t@db.local/x", b"postgres://ada:[redacted]@db.local/x"),
        (b"https://x.test/?a=1&access_token=abcdef12&b=2", b"https://x.test/?a=1&access_token=[redacted]&b=2"),
        (b"DB_PASSWORD='correct horse'", b"DB_PASSWORD='correct horse'".replace(b"correct", b"[redacted]")),
        (b"x=password=abcdefgh", b"x=password=[redacted]"),
    ],
)
def test_what_is_around_a_secret_stays_readable(text: bytes, shown: bytes) -> None:
    assert fed(Redactor(), text + b"\n") == shown + b"\n"


@pytest.mark.parametrize(
    "text",
    [
        b"task-abcdefghijklmnopqrstuvwxyz was done\n",
        b"tests passed=12 max_tokens=4096 asia AKIA\n",
        b"https://example.com:8080/path?q=1 and git@example.com:a/b\n",
        b"bearer of news; -----BEGIN CERTIFICATE-----\n",
        bytes(range(256)),
    ],
)
def test_ordinary_text_is_left_alone(text: bytes) -> None:
    assert fed(Redactor(), text) == text


def test_a_secret_is_found_wherever_the_stream_is_cut() -> None:
    secrets = [SECRET, KEY, "ab\ncd\nef", "first long line\nsecond long line"]
    text = b"one " + b" two\n".join(
        [RAW, base64.b64encode(RAW), b"ab\ncd\nef", KEY.encode(), b"second long line", *TOKENS]
    )
    whole = fed(Redactor(secrets), text)

    for place in range(len(text) + 1):
        assert fed(Redactor(secrets), text[:place], text[place:]) == whole
    assert fed(Redactor(secrets), *(text[at : at + 1] for at in range(len(text)))) == whole
    assert b"hunter" not in whole
    assert whole.count(b"[redacted]") >= len(TOKENS) + 4


@examples(200)
@given(
    st.lists(
        st.sampled_from([RAW, b"\n", b"\r\n", b"ab\ncd\nef", b"ab\ncd", b" ", b"x" * 50, b"://a:", b"@", *TOKENS])
    ),
    st.data(),
)
def test_cutting_never_changes_what_is_shown(parts: list[bytes], data: st.DataObject) -> None:
    text = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    chunks = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert fed(Redactor([SECRET, "ab\ncd\nef"]), *chunks) == Redactor([SECRET, "ab\ncd\nef"]).whole(text)


def test_whole_lines_are_shown_at_once() -> None:
    redactor = Redactor([SECRET])

    assert redactor.feed(b"one\ntwo") == b"one\n"
    assert redactor.feed(b" and more\n") == b"two and more\n"
    assert redactor.feed(b"50%\r") == b"50%\r"


def test_a_line_without_end_is_not_gathered() -> None:
    redactor = Redactor([SECRET])
    shown = b""
    for _ in range(100):
        shown += redactor.feed(b"x" * 10_000)
        assert len(redactor._carry) <= CARRY
    shown += redactor.feed(RAW[:7]) + redactor.feed(RAW[7:] + b"y" * CARRY * 2) + redactor.close()

    assert shown == b"x" * 1_000_000 + b"[redacted]" + b"y" * CARRY * 2


def test_a_key_that_never_ends_does_not_blind_the_log() -> None:
    text = b"-----BEGIN PRIVATE KEY-----\n" + b"MIIE\n" * 20_000 + b"the end\n"

    shown = fed(Redactor(), *(text[at : at + 1000] for at in range(0, len(text), 1000)))

    assert shown.startswith(b"[redacted]")
    assert shown.endswith(b"the end\n")


def test_a_long_secret_is_found_in_pieces() -> None:
    secret = "".join(chr(33 + (number * 7919 + number // 90) % 90) for number in range(30_000))

    shown = fed(Redactor([secret]), b"a " + secret.encode() + b" z\n")

    assert shown.replace(b"[redacted]", b"") == b"a  z\n"


@pytest.mark.parametrize("secret", ["", "abc", "12345", "   a   "])
def test_short_values_are_not_looked_for(secret: str) -> None:
    assert fed(Redactor([secret]), b"abc 12345 a\n") == b"abc 12345 a\n"


def test_text_is_redacted_as_a_whole() -> None:
    assert redact_text("\udc80 say hunter22 \U0001f333", ["hunter22"]) == "\udc80 say [redacted] \U0001f333"


@pytest.mark.parametrize(
    "name",
    ["GH_TOKEN", "github_token", "MY_SECRET_X", "DB_PASSWORD", "PASSWD", "OPENAI_API_KEY", "APIKEY", "TLS_PRIVATE_KEY",
     "GOOGLE_APPLICATION_CREDENTIALS", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "NPM_AUTH", "SIGNING_KEY",
     "GITLAB_PAT", "MYSQL_PWD", "SSHPASS", "PGPASS", "DB_PASS", "DOCKER_AUTH_CONFIG", "AUTH_HEADER", "GCP_CREDS",
     "MY_CRED", "SLACK_WEBHOOK_URL", "ANTHROPIC_CUSTOM_HEADERS", "EXTRA_HEADER"],
)  # fmt: skip
def test_names_that_look_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "PWD", "OLDPWD", "HOME", "SSH_AUTH_SOCK", "AWS_REGION", "KEYBOARD", "MAX_TOKENS", "MAX_OUTPUT_TOKENS",
     "TOKENIZERS_PARALLELISM", "COMPASS", "BYPASS", "XAUTHORITY", "PATTERN", "GIT_AUTHOR_NAME", "HEADERS_DIR"],
)  # fmt: skip
def test_names_that_do_not_look_secret(name: str) -> None:
    assert not looks_secret(name)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("DATABASE_URL", "postgres://ada:hunter22@db/x", True),
        ("DATABASE_URL", "postgres://ada@db/x", False),
        ("HTTPS_PROXY", "http://ada:hunter22@proxy:3128", False),
    ],
)
def test_a_variable_with_a_password_in_its_address_is_a_secret(name: str, value: str, secret: bool) -> None:
    assert looks_secret(name, value) is secret


SPLIT = "planlevelsecret77"


def dump(group: int, width: int = 16, offset: str = "{:08x}: ") -> str:
    """Like xxd: an offset, bytes in groups, and the same as text."""
    data, rows = b"x=" + SPLIT.encode() + b"\n", []
    for at in range(0, len(data), width):
        part = data[at : at + width]
        digits = " ".join(part[place : place + group].hex() for place in range(0, len(part), group))
        text = part.decode().replace("\n", ".")
        rows.append(f"{offset.format(at)}{digits:<{width * 2 + width // group}} {text}")
    return "\n".join(rows)


@pytest.mark.parametrize(
    "said",
    [
        "planleve\x1b[0mlsecret77",
        "planleve\x1b[01;31m\x1b[Klsecret77",
        "\x1b[31mp\x1b[0mlanlevelsecret7\x1b[m7",
        "planleve\x1b]0;title\x07lsecret77",
        "planleve\x1b]8;;http://x\x1b\\lsecret77",
        "planleve\x00lsecret77",
        "planleve\x08lsecret77",
        "plan\u200blevelsecret77",
        "plan\ufefflevel\u00adsecret77",
        "planleve\u009b1mlsecret77",
        "key=\x1b[1mplan\x1b[0mlevelsecret77",
    ],
)
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_secret_with_control_sequences_in_it_is_not_shown_as_a_whole(said: str, step: int) -> None:
    data = f"before {said} after\n".encode()
    redactor = Redactor([SPLIT])
    shown = b"".join(redactor.feed(data[at : at + step]) for at in range(0, len(data), step)) + redactor.close()

    assert SPLIT not in for_screen(shown.decode())
    assert SPLIT not in for_screen(shown.decode(), keep_colors=True).replace("\x1b[0m", "")
    assert for_screen(shown.decode()).startswith("before ") and "after" in shown.decode()


@pytest.mark.parametrize(
    "said",
    [
        SPLIT.encode().hex(" "),
        SPLIT.encode().hex(" ").upper(),
        SPLIT.encode().hex(":"),
        SPLIT.encode().hex(" ", 2),
        "".join(f"\\x{byte:02x}" for byte in SPLIT.encode()),
        "".join(f"%{byte:02x}" for byte in SPLIT.encode()),
        "".join(f"%{byte:02X}" for byte in SPLIT.encode()),
        ", ".join(f"0x{byte:02x}" for byte in SPLIT.encode()),
        dump(2),
        dump(1, offset="{:07o} "),
        dump(1, offset="{:08x}  "),
        "\n".join(SPLIT.encode().hex()[at : at + 20] for at in range(0, 34, 20)),
    ],
    ids=[
        "spaced",
        "upper",
        "colons",
        "words",
        "escaped",
        "percent",
        "percent-upper",
        "c",
        "xxd",
        "od",
        "hexdump",
        "wrapped",
    ],
)
def test_a_secret_written_byte_by_byte_is_not_shown(said: str) -> None:
    shown = Redactor([SPLIT]).whole(f"before {said} after\n".encode()).decode()

    assert "[redacted]" in shown and shown.startswith("before ")
    digits = "".join(one for one in shown.lower() if one in "0123456789abcdef")
    assert SPLIT.encode().hex()[8:-8] not in digits
    assert "secret" not in shown


@pytest.mark.parametrize(
    "text", ["00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff", "deadbeef " * 20, "%41%42%43%44%45%46%47"]
)
def test_other_bytes_in_hexadecimal_are_shown(text: str) -> None:
    assert Redactor([SPLIT]).whole(text.encode()) == text.encode()


def test_what_a_single_work_sets_is_a_secret_of_the_plan() -> None:
    plan = parse(
        b"""
name: Env
setup: [{type: shell, command: x, env: {SETUP_TOKEN: setupsecret1}}]
verify: {type: shell, command: x, env: {VERIFY_TOKEN: verifysecret1}}
jobs:
  - id: a
    setup: [{type: shell, command: x, env: {OWN_TOKEN: ownsecret1}}]
    prechecks: {type: shell, command: x, env: {PRE_TOKEN: presecret1}}
    work: {type: shell, command: x, env: {WORK_TOKEN: worksecret1}}
    postchecks: [{type: shell, command: x, env: {POST_TOKEN: postsecret1}}]
""",
        "plan.yaml",
    )

    words = ("setup", "verify", "own", "pre", "work", "post")
    assert {f"{word}secret1" for word in words} <= set(secrets_in({}, plan))


def test_the_secrets_of_an_environment() -> None:
    environment = {
        "GH_TOKEN": "abcdefgh",
        "OTHER_TOKEN": "abcdefgh",
        "SHORT_TOKEN": "abc",
        "AWS_SHARED_CREDENTIALS_FILE": "/home/ada/.aws",
        "DATABASE_URL": "postgres://ada:s3cr3ts@db/x",
        "PATH": "/usr/bin",
    }

    assert secrets_of(environment) == ["abcdefgh", "s3cr3ts"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone?", "gone?"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;aGk=\x1b\\after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred\x9d0;t\x9cafter", "redafter"),
        ("\x1bP1$q\x1b\\dcs\x1b_apc\x1b\\end", "dcsend"),
        ("\x1b]0;never ends\nnext line", "\nnext line"),
        ("\x1b\x1b[31mx", "x"),
        ("\x1b(Bx\x1bcx", "xx"),
        ("a\rb\x08c\x00d\x7f", "a\nbcd"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("user\u202egpj.exe\u200b\ufeff\u2066", "usergpj.exe"),
        ("tag\U000e0041s", "tags"),
        ("half \udc9b pair", "half \ufffd pair"),
        ("dangling \x1b", "dangling "),
        ("grün \U0001f333 漢字", "grün \U0001f333 漢字"),
    ],
)
def test_a_screen_gets_nothing_it_would_obey(text: str, shown: str) -> None:
    assert for_screen(text) == shown


def test_colours_may_stay_and_end_with_the_text() -> None:
    assert for_screen("\x1b[1;31mred\x1b[2J\x1b]0;t\x07", keep_colors=True) == "\x1b[1;31mred\x1b[0m"
    assert for_screen("a\nb", keep_colors=True) == "a\nb"


@given(st.text(alphabet=st.sampled_from("\x1b[]31;mHJ\x07\\\x9b\x9d\u202e\u200bP(_ab\n\t\r\ud800")))
def test_whatever_comes_no_control_is_left(text: str) -> None:
    shown = for_screen(text)

    assert all(char in "\n\t\ufffd" or char.isprintable() for char in shown)
    assert for_screen(shown) == shown
