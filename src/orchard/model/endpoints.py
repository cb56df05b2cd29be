"""Hosts and ports as people list them: in `allowed_urls` of a plan, and in the user's own settings.

An entry is `host`, `host:port`, `host:*`, `*.host` (any name below it, not itself), an address, or an http(s) URL.
Without a port, 80 and 443 are meant; a URL means the port of its scheme. The path of a URL does not narrow what is
reached: of an https connection we see host and port only.
"""

from msgspec import Struct

from orchard.model.addresses import Address, authority, canonical_host, objection, parsed, port_of

WEB_PORTS = (80, 443)
_SCHEMES = {"http": 80, "https": 443}
_USUAL = "Write a host ('example.org'), 'host:port', '*.example.org', an address, or an http or https URL."


class _Problem(ValueError):
    """Why a text is not an entry."""


class Entry(Struct, frozen=True):
    """One line of the list: a host, or all names below it, at some ports or at all of them."""

    host: str
    below: bool = False
    """Meant are the names below the host, not the host."""
    ports: tuple[int, ...] = WEB_PORTS
    """Empty: every port."""

    @property
    def address(self) -> Address | None:
        return None if self.below else parsed(self.host)

    def covers(self, host: str, port: int) -> bool:
        """Whether a host, in its canonical spelling, is meant at this port."""
        named = host.endswith("." + self.host) if self.below else host == self.host
        return named and (not self.ports or port in self.ports)


def problem(text: str, *, own: bool = False) -> str | None:
    """What is wrong with an entry, as a sentence; None: nothing. `own`: it stands in the user's own settings."""
    try:
        found = entry(text)
    except _Problem as error:
        return str(error)
    address = found.address
    word = objection(address) if address is not None else None
    if word in ("unspecified", "multicast"):
        return f"'{text}' is an address that no connection can go to ({word})."
    if word is not None and not own:
        return f"'{text}' is not a public address ({word}): only the user's own settings can name it."
    return None


def entry(text: str) -> Entry:
    """One line of a list; raises ValueError with a sentence for what is none."""
    if not text.isprintable() or text != text.strip() or " " in text:
        raise _Problem(f"{text!r} has spaces or characters that cannot be seen in it. {_USUAL}")
    rest = text
    ports: tuple[int, ...] = WEB_PORTS
    if "://" in text:
        scheme, _, rest = text.partition("://")
        if scheme.lower() not in _SCHEMES:
            raise _Problem(f"'{text}' is neither http nor https: our proxy speaks nothing else.")
        rest = rest.split("/")[0].split("?")[0].split("#")[0]
        ports = (_SCHEMES[scheme.lower()],)
    if "@" in rest or "\\" in rest:
        raise _Problem(f"'{text}' has a user or a backslash in it: only host and port count. {_USUAL}")
    if "/" in rest:
        raise _Problem(f"'{text}' has a path and no scheme. {_USUAL}")
    host, ports = _with_port(text, rest, ports)
    below = host.startswith("*.")
    host = host.removeprefix("*.")
    name = canonical_host(_ascii(host))
    if name is None:
        raise _Problem(f"'{text}' names no host. {_USUAL}")
    if name == "localhost" or name.endswith(".localhost"):
        raise _Problem(
            f"'{text}' means this machine: name the address, such as '127.0.0.1:8080', in the user's settings."
        )
    if below and (parsed(name) is not None or "." not in name):
        raise _Problem(f"'{text}' is too much: '*.' stands before a name with a dot in it, such as '*.example.org'.")
    return Entry(name, below, ports)


def _with_port(text: str, rest: str, ports: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    if parsed(rest) is not None and ":" in rest:
        return f"[{rest}]", ports  # an IPv6 address without brackets, which cannot have a port
    host, colon, number = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        return rest, ports
    if number == "*":
        return host, ()
    port = port_of(number)
    if port is None:
        raise _Problem(f"'{text}' has no port from 1 to 65535 after its colon. {_USUAL}")
    return host, (port,)


def _ascii(host: str) -> str:
    """A name with other letters as DNS writes it."""
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return ""


def entry_for(host: str, port: int) -> str:
    """The entry that would allow one host at one port, as people write it."""
    if port in WEB_PORTS and ":" not in host and parsed(host) is None:
        return host
    return authority(host, port)
