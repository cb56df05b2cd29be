"""Attacks on the kernel's doors: namespaces, mounts, devices, settings, rights."""

# An attack is read as one line.
# ruff: noqa: E501

from tests.process.sandbox.corpus.attack import Attack, attacks

NEW_USER, NEW_MOUNT, NEW_NET, NEW_PID = 0x10000000, 0x20000, 0x40000000, 0x20000000

NAMESPACES = attacks(
    "namespaces",
    ("make a user namespace", f"call((272, 97), {NEW_USER}); won()"),
    ("make a user and a mount namespace", f"call((272, 97), {NEW_USER | NEW_MOUNT}); won()"),
    ("make a user namespace by clone", f"p = call((56, 220), {NEW_USER} | 17, None, None, None, None); p or os._exit(0); won()"),
    ("make a user namespace by clone3",
     f"a = (ctypes.c_uint64 * 11)({NEW_USER}, 0, 0, 0, 17); p = call(435, a, 88); p or os._exit(0); won()"),
    ("make a network namespace", f"call((272, 97), {NEW_USER | NEW_NET}); won()"),
    ("make a mount namespace", f"call((272, 97), {NEW_MOUNT}); won()"),
    ("make a process namespace", f"call((272, 97), {NEW_PID}); won()"),
    ("enter the mounts of another process", "d = os.open(f'/proc/{pid_of(\"victim-root\")}/ns/mnt', 0); call((308, 268), d, 0); won()"),
    ("enter the network of another process", "d = os.open(f'/proc/{pid_of(\"victim-root\")}/ns/net', 0); call((308, 268), d, 0); won()"),
    ("mount a memory disk", "mount('none', W['jobtmp'], 'tmpfs', 0); won(); LIBC.umount2(W['jobtmp'].encode(), 2)"),
    ("mount a folder elsewhere", "mount(W['top'], W['jobtmp'], None, 4096); won(); LIBC.umount2(W['jobtmp'].encode(), 2)"),
    ("make the disk writable again", "mount('none', '/', None, 32 | 4096 | (6 if os.statvfs('/').f_flag & 6 else 0)); won()"),
    ("take a cover away", "LIBC.umount2(W['home'].encode(), 2); read(W['home'] + '/.netrc')"),
    ("open a tree of mounts", "call(428, -100, W['top'].encode(), 1); won()"),
    ("make a new file system", "call(430, b'tmpfs', 0); won()"),
    ("change the root", "os.chroot(W['jobtmp']); won()"),
    ("change the name of the machine", "n = os.uname().nodename.encode(); allowed((170, 161), n, len(n)); won()"),
)  # fmt: skip

RIGHTS = (
    *attacks(
        "rights",
        ("become root", "os.setuid(0); won() if os.getuid() == 0 else None"),
        ("have any capability", "won() if int(next(l for l in open('/proc/self/status') if l.startswith('CapPrm')).split()[1], 16) else None"),
        ("be able to have capabilities", "won() if int(next(l for l in open('/proc/self/status') if l.startswith('CapBnd')).split()[1], 16) else None"),
        ("gain rights by a set-user-id program", "won() if subprocess.run([W['suid'], '-u'], capture_output=True, text=True).stdout == '0\\n' and W['user'] else None"),
        ("be able to gain rights", "won() if 'NoNewPrivs:\\t0' in open('/proc/self/status').read() else None"),
        ("be called root", "won() if os.getuid() == 0 else None"),
        ("change the owner of a file", "open('owned', 'w').close(); os.chown('owned', 4242, 4242); won()"),
        ("read the messages of the kernel", "won() if call((103, 116), 10, None, 0) > 0 and open('/dev/kmsg') else None"),
        ("set the clock", "allowed((227, 112), 99999, None); won()"),
        ("restart the machine", "allowed((169, 142), 1, 2, 3, None); won()"),
        ("switch swap on", "allowed((167, 224), b'/nonexistent', 0); won()"),
        ("watch every file of the disk", "call((300, 262), 0, 0); won()"),
    ),
    *attacks("rights", ("load a module", "allowed((175, 105), None, 0, None); won()"), sometimes=True),
    *(
        Attack(topic="rights", name=name, code=code, filtered=True, sometimes=sometimes)
        for name, code, sometimes in (
            ("add a key to the keyring", "call((248, 217), b'user', b'orchard-x', b'v', 1, -2); won()", False),
            ("make a ring of requests", "call(425, 4, bytes(120)); won()", True),
            ("make a handler of faults", "call((323, 282), 1); won()", True),
            ("count events of the processor", "a = bytearray(128); a[0:8] = (1).to_bytes(4, 'little') + (128).to_bytes(4, 'little'); a[40:48] = (0x60).to_bytes(8, 'little'); call((298, 241), (ctypes.c_char * 128).from_buffer(a), 0, -1, -1, 0); won()", True),
            ("make a map of the packet filter", "a = (ctypes.c_uint32 * 32)(2, 4, 4, 1); call((321, 280), 0, a, 128); won()", True),
        )
    ),
)  # fmt: skip

