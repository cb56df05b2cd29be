"""A hostile program, run behind a wall: each function is an attack, and says whether it came through.

It is started as a script by a bare Python, with a file that says where its victims are: the `World` of worlds.py. Each
attack runs in a process of its own. It came through if it returns something true; an OSError means that it was refused.
An attack that could harm the machine is made with arguments that the kernel refuses for another reason, and later: who
hears "no such file" was let in. Some come through where there is no wall and do no harm.
"""

# Plain calls on purpose: one attack is one call.
# ruff: noqa: PTH101, PTH104, PTH108, PTH110, PTH115, PTH116, PTH119, PTH120, PTH123, PTH208, PTH211
# ruff: noqa: SIM105, SIM115
import ctypes
import errno
import fcntl
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

W: dict[str, Any] = json.loads(open(sys.argv[1]).read()) if __name__ == "__main__" else {}
libc: Any = ctypes.CDLL(None, use_errno=True)
ATTACKS: dict[str, Callable[[], object]] = {}
FAST_OPEN = 0x20000000


def attack(function: Callable[[], object]) -> Callable[[], object]:
    ATTACKS[function.__name__] = function
    return function


def attacks(**functions: Callable[[], object]) -> None:
    ATTACKS.update(functions)


def call(name: str | int, *arguments: object) -> int:
    """A system call; a refusal is an OSError."""
    number = W["numbers"][name] if isinstance(name, str) else name
    if number is None:
        raise OSError(errno.ENOSYS, "not on this machine")
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    answer = libc.syscall(ctypes.c_long(number), *words)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(answer)


def let_in(name: str | int, *arguments: object) -> bool:
    """Whether the kernel got as far as to look at the arguments."""
    try:
        call(name, *arguments)
    except OSError as error:
        return error.errno not in (errno.EPERM, errno.EACCES, errno.ENOSYS)
    return True


def fork(name: str, *arguments: object) -> bool:
    if call(name, *arguments) == 0:
        os._exit(0)
    return True


def read(path: str) -> bool:
    with open(path, "rb") as file:
        return W["canary"].encode() in file.read(1 << 16)


def write(path: str, flags: int = os.O_WRONLY) -> bool:
    os.close(os.open(path, flags, 0o600))
    return True


def done(action: Callable[..., object], *arguments: object) -> bool:
    """For calls that say nothing when they succeed."""
    action(*arguments)
    return True


def H(name: str) -> str:  # noqa: N802
    return f"{W['home']}/{name}"


def mine(name: str) -> str:
    return f"{W['work']}/{name}-{os.getpid()}"


# ---------------------------------------------------------------------------------- hidden files

attacks(
    read_ssh_key=lambda: read(H(".ssh/id_ed25519")),
    read_netrc=lambda: read(H(".netrc")),
    read_cloud_key=lambda: read(H(".aws/credentials")),
    read_state=lambda: read(f"{W['state']}/token"),
    read_by_own_root=lambda: read(f"/proc/self/root{H('.netrc')}"),
    read_by_own_folder=lambda: read(f"/proc/self/cwd/../{os.path.basename(W['home'])}/.netrc"),
    list_home=lambda: os.listdir(W["home"]),
    list_keys=lambda: os.listdir(H(".ssh")),
    list_other_jobs=lambda: os.listdir(os.path.dirname(W["home"])),
    append_to_profile=lambda: write(H(".bashrc"), os.O_WRONLY | os.O_APPEND),
    empty_by_opening=lambda: write(H("empty-me"), os.O_RDONLY | os.O_TRUNC),
    make_file=lambda: write(H("new"), os.O_WRONLY | os.O_CREAT),
    make_nameless_file=lambda: write(W["home"], os.O_WRONLY | os.O_TMPFILE),
    write_state=lambda: write(f"{W['state']}/token"),
    empty_by_name=lambda: done(os.truncate, H("empty-me"), 0),
    delete_file=lambda: done(os.unlink, H("delete-me")),
    delete_folder=lambda: done(os.rmdir, H("remove-me")),
    rename_file=lambda: done(os.rename, H("rename-me"), H("renamed")),
    make_folder=lambda: done(os.mkdir, H("folder")),
    make_link=lambda: done(os.symlink, "/etc", H("link")),
    make_pipe=lambda: done(os.mkfifo, H("pipe")),
    make_node=lambda: done(os.mknod, H("node"), 0o100600),
    make_socket=lambda: done(os.mknod, H("socket"), 0o140600),
    write_read_only_place=lambda: write(f"{W['public']}/readme"),
    delete_in_read_only_place=lambda: done(os.unlink, f"{W['public']}/delete-me"),
    run_hidden_program=lambda: subprocess.run([H("tool")], check=True, capture_output=True).stdout,
)


