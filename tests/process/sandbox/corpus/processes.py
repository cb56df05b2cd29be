"""Attacks on other processes: to see them, to end them, to look into them, to outlive one's own end."""

# An attack is read as one line.
# ruff: noqa: E501

from tests.process.sandbox.corpus.attack import Attack, attacks

_IOVEC = "a = int(W['address']); b = ctypes.create_string_buffer(64); v = (ctypes.c_size_t * 4)(ctypes.addressof(b), 64, a, 64);"

LOOKS = attacks(
    "processes",
    ("see a process of the host", "os.kill(pid_of('victim-seen'), 0); won()"),
    ("read the environment of the engine", "read(f'/proc/{pid_of(\"victim-environ\")}/environ')"),
    ("read the command line of another program", "read(f'/proc/{pid_of(\"victim-cmdline\")}/cmdline')"),
    ("read the memory of the engine", "f = open(f'/proc/{pid_of(\"victim-memory\")}/mem', 'rb', 0); f.seek(int(W['address'])); leak(f.read(64))"),
    ("write the memory of the engine", "f = open(f'/proc/{pid_of(\"victim-memory\")}/mem', 'rb+', 0); f.seek(int(W['address'])); won()"),
    ("trace the engine", "call((101, 117), 16, pid_of('victim-traced'), 0, 0); won()"),
    ("seize the engine", "call((101, 117), 0x4206, pid_of('victim-traced'), 0, 0); won()"),
    ("read the engine's memory by a call",
     _IOVEC + "call((310, 270), pid_of('victim-memory'), v, 1, ctypes.byref(v, 16), 1, 0); leak(b.raw)"),
    ("take a descriptor of the engine's", "d = call(434, pid_of('victim-open'), 0); leak(os.pread(call(438, d, W['descriptor'], 0), 4096, 0))"),
    ("open a descriptor of the engine's", "read(f'/proc/{pid_of(\"victim-open\")}/fd/{W[\"descriptor\"]}')"),
    ("see what files the engine maps", "won() if open(f'/proc/{pid_of(\"victim-seen\")}/maps').read() else None"),
    ("see the connections of the host", "won() if any(W['port_hex'] in line for line in open('/proc/net/tcp')) else None"),
)  # fmt: skip

DEEDS = (
    *(
        Attack(topic="processes", name=name, code=code, lost=f"!{victim}")
        for name, code, victim in (
            ("end the engine", "os.kill(pid_of('victim-term'), 15)", "victim-term"),
            ("end the engine by its number", "os.kill(W['pids']['victim-number'], 9)", "victim-number"),
            ("end the engine by its group", "os.killpg(os.getpgid(pid_of('victim-group')), 9)", "victim-group"),
            (
                "end the engine by a descriptor",
                "call(424, call(434, pid_of('victim-pidfd'), 0), 9, None, 0)",
                "victim-pidfd",
            ),
            ("queue a signal to the engine", "call((129, 138), pid_of('victim-queue'), 9, (9).to_bytes(8, 'little') + b'\\xff' * 4 + bytes(116))", "victim-queue"),
        )
    ),
    *attacks(
        "processes",
        ("slow the engine down", "os.setpriority(os.PRIO_PROCESS, pid_of('victim-slow'), 19); won()"),
        ("pin the engine to one processor", "os.sched_setaffinity(pid_of('victim-slow'), [0]); won()"),
        ("limit the engine's files",
         "import resource; resource.prlimit(pid_of('victim-limit'), resource.RLIMIT_NOFILE, (64, 4096)); won()"),
        ("make the engine the first to die", "open(f'/proc/{pid_of(\"victim-slow\")}/oom_score_adj', 'w').write('1000'); won()"),
        ("stay after the end",
         "n = f'sleep 30 # {W[\"orphan\"]}-stay'\n"
         "if os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  os.dup2(os.open('/dev/null', 2), 1); os.dup2(1, 2);"
         " os.execv('/bin/sh', ['sh', '-c', n])\n os._exit(0)"),
        ("type into the terminal", "import fcntl; fcntl.ioctl(os.open('/dev/tty', 2), 0x5412, b'x'); won()"),
        ("type into the terminal by a wide number", "d = os.open('/dev/tty', 2); call((16, 29), d, ctypes.c_ulong(0x100005412), b'x'); won()"),
    ),
)  # fmt: skip

SHARED = attacks(
    "processes",
    ("attach shared memory of the host",
     "i = call((29, 194), int(W['shm_key']), 0, 0); LIBC.shmat.restype = ctypes.c_void_p;"
     "leak(ctypes.string_at(LIBC.shmat(i, None, 0o10000)))"),
    ("list shared memory of the host", "won() if len(open('/proc/sysvipc/shm').readlines()) > 1 else None"),
    ("open a queue of the host", "won() if LIBC.msgget(int(W['queue_key']), 0) >= 0 else None"),
    ("open a semaphore of the host", "won() if LIBC.semget(int(W['semaphore_key']), 0, 0) >= 0 else None"),
)  # fmt: skip

PROCESSES = (*LOOKS, *DEEDS, *SHARED)
