"""Attacks on stillness: a stopped program orders beforehand, from the kernel, that it goes on.

The engine stops a job's programs (SIGSTOP) while it works in their folder. Each attack stops a process of its own, and
has won when that process runs again without anybody having sent it a signal by a call.
"""

# An attack is read as one line.
# ruff: noqa: E501

from textwrap import indent

from tests.process.sandbox.corpus.attack import Attack

GO_ON, END = 18, 9

# A process that stops itself, and says so when it goes on; its parent goes on when it stands still.
_SLEEPER = """
import fcntl
def stopped(before=lambda: None):
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(1, 1); before(); os.write(told, b'x'); os.kill(os.getpid(), 19); won(); sys.stdout.flush(); os._exit(0)
    os.close(told)
    if not os.read(ready, 1): raise OSError('refused')
    while open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[0] != 'T': time.sleep(0.01)
    return pid
def ordered(fd, number, owner=None):
    fcntl.fcntl(fd, 10, number); fcntl.fcntl(fd, fcntl.F_SETOWN, owner or os.getpid()); fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
def watched(number, owner=None):
    fd = LIBC.inotify_init(); LIBC.inotify_add_watch(fd, b'bait', 0x20); ordered(fd, number, owner)
def later(): time.sleep(0.3)
def over():
    later()
    for pid in sorted((int(name) for name in os.listdir('/proc') if name.isdigit()), reverse=True):
        try:
            if pid != os.getpid() == os.getsid(pid): os.kill(pid, 9)
        except OSError: pass
open('bait', 'w').close(); os.setsid()
"""

_TIMER = (
    f"event = (ctypes.c_int32 * 16)(0, 0, {GO_ON}, 0); number = ctypes.c_int32(); "
    "call((222, 107), 1, event, ctypes.byref(number)); call((223, 110), number.value, 0, (ctypes.c_int64 * 4)(0, 0, 0, 200_000_000), None)"
)
_QUEUE = (
    "name = f'/orchard-{os.getpid()}'.encode() + b'\\0'; queue = call((240, 180), name[1:], 0o302, 0o600, None); "
    f"event = (ctypes.c_int32 * 16)(0, 0, {GO_ON}, 0); "
    "stopped(lambda: call((244, 184), queue, event)); call((242, 182), queue, b'x', 1, 0, None); call((241, 181), name[1:])"
)
# Who loses the last parent in its session is let go on by the kernel, if it stands still.
_GROUP = """
def group(order):
    os.setpgid(0, 0); child = os.fork()
    if child == 0: os.setpgid(0, 0); stopped_here()
    while open(f'/proc/{child}/stat').read().rpartition(')')[2].split()[0] != 'T': time.sleep(0.01)
    try: order()
    except OSError as error: print(error)
    os.write(told, b'x'); time.sleep(6); os._exit(0)
def stopped_here():
    signal.signal(1, 1); os.kill(os.getpid(), 19); won(); sys.stdout.flush(); os._exit(0)
ready, told = os.pipe()
"""

ORDERS = tuple(
    Attack(topic="orders", name=name, code=f"{_SLEEPER}try:\n{indent(code, ' ')}\nfinally: over()\n", filtered=True, sometimes=sometimes)
    for name, code, sometimes in (
        ("go on when a file is opened", f"watched({GO_ON}, stopped()); open('bait').close()", False),
        ("go on when a folder changes",
         f"d = os.open('.', 0); p = stopped(); fcntl.fcntl(d, 10, {GO_ON}); fcntl.fcntl(d, fcntl.F_NOTIFY, 0x80000004); fcntl.fcntl(d, fcntl.F_SETOWN, p); open('change', 'w').close()", True),
        ("go on when a pipe is written to",
         f"r, w = os.pipe(); ordered(r, {GO_ON}, stopped()); os.write(w, b'x')", False),
        ("go on when a lease is asked for",
         f"d = os.open('bait', 0); p = stopped(); fcntl.fcntl(d, 10, {GO_ON}); fcntl.fcntl(d, fcntl.F_SETLEASE, fcntl.F_RDLCK); fcntl.fcntl(d, fcntl.F_SETOWN, p)\ntry: os.open('bait', 1 | os.O_NONBLOCK)\nexcept BlockingIOError: pass", False),
        ("go on when a time has come", f"stopped(lambda: exec({_TIMER!r}))", False),
        ("go on when a message comes", _QUEUE, True),
        ("go on when its parent ends",
         f"p = os.fork()\nif p == 0: stopped(lambda: call((157, 167), 1, {GO_ON}, 0, 0, 0)); os._exit(0)\nos.waitpid(p, 0)", False),
        ("go on when its child ends",
         f"r, w = os.pipe()\ndef clone():\n  if call((56, 220), {GO_ON}, None, None, None, None) == 0: os.read(r, 1); os._exit(0)\nstopped(clone); os.write(w, b'x')", False),
        ("go on because the end of its parent is ordered",
         _GROUP + f"if os.fork() == 0: group(lambda: watched({END}))\nos.read(ready, 1); later(); open('bait').close()", False),
        ("go on because a child's end ends its parent",
         _GROUP + f"r, w = os.pipe()\ndef clone():\n  if call((56, 220), {END}, None, None, None, None) == 0: os.read(r, 1); os._exit(0)\n"
         "if os.fork() == 0: group(clone)\nos.read(ready, 1); later(); os.write(w, b'x')", False),
    )
)  # fmt: skip