@attack
def run_from_shared_memory() -> object:
    path = f"/dev/shm/orchard-siege-{os.getpid()}"
    try:
        with (
            open("/bin/echo", "rb") as program,
            open(path, "wb", opener=lambda at, flags: os.open(at, flags, 0o700)) as copy,
        ):
            copy.write(program.read())
        return subprocess.run([path], check=True, capture_output=True).stdout
    finally:
        os.unlink(path)


@attack
def read_by_link() -> object:
    os.symlink(H(".netrc"), mine("link"))
    return read(mine("link"))


@attack
def read_by_hard_link() -> object:
    os.link(H(".netrc"), mine("hard"))
    return read(mine("hard"))


@attack
def take_by_renaming() -> object:
    os.rename(H("take-me"), mine("taken"))
    return read(mine("taken"))


@attack
def read_by_folder_handle() -> object:
    folder = os.open(W["home"], os.O_PATH)
    return os.read(os.open(".netrc", os.O_RDONLY, dir_fd=folder), 99)


@attack
def read_by_changing_folder() -> object:
    os.chdir(W["home"])
    return read(".netrc")


@attack
def read_in_a_daemon() -> object:
    """Twice forked, in another session, by another program."""
    code = "import os,sys\nif os.fork(): os.wait(); sys.exit()\nos.setsid()\nif os.fork(): os.wait(); sys.exit()\n"
    code += f"print(open({H('.netrc')!r}).read())"
    told = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    return W["canary"] in told.stdout


@attack
def read_in_a_thread() -> object:
    found: list[bool] = []

    def look() -> None:
        try:
            found.append(read(H(".netrc")))
        except OSError:
            pass

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return any(found)


@attack
def read_after_rules_of_ones_own() -> object:
    """A wall inside of the wall that allows everything."""
    rules = call(444, struct.pack("=Q", 0xFFF), 8, 0)
    call(445, rules, 1, struct.pack("=Qi", 0xFFF, os.open("/", os.O_PATH)), 0)
    call(446, rules, 0)
    return read(H(".netrc"))


# -------------------------------------------------------------------------------- the machine's

attacks(
    read_shadow=lambda: os.path.exists("/etc/shadow") and open("/etc/shadow").read(),
    read_file_of_another_user=lambda: read(f"{W['public']}/of-another"),
    write_etc=lambda: write("/etc/passwd"),
    set_core_pattern=lambda: write("/proc/sys/kernel/core_pattern"),
    press_sysrq=lambda: write("/proc/sysrq-trigger"),
    write_kernel_setting=lambda: write("/proc/sys/kernel/printk"),
    read_disk=lambda: any(os.open(path, os.O_RDONLY) for path in W["disks"]),
    read_memory=lambda: os.open("/dev/mem", os.O_RDONLY),
    read_kernel_log=lambda: os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK),
    open_fuse=lambda: os.open("/dev/fuse", os.O_RDWR),
    open_terminal_of_another=lambda: os.open(W["terminal"], os.O_RDWR | os.O_NOCTTY),
    list_devices=lambda: os.listdir("/dev"),
    command_device=lambda: fcntl.ioctl(os.open("/dev/urandom", os.O_RDONLY), 0x80045200, b"1234"),
    make_character_device=lambda: done(os.mknod, mine("c"), 0o20600, os.makedev(1, 1)),
    make_block_device=lambda: done(os.mknod, mine("b"), 0o60600, os.makedev(254, 0)),
    make_null_device=lambda: done(os.mknod, mine("n"), 0o20600, os.makedev(0, 0)),
)


