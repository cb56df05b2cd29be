"""Which machines an address can mean: the spelling of hosts, and the addresses that no job may reach by itself.

The tables are our own: `ipaddress.is_global` has changed between releases of Python, and knows nothing of an IPv4
address inside of an IPv6 one.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from orchard.patterns import later

Address = IPv4Address | IPv6Address

_NOT_PUBLIC_4: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(text), word)
    for text, word in (
        ("169.254.169.254/32", "metadata"),
        ("168.63.129.16/32", "metadata"),  # a public number that means the host of the virtual machine
        ("100.100.100.200/32", "metadata"),
        ("192.0.0.192/32", "metadata"),
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "private"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_NOT_PUBLIC_6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(text), word)
    for text, word in (
        ("fd00:ec2::254/128", "metadata"),
        ("fd20:ce::254/128", "metadata"),
        ("::1/128", "loopback"),
        ("::/128", "unspecified"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("fc00::/7", "private"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "reserved"),
        ("3fff::/20", "reserved"),
    )
)
_GLOBAL_6 = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_TRANSLATED = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_TUNNEL_WITHIN_A_SITE = (0x00005EFE, 0x02005EFE)
"""The third quarter of an ISATAP address, whose last quarter is an IPv4 address."""

_LABEL = later(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = later(r"[0-9]+|0x[0-9a-f]*")
_PORT = later(r"[1-9][0-9]{0,4}")


def objection(address: Address) -> str | None:
    """Why an address is not a public one, as one word; None: it is public."""
    if isinstance(address, IPv4Address):
        return next((word for network, word in _NOT_PUBLIC_4 if address in network), None)
    number = int(address)
    if address in _MAPPED or address in _TRANSLATED:
        return objection(IPv4Address(number & 0xFFFFFFFF))
    if address in _SIX_TO_FOUR:
        return objection(IPv4Address(number >> 80 & 0xFFFFFFFF))
    for network, word in _NOT_PUBLIC_6:
        if address in network:
            return word
    if address not in _GLOBAL_6:
        return "reserved"
    if number >> 32 & 0xFFFFFFFF in _TUNNEL_WITHIN_A_SITE:
        return objection(IPv4Address(number & 0xFFFFFFFF))
    return None


def parsed(text: str) -> Address | None:
    """The address that is spelled in the one usual way; None for anything else, names as well."""
    try:
        return IPv6Address(text) if ":" in text and "%" not in text else IPv4Address(text)
    except ValueError:
        return None


def canonical_host(text: str) -> str | None:
    """A host as it is compared: a name in small letters without its last dot, or an address in its usual spelling.

    None for what is no host. That is also what looks like a number but is no usual address (`0x7f.1`, `2130706433`,
    `127.1`, `010.0.0.1`): resolvers disagree on what these mean.
    """
    if text.startswith("[") and text.endswith("]"):
        address = parsed(text[1:-1])
        return str(address) if isinstance(address, IPv6Address) else None
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return None
    if _NUMBER.fullmatch(labels[-1]):
        address = parsed(name)
        return str(address) if address is not None else None
    return name


def port_of(text: str) -> int | None:
    """A port from 1 to 65535, written without zeros in front; None for anything else."""
    return int(text) if _PORT.fullmatch(text) and int(text) <= 65535 else None


def split_authority(text: str, default: int | None = None) -> tuple[str, int] | None:
    """The host, made canonical, and the port of `host:port`; None for what is not one, `user@host` as well."""
    host, colon, number = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, default
    else:
        port = port_of(number)
    name = canonical_host(host)
    return (name, port) if name is not None and port is not None else None


def authority(host: str, port: int) -> str:
    """`host:port` as it is written; an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
