"""Attacks on files: secrets to be read, places to be written to."""

# An attack is read as one line.
# ruff: noqa: E501

from tests.process.sandbox.corpus.attack import Attack, attacks

HOME_SECRETS = (
    ".ssh/id_ed25519", ".aws/credentials", ".netrc", ".git-credentials", ".config/gh/hosts.yml", ".docker/config.json",
    ".gnupg/private-keys-v1.d/key", ".kube/config", ".claude/.credentials.json", ".codex/auth.json", ".bash_history",
    ".npmrc", ".pypirc", ".cargo/credentials.toml", ".config/orchard/config.toml", ".mozilla/firefox/cookies.sqlite",
)  # fmt: skip

SECRETS = attacks(
    "secrets",
    *((f"read ~/{name}", f"read(W['home'] + '/{name}')") for name in HOME_SECRETS),
    ("list the home", "won() if '.ssh' in os.listdir(W['home']) else None"),
    ("read the engine's nonce", "read(W['state'] + '/daemon.json')"),
    ("read another job's log", "read(W['state'] + '/logs/two.log')"),
    ("read another job's pass", "read(W['tmp'] + '/orchard-agent-two/orchard-pass.json')"),
    ("read the token of the HTTP door", "read(W['run'] + '/orchard/http/token')"),
    ("read another worktree", "read(W['other'] + '/secret.txt')"),
    ("read what is not committed in the user's checkout", "read(W['repo'] + '/.env')"),
    ("read through a link in the worktree", "os.symlink(W['home'] + '/.netrc', 'link-1'); read('link-1')"),
    ("read through a link to a folder", "os.symlink(W['home'], 'link-2'); read('link-2/.ssh/id_ed25519')"),
    ("read through a hard link", "os.link(W['home'] + '/.netrc', 'link-3'); read('link-3')"),
    ("read through ..", "read('../two/secret.txt')"),
    ("read through /proc/self/root", "read('/proc/self/root' + W['home'] + '/.netrc')"),
    ("read through the root of another process", "read(f'/proc/{pid_of(\"victim-root\")}/root{W[\"home\"]}/.netrc')"),
    ("read through the folder of another process", "read(f'/proc/{pid_of(\"victim-cwd\")}/cwd/.netrc')"),
    ("read through the folder of the starter", "read(f'/proc/{os.getppid()}/cwd/../../home/.netrc')"),
    ("search the disk", "sh(f'find {W[\"top\"]} -name id_ed25519 -exec cat {{}} +')"),
    ("pack the home", "sh(f'tar -C {W[\"home\"]} -cf - .ssh')"),
    ("read by a handle of the file",
     "h = bytes.fromhex(W['handle']); b = ctypes.create_string_buffer(h, len(h));"
     "d = os.open(W['top'], os.O_RDONLY); leak(os.read(call((304, 265), d, b, os.O_RDONLY), 4096))"),
    ("read shared memory of the host by its name", "read(W['shm'])"),
)  # fmt: skip

SYSTEM_SECRETS = (
    *attacks(
        "secrets",
        ("read /etc/shadow", "won() if open('/etc/shadow').read() else None"),
        ("read /etc/gshadow", "won() if open('/etc/gshadow').read() else None"),
        ("list root's home", "won() if os.listdir('/root') else None"),
    ),
    *attacks(
        "secrets",
        ("read through /proc/1/root", "read('/proc/1/root' + W['home'] + '/.netrc')"),
        ("read answers given to packages", "won() if open('/var/cache/debconf/passwords.dat').read() else None"),
        ("list private keys of the system", "os.listdir('/etc/ssl/private'); won() if os.stat('/etc/ssl/private').st_mode & 7 == 0 else None"),
        ("read the keys of the SSH server", "won() if open('/etc/ssh/ssh_host_ed25519_key').read() else None"),
        sometimes=True,
    ),
)  # fmt: skip