# ------------------------------------------------------------------------------ other processes

attacks(
    read_environment=lambda: read(f"/proc/{W['victim']}/environ"),
    read_open_files=lambda: os.readlink(f"/proc/{W['victim']}/fd/1"),
    follow_folder=lambda: os.readlink(f"/proc/{W['victim']}/cwd"),
    read_mappings=lambda: open(f"/proc/{W['victim']}/maps").read(),
    write_memory=lambda: write(f"/proc/{W['victim']}/mem", os.O_RDWR),
    read_by_its_root=lambda: read(f"/proc/{W['victim']}/root{H('.netrc')}"),
    spare_it_last=lambda: write(f"/proc/{W['victim']}/oom_score_adj"),
    signal_it=lambda: done(os.kill, W["victim"], signal.SIGUSR1),
    ask_for_it=lambda: done(os.kill, W["victim"], 0),
    signal_its_group=lambda: done(os.killpg, W["victim"], signal.SIGUSR1),
    signal_by_handle=lambda: done(signal.pidfd_send_signal, os.pidfd_open(W["victim"]), signal.SIGUSR1),
    trace_it=lambda: call("ptrace", 0x4206, W["victim"], 0, 0) == 0,
    be_traced=lambda: call("ptrace", 0, 0, 0, 0) == 0,
    read_its_memory=lambda: let_in("process_vm_readv", W["victim"], 0, 0, 0, 0, 0),
    read_own_memory=lambda: let_in("process_vm_readv", os.getpid(), 0, 0, 0, 0, 0),
    write_its_memory=lambda: let_in("process_vm_writev", W["victim"], 0, 0, 0, 0, 0),
    take_its_file=lambda: call("pidfd_getfd", os.pidfd_open(W["victim"]), 0, 0) >= 0,
    take_own_file=lambda: call("pidfd_getfd", os.pidfd_open(os.getpid()), 0, 0) >= 0,
    compare_processes=lambda: let_in("kcmp", os.getpid(), os.getpid(), 0, 0, 0),
    advise_memory=lambda: let_in("process_madvise", os.pidfd_open(os.getpid()), 0, 0, 20, 0),
)


@attack
def signal_by_a_pipe() -> object:
    """The kernel sends it when the pipe has something to read."""
    out, into = os.pipe()
    fcntl.fcntl(out, fcntl.F_SETOWN, W["victim"])
    fcntl.fcntl(out, getattr(fcntl, "F_SETSIG", 10), signal.SIGUSR1)
    fcntl.fcntl(out, fcntl.F_SETFL, os.O_ASYNC)
    os.write(into, b"x")
    return False  # the victim says whether it came


@attack
def limit_it() -> object:
    """Of a limit nothing changes: it is set to what it is. One second of CPU would be its end."""
    now = ctypes.create_string_buffer(16)
    call("prlimit64", W["victim"], 4, 0, ctypes.addressof(now))
    return call("prlimit64", W["victim"], 4, ctypes.addressof(now), 0) == 0


# ------------------------------------------------------------------------------------ the network

LOOPBACK = "127.0.0.1"
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM


def connect(family: int, kind: int, protocol: int, address: Any) -> bool:
    with socket.socket(family, kind, protocol) as one:
        one.settimeout(3)
        one.connect(address)
        if kind == DATAGRAM:
            one.send(b"attack")
        return True


