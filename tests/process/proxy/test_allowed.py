"""The list of what a job may reach: how it is written, and what an address means."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.model.addresses import authority, canonical_host, objection, parsed, split_authority
from orchard.model.endpoints import Entry, entry, entry_for, problem
from orchard.process.proxy.addresses import is_this_machine
from orchard.process.proxy.allowed import Allowed

WRITTEN = {
    "example.org": Entry("example.org"),
    "EXAMPLE.org.": Entry("example.org"),
    "example.org:8443": Entry("example.org", ports=(8443,)),
    "example.org:*": Entry("example.org", ports=()),
    "*.example.org": Entry("example.org", below=True),
    "*.example.org:22": Entry("example.org", below=True, ports=(22,)),
    "http://example.org": Entry("example.org", ports=(80,)),
    "https://example.org/": Entry("example.org", ports=(443,)),
    "HTTPS://example.org:8443/a/b?c#d": Entry("example.org", ports=(8443,)),
    "https://*.example.org": Entry("example.org", below=True, ports=(443,)),
    "bücher.example": Entry("xn--bcher-kva.example"),
    "93.184.215.14": Entry("93.184.215.14"),
    "[2606:4700::1111]:443": Entry("2606:4700::1111", ports=(443,)),
    "2606:4700:0::1111": Entry("2606:4700::1111"),
    "my_host.example": Entry("my_host.example"),
}
BAD = (
    "", " ", "a b", "example.org ", "exa\nmple.org", "ftp://example.org", "file:///etc/passwd", "example.org/path",
    "https://",
    "user@example.org", "https://user:pass@example.org", "https://good.example\\@evil.example", "example.org:0",
    "example.org:65536", "example.org:080", "example.org:x", "example.org:", "*", "*.", "*.org", "a.*.org",
    "*.10.0.0.1",
    "0x7f.1", "2130706433", "127.1", "0177.0.0.1",
    "[::1", "::1]", "[::1%lo]:80", "-a.example", "a-.example", "a..example",
    "localhost", "localhost:8080", "https://x.localhost", "a" * 64 + ".example", "a." * 130 + "example", "0.0.0.0",
    "[::]:80",
    "224.0.0.1", "[ff02::1]", "https://exa%6dple.org", "ä" * 70 + ".example", "http://127.0.0.1.:x",
)  # fmt: skip


def test_every_way_of_writing_an_entry_means_one_thing() -> None:
    assert {text: entry(text) for text in WRITTEN} == WRITTEN
    assert {text: problem(text) for text in WRITTEN} == dict.fromkeys(WRITTEN)


def test_what_is_no_entry_is_told_in_a_sentence_with_what_was_written() -> None:
    for text in BAD:
        for own in (False, True):
            said = problem(text, own=own)
            assert said is not None, text
            assert said.endswith("."), text
            assert text in said or repr(text) in said, text
    assert Allowed.of("listed", BAD, BAD) == Allowed("listed")


def test_only_the_users_own_settings_can_name_an_address_that_is_not_public() -> None:
    for text in ("10.0.0.5:443", "127.0.0.1:11434", "[::1]:80", "192.168.1.1", "http://169.254.169.254", "[fd00::1]"):
        assert "only the user's own settings" in (problem(text) or "")
        assert problem(text, own=True) is None
    allowed = Allowed.of("listed", own=("10.0.0.5:443",))
    assert allowed.refuses_address(IPv4Address("10.0.0.5"), 443) is None
    assert allowed.refuses_address(IPv4Address("10.0.0.5"), 80) == "private"
    assert allowed.refuses_address(IPv4Address("10.0.0.6"), 443) == "private"
    assert allowed.refuses_address(IPv6Address("::ffff:10.0.0.5"), 443) == "private"


def test_a_host_is_covered_by_its_own_entry_and_by_a_star_above_it_at_the_ports_that_are_meant() -> None:
    allowed = Allowed.of("listed", ("example.org", "*.example.net", "https://one.example", "any.example:*"))

    def covered(text: str) -> bool:
        found = split_authority(text)
        assert found is not None
        return allowed.refuses(*found) is None

    for good in ("example.org:80", "example.org:443", "EXAMPLE.ORG.:443", "a.example.net:443", "a.b.example.net:80",
                 "one.example:443", "any.example:22"):  # fmt: skip
        assert covered(good), good
    for bad in ("example.org:22", "a.example.org:443", "badexample.org:443", "example.net:443", "aexample.net:443",
                "one.example:80", "example.org.evil.example:443", "x.any.example:22"):  # fmt: skip
        assert not covered(bad), bad
    assert Allowed("public").refuses("any.example", 9) is None
    assert Allowed("nothing").refuses("example.org", 443) == "network-off"


NOT_PUBLIC = {
    "127.0.0.1": "loopback", "127.255.255.255": "loopback", "0.0.0.0": "unspecified", "0.1.2.3": "unspecified",
    "10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.0.1": "private",
    "100.64.0.1": "private", "100.127.255.255": "private", "169.254.0.1": "link-local", "169.254.169.254": "metadata",
    "168.63.129.16": "metadata", "100.100.100.200": "metadata", "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "255.255.255.255": "reserved", "240.0.0.1": "reserved", "192.0.2.1": "reserved", "198.18.0.1": "reserved",
    "::1": "loopback", "::": "unspecified", "fe80::1": "link-local", "febf::1": "link-local", "fc00::1": "private",
    "fdff::1": "private", "fd00:ec2::254": "metadata", "ff02::1": "multicast", "fec0::1": "private",
    "::ffff:127.0.0.1": "loopback", "::ffff:169.254.169.254": "metadata", "::ffff:0:0": "unspecified",
    "64:ff9b::127.0.0.1": "loopback", "64:ff9b::a9fe:a9fe": "metadata", "64:ff9b:1::1": "reserved",
    "2002:7f00:1::": "loopback", "2002:a9fe:a9fe::1": "metadata", "2002:a00:1::1": "private", "2001::1": "reserved",
    "::127.0.0.1": "reserved", "::7f00:1": "reserved", "2001:db8::1": "reserved", "100::1": "reserved",
    "2606:4700::5efe:10.0.0.1": "private", "2606:4700::200:5efe:7f00:1": "loopback", "4000::1": "reserved",
}  # fmt: skip
PUBLIC = (
    "1.1.1.1", "8.8.8.8", "93.184.215.14", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "192.169.0.1",
    "11.0.0.1",
    "169.253.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "64:ff9b::8.8.8.8", "2002:808:808::1",
    "::ffff:8.8.8.8",
)  # fmt: skip


def test_every_address_that_is_not_public_is_known_in_every_form() -> None:
    assert {text: objection(ip_address(text)) for text in NOT_PUBLIC} == NOT_PUBLIC
    assert {text: objection(ip_address(text)) for text in PUBLIC} == dict.fromkeys(PUBLIC)


@given(st.ip_addresses(v=4))
def test_a_form_of_ipv6_never_opens_an_address_of_ipv4(address: IPv4Address) -> None:
    number = int(address)
    forms = (0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80)

    assert {objection(IPv6Address(form)) for form in forms} == {objection(address)}
    if not address.is_global and address not in (IPv4Address("192.0.0.9"), IPv4Address("192.0.0.10")):
        assert objection(address) is not None


@given(st.ip_addresses(v=6))
def test_what_python_does_not_call_global_is_not_public(address: IPv6Address) -> None:
    if not address.is_global and address.ipv4_mapped is None:
        assert objection(address) is not None


@given(st.text(max_size=80) | st.from_regex(r"[0-9a-fx.:\[\]*@%-]{0,40}", fullmatch=True))
def test_any_text_is_a_host_in_one_spelling_or_none(text: str) -> None:
    host = canonical_host(text)
    if host is not None:
        again = f"[{host}]" if ":" in host else host
        assert canonical_host(again) == host
        assert host.isascii()
        assert not set(host) & set(" \r\n/@%\\*[]")
        if parsed(host) is None:
            assert not host.rpartition(".")[2].isdigit()
            with pytest.raises(ValueError, match="address"):
                ip_address(host)
    found = split_authority(text, 80)
    if found is not None:
        assert split_authority(authority(*found)) == found


@given(st.text(max_size=60))
def test_any_text_is_an_entry_or_has_a_problem_and_what_would_allow_it_is_one(text: str) -> None:
    said = problem(text, own=True)
    if said is None:
        found = entry(text)
        line = entry_for(found.host, 443)
        assert problem(line, own=True) is None
        assert entry(line).covers(found.host, 443)


def test_this_machine_is_known_by_every_address_it_has() -> None:
    assert is_this_machine(IPv4Address("127.0.0.1"))
    assert not is_this_machine(IPv4Address("192.0.2.1"))