SETTINGS = ("kernel/core_pattern", "kernel/hostname", "kernel/panic", "vm/drop_caches", "vm/overcommit_memory",
            "net/ipv4/ip_forward", "fs/suid_dumpable", "kernel/randomize_va_space")  # fmt: skip

KERNEL_FILES = (
    *attacks(
        "kernel files",
        *((f"open /proc/sys/{name} to write", f"os.close(os.open('/proc/sys/{name}', os.O_WRONLY)); won()") for name in SETTINGS),
        ("open the settings of interrupts to write",
         "n = [f'{r}/{f}' for r, _, fs in os.walk('/proc/irq') for f in fs if f.startswith('default_smp')]; os.close(os.open(n[0], os.O_WRONLY)); won()"),
        ("read the list of timers", "won() if open('/proc/timer_list').read(1) else None"),
        ("read the flags of all memory", "won() if open('/proc/kpageflags', 'rb').read(8) else None"),
        ("open a setting of a module to write",
         "n = [f'{r}/{f}' for r, _, fs in os.walk('/sys/module') for f in fs if r.endswith('/parameters') and os.stat(f'{r}/{f}').st_mode & 0o200]; os.close(os.open(n[0], os.O_WRONLY)); won()"),
        ("make a group of processes",
         "import glob; g = [d for d in glob.glob('/sys/fs/cgroup/') + glob.glob('/sys/fs/cgroup/*/') if os.path.exists(d + 'cgroup.procs')][-1] + f'orchard-{time.time()}'; os.mkdir(g); os.rmdir(g); won()"),
    ),
    *attacks(
        "kernel files",
        ("open the program for device events to write", "os.close(os.open('/sys/kernel/uevent_helper', os.O_WRONLY)); won()"),
        ("open /proc/sysrq-trigger to write", "os.close(os.open('/proc/sysrq-trigger', os.O_WRONLY)); won()"),
        ("open the program for modules to write", "os.close(os.open('/proc/sys/kernel/modprobe', os.O_WRONLY)); won()"),
        ("list what the kernel tells debuggers", "won() if os.listdir('/sys/kernel/debug') else None"),
        ("open the number of user namespaces to write",
         "os.close(os.open('/proc/sys/user/max_user_namespaces', os.O_WRONLY)); won()"),
        ("put the machine to sleep", "os.close(os.open('/sys/power/state', os.O_WRONLY)); won()"),
        ("read the memory of the kernel", "won() if os.open('/proc/kcore', os.O_RDONLY) else None"),
        ("read the keys of all", "won() if open('/proc/keys').read() else None"),
        ("read tables of the firmware", "won() if open('/sys/firmware/acpi/tables/DSDT', 'rb').read(8) else None"),
        ("run a program at a group's end", "import glob; os.close(os.open(glob.glob('/sys/fs/cgroup/*/release_agent')[0], os.O_WRONLY)); won()"),
        sometimes=True,
    ),
)  # fmt: skip

DEVICES = (
    *attacks(
        "devices",
        ("make a node of the disk", "os.mknod('disk', 0o60600, os.stat(W['top']).st_dev); won()"),
        ("make a node of a device", "os.mknod('null', 0o20666, os.makedev(1, 3)); won()"),
        ("use a node that lies in the worktree", "os.write(os.open('node', os.O_WRONLY), b'x'); won()"),
        ("write into another terminal", "os.close(os.open(W['terminal'], os.O_WRONLY | os.O_NOCTTY)); won()"),
        ("fill the devices", "open('/dev/orchard-fill', 'w').close(); os.unlink('/dev/orchard-fill'); won()"),
    ),
    *attacks(
        "devices",
        ("read the disk", "d = [l.split()[3] for l in open('/proc/partitions').readlines()[2:]][0]; won() if os.read(os.open(f'/dev/{d}', os.O_RDONLY), 512) else None"),
        *(
            (f"open /dev/{name}", f"os.close(os.open('/dev/{name}', os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)); won()")
            for name in ("mem", "kmsg", "fuse", "net/tun", "loop-control", "kvm", "tty0", "ttyS0", "port", "vsock", "hwrng",
                         "userfaultfd", "uinput", "rtc0", "cpu_dma_latency")
        ),
        sometimes=True,
    ),
)  # fmt: skip

KERNEL = (*NAMESPACES, *RIGHTS, *KERNEL_FILES, *DEVICES)