def send(family: int, address: Any, flags: int = 0, kind: int = DATAGRAM) -> bool:
    with socket.socket(family, kind) as one:
        return one.sendto(b"attack", flags, address) > 0


def bind(*address: Any) -> bool:
    with socket.socket(socket.AF_INET, STREAM) as one:
        one.bind(address)
        return True


def sock(family: int, kind: int, protocol: int = 0) -> bool:
    """Whether there can be such a socket; a kernel without the family is no wall, but no way out either."""
    socket.socket(family, kind, protocol).close()
    return True


attacks(
    connect_tcp=lambda: connect(socket.AF_INET, STREAM, 0, (LOOPBACK, W["tcp"])),
    connect_tcp_as_ipv6=lambda: connect(socket.AF_INET6, STREAM, 0, (f"::ffff:{LOOPBACK}", W["tcp"])),
    connect_mptcp=lambda: connect(socket.AF_INET, STREAM, 262, (LOOPBACK, W["tcp"])),
    connect_by_sending=lambda: send(socket.AF_INET, (LOOPBACK, W["tcp"]), FAST_OPEN, STREAM),
    send_udp=lambda: send(socket.AF_INET, (LOOPBACK, W["udp"])),
    send_udp_as_ipv6=lambda: send(socket.AF_INET6, (f"::ffff:{LOOPBACK}", W["udp"])),
    connect_udp=lambda: connect(socket.AF_INET, DATAGRAM, 0, (LOOPBACK, W["udp"])),
    bind_tcp=lambda: bind(LOOPBACK, 0),
    send_ping=lambda: sock(socket.AF_INET, DATAGRAM, socket.IPPROTO_ICMP),
    make_raw=lambda: sock(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    make_packet=lambda: sock(17, socket.SOCK_RAW, 0x300),
    make_old_packet=lambda: sock(socket.AF_INET, 10, 0x300),
    make_netlink_events=lambda: sock(16, DATAGRAM, 15),
    make_netlink_netfilter=lambda: sock(16, socket.SOCK_RAW, 12),
    make_netlink_generic=lambda: sock(16, socket.SOCK_RAW, 16),
    make_crypto=lambda: sock(38, socket.SOCK_SEQPACKET),
    make_vsock=lambda: sock(40, STREAM),
    make_sctp=lambda: sock(socket.AF_INET, STREAM, 132),
    connect_unix=lambda: connect(socket.AF_UNIX, STREAM, 0, W["stream"]),
    send_unix=lambda: send(socket.AF_UNIX, W["datagram"]),
    connect_abstract=lambda: connect(socket.AF_UNIX, STREAM, 0, "\0" + W["abstract"]),
)


@attack
def listen_without_bind() -> object:
    with socket.socket(socket.AF_INET, STREAM) as one:
        one.listen()
        return one.getsockname()[1]


@attack
def connect_by_sending_a_message() -> object:
    with socket.socket(socket.AF_INET, STREAM) as one:
        return one.sendmsg([b"attack"], [], FAST_OPEN, (LOOPBACK, W["tcp"]))


@attack
def send_unix_from_a_pair() -> object:
    one, _ = socket.socketpair(socket.AF_UNIX, DATAGRAM)
    return one.sendto(b"attack", W["datagram"])


@attack
def send_unix_from_a_raw_pair() -> object:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    return one.sendto(b"attack", W["datagram"])


# --------------------------------------------------------------------------------------- the kernel

NEW_USER, NEW_NET, NEW_NS = 0x10000000, 0x40000000, 0x20000

attacks(
    new_user=lambda: call("unshare", NEW_USER) == 0,
    new_network=lambda: call("unshare", NEW_USER | NEW_NET) == 0,
    new_mounts=lambda: call("unshare", NEW_USER | NEW_NS) == 0,
    new_user_by_clone=lambda: fork("clone", NEW_USER | signal.SIGCHLD, 0, 0, 0, 0),
    new_user_by_clone3=lambda: fork("clone3", struct.pack("=11Q", NEW_USER, *[0] * 3, 17, *[0] * 6), 88),
    enter_namespace=lambda: let_in("setns", -1, 0),
    mount=lambda: let_in("mount", b"none", W["work"].encode(), b"no-such-kind", 0, 0),
    unmount=lambda: let_in("umount2", b"/no/such/place", 0),
    open_filesystem=lambda: let_in("fsopen", b"no-such-kind", 0),
    pick_filesystem=lambda: let_in("fspick", -1, b"/no/such/place", 0),
    configure_filesystem=lambda: let_in("fsconfig", -1, 0, 0, 0, 0),
    mount_filesystem=lambda: let_in("fsmount", -1, 0, 0),
    open_tree=lambda: let_in("open_tree", -100, W["work"].encode(), 0),
    open_tree_with=lambda: let_in("open_tree_attr", -100, W["work"].encode(), 0, 0, 0),
    move_mount=lambda: let_in("move_mount", -1, b"", -1, b"", 0),
    change_mount=lambda: let_in("mount_setattr", -1, b"/no/such/place", 0, 0, 0),
    pivot_root=lambda: let_in("pivot_root", b"/no/such/place", b"/no/such/place"),
    change_root=lambda: let_in("chroot", W["work"].encode()),
    open_by_handle=lambda: let_in("open_by_handle_at", -1, 0, 0),
    watch_files=lambda: call("fanotify_init", 0x200, 0) >= 0,
    join_keyring=lambda: call("keyctl", 1, 0) >= 0,
    add_key=lambda: call("add_key", b"user", b"attack", b"x", 1, -2) >= 0,
    request_key=lambda: let_in("request_key", b"user", b"no-such-key", 0, -2),
    make_ring=lambda: call("io_uring_setup", 1, ctypes.create_string_buffer(120)) >= 0,
    enter_ring=lambda: let_in("io_uring_enter", -1, 0, 0, 0, 0),
    register_ring=lambda: let_in("io_uring_register", -1, 0, 0, 0),
    load_bpf=lambda: let_in("bpf", 0, 0, 0),
    handle_faults=lambda: call("userfaultfd", 1) >= 0,
    count_events=lambda: let_in("perf_event_open", struct.pack("=II112x", 1, 0xFFFF), 0, -1, -1, 0),
    load_module=lambda: let_in("init_module", 0, 0, b""),
    load_module_file=lambda: let_in("finit_module", -1, b"", 0),
    unload_module=lambda: let_in("delete_module", b"no-such-module", 0),
    load_kernel=lambda: let_in("kexec_load", 0, 0, 0, 0x7FFF),
    load_kernel_file=lambda: let_in("kexec_file_load", -1, -1, 0, b"", 0x7FFF),
    swap_on=lambda: let_in("swapon", b"/no/such/file", 0),
    swap_off=lambda: let_in("swapoff", b"/no/such/file"),
    reboot=lambda: let_in("reboot", 1, 2, 3, 0),
    name_host=lambda: let_in("sethostname", b"x", -1),
    name_domain=lambda: let_in("setdomainname", b"x", -1),
    set_time=lambda: let_in("settimeofday", 0, 0),
    set_clock=lambda: let_in("clock_settime", 99, b"\0" * 16),
    ask_clock=lambda: call("adjtimex", ctypes.create_string_buffer(256)) >= 0,
    ask_other_clock=lambda: call("clock_adjtime", 0, ctypes.create_string_buffer(256)) >= 0,
    read_log=lambda: call("syslog", 10, 0, 0) > 0,
    set_quota=lambda: let_in("quotactl", 0x800001 << 8, 0, 0, 0),
    set_quota_by_file=lambda: let_in("quotactl_fd", -1, 0, 0, 0),
    account=lambda: let_in("acct", b"/no/such/file"),
    hang_up=lambda: let_in("vhangup"),
    touch_ports=lambda: let_in("ioperm", 99_999_999, 1, 1),
    newer_call=lambda: let_in(471, 0),
    x32_call=lambda: call(0x40000000 | 39) > 0,
)


@attack
def call_as_32_bit() -> object:
    """getpid by `int 0x80`."""
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, "another machine")
    place = mmap.mmap(-1, 4096, prot=7)
    place.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(place)))() == os.getpid()