WRITES = attacks(
    "writes",
    ("write ~/.bashrc", "write(W['home'] + '/.bashrc')"),
    ("write ~/.ssh/authorized_keys", "write(W['home'] + '/.ssh/authorized_keys')"),
    ("write ~/.config/autostart", "os.makedirs(W['home'] + '/.config/autostart'); write(W['home'] + '/.config/autostart/x')"),
    ("put a program into ~/.local/bin", "write(W['home'] + '/.local/bin/ls')"),
    ("replace a program of an exposed toolchain", "write(W['tool'] + '/tool')"),
    ("add a program to an exposed toolchain", "write(W['tool'] + '/git')"),
    ("move an exposed toolchain away", "os.rename(W['tool'], W['tool'] + '.x'); won(); os.rename(W['tool'] + '.x', W['tool'])"),
    ("write ~/.gitconfig", "write(W['home'] + '/.gitconfig')"),
    ("write the user's configuration of orchard", "write(W['home'] + '/.config/orchard/config.toml')"),
    ("write into the user's checkout", "write(W['repo'] + '/README')"),
    ("add a file to the user's checkout", "write(W['repo'] + '/conftest.py')"),
    ("write into another worktree", "write(W['other'] + '/README')"),
    ("write into the journal", "write(W['state'] + '/journal')"),
    ("write another job's log", "write(W['state'] + '/logs/two.log')"),
    ("put a file into the host's /tmp", "write(W['tmp'] + '/planted')"),
    ("put a file into the runtime folder", "write(W['run'] + '/planted')"),
    ("write through a link in the worktree", "os.symlink(W['home'] + '/.profile', 'link-4'); write('link-4')"),
    ("write through a hard link", "os.link(W['tool'] + '/linked', 'link-5'); write('link-5')"),
    ("write through /proc/self/root", "write('/proc/self/root' + W['repo'] + '/README.2')"),
    ("write through /proc/self/cwd", "write('/proc/self/cwd/../two/README.3')"),
    ("write through the root of another process", "write(f'/proc/{pid_of(\"victim-root\")}/root{W[\"tmp\"]}/planted.2')"),
    ("replace the folder above the worktree", "t = os.path.dirname(W['wt']); os.rename(t, t + '.x'); won(); os.rename(t + '.x', t)"),
    ("write beside the worktree", "write(os.path.dirname(W['wt']) + '/beside')"),
    ("write where no place says anything", "write(W['top'] + '/plain.txt')"),
)  # fmt: skip

LOSSES = tuple(
    Attack(topic="writes", name=name, code=code, lost=lost)
    for name, code, lost in (
        ("delete a file of the home", "os.unlink(W['home'] + '/Documents/one')", "home/Documents/one"),
        ("empty a file of the home", "os.truncate(W['home'] + '/Documents/two', 0)", "home/Documents/two"),
        ("delete the user's file", "os.unlink(W['repo'] + '/mine-1')", "repo/mine-1"),
        ("move the user's file into the worktree", "os.rename(W['repo'] + '/mine-2', 'mine-2')", "repo/mine-2"),
        ("delete a file where no place says anything", "os.unlink(W['top'] + '/mine-3')", "mine-3"),
        ("empty a file that may only be read", "os.truncate(W['top'] + '/mine-4', 0)", "mine-4"),
        ("change the mode of a program", "os.chmod(W['tool'] + '/mine-5', 0)", "home/.cargo/bin/mine-5"),
        ("change the time of a file", "os.utime(W['top'] + '/mine-6', (1, 1))", "mine-6"),
        ("exchange two files", "call((316, 276), -100, (W['top'] + '/mine-7').encode(), -100, b'README', 2)", "mine-7"),
        ("delete everything of another job", "sh(f'rm -rf {W[\"other\"]}/mine-8')", "trees/two/mine-8"),
    )
)

SYSTEM_WRITES = (
    *attacks(
        "writes",
        *(
            (f"make a file in {folder}", f"os.close(os.open('{folder}', os.O_TMPFILE | os.O_RDWR, 0o600)); won()")
            for folder in ("/", "/etc", "/usr/bin", "/usr/lib", "/var/lib", "/opt", "/root", "/etc/profile.d", "/srv")
        ),
        ("find a file in the system's /tmp", "won() if os.listdir('/tmp') else None"),
        ("open /etc/passwd to write", "open('/etc/passwd', 'r+').close(); won()"),
        ("open the C library to write", "open(next(l.split()[-1] for l in open('/proc/self/maps') if 'libc.so' in l), 'r+').close(); won()"),
        ("make a file among the devices", "n = f'/dev/orchard-{os.getpid()}-{time.time()}'; os.mkdir(n); os.rmdir(n); won()"),
        *(
            (f"mistake the hidden {name} for the user's", f"open(W['{name}'] + '/fill', 'w').close(); os.unlink(W['{name}'] + '/fill'); won()")
            for name in ("home", "repo", "state", "tmp", "run")
        ),
        ("mistake a place beside the worktree", "n = os.path.dirname(W['wt']) + '/fill'; open(n, 'w').close(); os.unlink(n); won()"),
        ("fill the memory through a hidden folder",
         "h = W['home']; os.path.ismount(h) and os.chmod(h, 0o755); f = open(h + '/fill', 'wb', 0); [f.write(bytes(4096)) for _ in range(64)]; os.unlink(h + '/fill'); won()"),
        ("leave a set-user-id program", "open('suid', 'w').close(); os.chmod('suid', 0o4755); won()"),
    ),
    *attacks(
        "writes",
        ("make a table of cron", "os.close(os.open('/var/spool/cron/crontabs', os.O_TMPFILE | os.O_RDWR)); won()"),
        sometimes=True,
    ),
)  # fmt: skip

# What stands in the documentation as open: it is shown by a run like everything else.
OPEN = attacks(
    "not stopped",
    ("read what every user may read", "won() if open('/etc/passwd').read() else None"),
    ("read a file where no place says anything", "read(W['top'] + '/visible')"),
    ("spoil its own worktree", "open('README', 'w').close(); won()"),
)

FILES = (*SECRETS, *SYSTEM_SECRETS, *WRITES, *LOSSES, *SYSTEM_WRITES, *OPEN)
