"""Attacks through sockets: doors of other programs on this machine, and the network."""

# An attack is read as one line.
# ruff: noqa: E501

from tests.process.sandbox.corpus.attack import Attack, attacks

DOORS = (
    ("docker", "run", "docker.sock"), ("the SSH agent", "tmp", "ssh-x/agent.1"), ("the system bus", "run", "dbus/system_bus_socket"),
    ("the session bus", "run", "user/bus"), ("the GPG agent", "home", ".gnupg/S.gpg-agent"), ("X11", "tmp", ".X11-unix/X0"),
    ("the engine", "state", "control.sock"), ("another job's door", "tmp", "orchard-agent-two/door"),
    ("a database", "run", "postgresql/.s.PGSQL.5432"),
)  # fmt: skip

SOCKETS = (
    *(Attack(topic="sockets", name=f"connect to {who}", code=f"ask(W['{place}'] + '/{path}')") for who, place, path in DOORS),
    *attacks(
        "sockets",
        ("connect to a socket through a link", "os.symlink(W['run'] + '/docker.sock', 'd.sock'); ask('d.sock')"),
        ("connect to a socket through a descriptor",
         "d = os.open(W['run'], os.O_PATH); ask(f'/proc/self/fd/{d}/docker.sock')"),
        ("connect to an abstract socket", "ask('\\0' + W['abstract'])"),
        ("connect to a port of the host", "ask(('127.0.0.1', W['port']), socket.AF_INET)"),
        ("connect to a port of the host by IPv6", "ask(('::1', W['port6']), socket.AF_INET6)"),
        ("connect to a port by the address of everything", "ask(('0.0.0.0', W['port']), socket.AF_INET)"),
        ("ask by UDP", "ask(('127.0.0.1', W['udp']), socket.AF_INET, socket.SOCK_DGRAM)"),
        ("begin a connection with its data",
         "s = socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1', W['port'])); leak(s.recv(999))"),
        ("see the network of the host", "won() if set(os.listdir('/sys/class/net')) == set(W['interfaces']) and len(socket.if_nameindex()) > 1 else None"),
        ("make a raw socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); won()"),
        ("listen to every packet", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768); won()"),
    ),
    *attacks(
        "sockets",
        ("route to the outside", "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.1', 53)); won()"),
        ("talk to the hypervisor", "s = socket.socket(40, socket.SOCK_STREAM); s.settimeout(1); s.bind((0xffffffff, 0xffffffff)); won()"),
        sometimes=True,
    ),
    Attack(topic="sockets", name="use the kernel's ciphers", code="socket.socket(38, socket.SOCK_SEQPACKET).bind(('hash', 'sha256')); won()", filtered=True, sometimes=True),
)  # fmt: skip