def type_into_terminal(command: int) -> object:
    """Standard input is a terminal, which becomes ours."""
    os.setsid()
    fcntl.ioctl(0, 0x540E, 0)
    if libc.ioctl(0, ctypes.c_ulong(command), b"x") < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return True


attacks(
    type_into_terminal=lambda: type_into_terminal(0x5412),
    type_into_terminal_by_upper_half=lambda: type_into_terminal(0x5412 | 1 << 40),
    command_console=lambda: let_in("ioctl", 0, 0x541C, 0),
)


# ---------------------------------------------------------------------------------------- privileges


@attack
def make_setuid() -> object:
    write(mine("s"), os.O_CREAT | os.O_WRONLY)
    os.chmod(mine("s"), 0o4755)
    return os.stat(mine("s")).st_mode & 0o4000


@attack
def make_setuid_by_handle() -> object:
    os.fchmod(os.open(mine("f"), os.O_CREAT | os.O_WRONLY), 0o4755)
    return True


@attack
def make_setuid_at_once() -> object:
    os.open(mine("o"), os.O_CREAT | os.O_WRONLY, 0o4755)
    return os.stat(mine("o")).st_mode & 0o4000


@attack
def make_setuid_by_openat2() -> object:
    how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    return call("openat2", -100, mine("2").encode(), how, 24) >= 0


