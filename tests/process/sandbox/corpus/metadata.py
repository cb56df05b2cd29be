"""Attacks on git: the job's own folder must not lead the host's git astray, and the repository is the user's."""

# An attack is read as one line.
# ruff: noqa: E501

from tests.process.sandbox.corpus.attack import Attack, attacks

FILES = attacks(
    "git",
    ("change the .git file through a hard link", "os.link('.git', 'hard.git'); write('hard.git')"),
    ("change the .git file through its descriptor", "d = os.open('.git', os.O_RDONLY); write(f'/proc/self/fd/{d}')"),
    ("overwrite the .git file of the worktree", "write('.git')"),
    ("replace the .git file by renaming", "write('x.git', '.git'); os.rename('x.git', '.git')"),
    ("delete the .git file", "t = open('.git').read(); os.unlink('.git'); open('.git', 'w').write(t); won()"),
    ("move the worktree away", "os.rename(W['wt'], W['wt'] + '.x'); won(); os.rename(W['wt'] + '.x', W['wt'])"),
    ("change commondir", "write(W['admin'] + '/commondir')"),
    ("replace commondir by renaming", "c = W['admin'] + '/commondir'; write(W['admin'] + '/x', c); os.rename(W['admin'] + '/x', c)"),
    ("change gitdir", "write(W['admin'] + '/gitdir')"),
    ("make config.worktree", "write(W['admin'] + '/config.worktree')"),
    ("change the configuration", "write(W['git'] + '/config')"),
    ("replace the configuration", "c = W['git'] + '/config'; write(c + '.lock', c); os.rename(c + '.lock', c)"),
    ("add a hook", "write(W['git'] + '/hooks/post-checkout')"),
    ("move the folder of hooks away", "h = W['git'] + '/hooks'; os.rename(h, h + '.x'); won(); os.rename(h + '.x', h)"),
    ("move a branch by its file", "write(W['git'] + '/refs/heads/victim-1')"),
    ("make a branch by its file", "write(W['git'] + '/refs/heads/evil')"),
    ("change packed-refs", "write(W['git'] + '/packed-refs')"),
    ("change HEAD of the checkout", "write(W['git'] + '/HEAD')"),
    ("change the index of the checkout", "write(W['git'] + '/index')"),
    ("change the log of a branch", "write(W['git'] + '/logs/refs/heads/main')"),
    ("set alternates", "write(W['git'] + '/objects/info/alternates')"),
    ("set attributes", "write(W['git'] + '/info/attributes')"),
    ("set excludes", "write(W['git'] + '/info/exclude')"),
    ("cut the history", "write(W['git'] + '/shallow')"),
    ("graft another parent", "write(W['git'] + '/info/grafts')"),
    ("change HEAD of another worktree", "write(W['git'] + '/worktrees/two/HEAD')"),
    ("point another worktree elsewhere", "write(W['git'] + '/worktrees/two/commondir')"),
    ("lock another worktree", "write(W['git'] + '/worktrees/two/locked')"),
    ("register a worktree", "os.mkdir(W['git'] + '/worktrees/evil'); write(W['git'] + '/worktrees/evil/gitdir')"),
    ("add a module", "os.makedirs(W['git'] + '/modules/evil'); write(W['git'] + '/modules/evil/config')"),
    ("change a loose object", "os.chmod(W['loose'], 0o644); write(W['loose'])"),
    ("add an object with a wrong name", "os.makedirs(W['git'] + '/objects/00', exist_ok=True); write(W['git'] + '/objects/00/' + '0' * 38)"),
    ("plant settings of claude", "os.makedirs('.claude', exist_ok=True); write('.claude/settings.json'); won()"),
    ("plant settings of claude in a folder of its own", "os.rename('.claude', '.old'); os.mkdir('.claude'); write('.claude/settings.local.json'); won()"),
    ("plant settings of claude through a link", "sh('rm -rf .claude'); os.mkdir('e'); os.symlink('e', '.claude'); write('.claude/x'); won()"),
    ("plant servers for agents", "os.path.isdir('.mcp.json') and os.rmdir('.mcp.json'); write('.mcp.json'); won()"),
    ("plant a workflow", "write('.github/workflows/evil.yml'); won()"),
    ("plant a workflow after moving its folder", "os.rename('.github/workflows', '.github/w'); os.mkdir('.github/workflows'); write('.github/workflows/y.yml'); won()"),
    ("plant a workflow after moving the folder above", "os.rename('.github', '.g'); os.makedirs('.github/workflows'); write('.github/workflows/z.yml'); won()"),
)  # fmt: skip

COMMANDS = tuple(
    Attack(topic="git", name=name, code=f"sh({command!r})", lost=lost)
    for name, command, lost in (
        ("delete a branch with git", "git update-ref -d refs/heads/victim-2", "repo/.git/refs/heads/victim-2"),
        ("move a branch with git", "git branch -f victim-3 HEAD~1", "repo/.git/refs/heads/victim-3"),
        ("delete a tag with git", "git tag -d victim-4", "repo/.git/refs/tags/victim-4"),
        ("push to a branch of the repository", "git push -q -f \"$(git rev-parse --git-common-dir)\" HEAD~1:refs/heads/victim-5", "repo/.git/refs/heads/victim-5"),
        ("remove another worktree with git", "git worktree remove -f -f ../four", "trees/four/README"),
        ("set a filter with git", "git config filter.x.clean evil && git config core.fsmonitor evil && echo WON", ""),
        ("clean up objects with git", "git -c gc.reflogExpire=now reflog expire --expire-unreachable=now --all; env -u GIT_OBJECT_DIRECTORY -u GIT_ALTERNATE_OBJECT_DIRECTORIES git prune --expire=now", "@garbage"),
        ("stash with git", "echo x >> README; git stash -q && test -e \"$(git rev-parse --git-common-dir)/refs/stash\" && echo WON", ""),
    )
)  # fmt: skip

LOSSES = tuple(
    Attack(topic="git", name=name, code=code, lost=lost)
    for name, code, lost in (
        ("delete a pack", "os.unlink(W['pack'])", "@pack"),
        ("delete a loose object", "os.unlink(W['loose2'])", "@loose2"),
        ("delete the registration of another worktree", "os.unlink(W['git'] + '/worktrees/three/HEAD')", "repo/.git/worktrees/three/HEAD"),
        ("delete the state of the engine", "os.rename(W['state'] + '/mine', W['state'] + '/x')", "repo/.git/orchard/mine"),
    )
)  # fmt: skip

# Without a wall the files are spoilt for all that comes later, so they are last.
METADATA = (*COMMANDS, *LOSSES, *FILES)