@attack
def make_setuid_by_fchmodat2() -> object:
    write(mine("a"), os.O_CREAT | os.O_WRONLY)
    return call("fchmodat2", -100, mine("a").encode(), 0o4755, 0) == 0


@attack
def make_setuid_node() -> object:
    os.mknod(mine("k"), 0o104755)
    return os.stat(mine("k")).st_mode & 0o4000


@attack
def run_setuid() -> object:
    told = subprocess.run([f"{W['public']}/setuid-id", "-u"], capture_output=True, text=True, check=True)
    return int(told.stdout) != os.getuid()


@attack
def raise_capabilities() -> object:
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    if libc.capset(header, ctypes.create_string_buffer(struct.pack("=6I", *[1 << 21] * 2, *[0] * 4))) < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return True


@attack
def become_another() -> object:
    os.setresuid(54321, 54321, 54321)
    return os.getuid() == 54321


@attack
def find_open_descriptors() -> object:
    held = {int(name) for name in os.listdir("/proc/self/fd")}
    open_ones = []
    for one in held - {0, 1, 2, W["report"]}:
        try:
            open_ones.append(os.readlink(f"/proc/self/fd/{one}"))
        except OSError:
            continue
    return [name for name in open_ones if not name.startswith(f"/proc/{os.getpid()}/fd")]


attacks(
    take_file_of_another=lambda: done(os.chown, f"{W['public']}/of-another", os.getuid(), -1),
    signal_another_user=lambda: done(os.kill, W["stranger"], 0) if W["stranger"] else False,
)


def run(name: str) -> str:
    """What became of one attack, tried in a process of its own."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        W["report"] = into
        signal.alarm(20)
        try:
            said = "through" if ATTACKS[name]() else "nothing"
        except OSError as error:
            said = errno.errorcode.get(error.errno or 0, str(error))
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(into, said.encode()[:4000])
        os._exit(0)
    os.close(into)
    said = os.read(out, 4096).decode()
    os.close(out)
    _, status = os.waitpid(pid, 0)
    return said or f"ended by signal {os.waitstatus_to_exitcode(status)}"


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.write(1, json.dumps({name: run(name) for name in sys.argv[2:] or ATTACKS}).encode())
