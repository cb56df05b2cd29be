"""Floors: what bare scripts reach, without any of our promises. Each is as fast as its design allows.

    plain   per job: lock, add a worktree, commit, remove it; in the end merge all
    pool    a worktree per worker, reset between jobs; plumbing commits; in the end merge all
    seeds   a model of the design that the idea came from: a pump that looks every 200 ms, a mutex around the whole
            of adding and removing a worktree, and the plan rewritten as JSON at each transition
    merges  three processes per leaf
    ninja   a build tool that keeps no state worth mentioning

None of them keeps work that fails, survives being killed, or writes anything so that it outlives the power.
"""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.place import Broken, timed

PUMP = 0.2
TRANSITIONS = 4
PLAN_BYTES_PER_JOB = 1000

PLAIN_JOB = """
set -e
number=$1 folder=$FLOOR_FOLDERS/$1
flock .git/floor.lock git worktree add -q --detach "$folder" main
cd "$folder"
echo "$number" > "made-$number.txt"
git add -A
git commit -q -m "job $number"
git update-ref "refs/floor/$number" HEAD
cd "$OLDPWD"
flock .git/floor.lock git worktree remove --force "$folder"
"""

POOL_WORKER = """
set -e
worker=$1 folder=$FLOOR_FOLDERS/$1 top=$PWD
flock .git/floor.lock git worktree add -q --no-checkout --detach "$folder" main
cd "$folder"
git read-tree -u --reset main
base=$(git rev-parse main)
number=$worker
while [ "$number" -le "$FLOOR_JOBS" ]; do
    echo "$number" > "made-$number.txt"
    git add -A
    tree=$(git write-tree)
    commit=$(git commit-tree "$tree" -p "$base" -m "job $number")
    git update-ref "refs/floor/$number" "$commit"
    git read-tree -u --reset main
    git clean -ffdxq
    number=$((number + FLOOR_PARALLEL))
done
cd "$top"
flock .git/floor.lock git worktree remove --force "$folder"
"""

RUN_AND_MERGE = """
set -e
export FLOOR_FOLDERS=$PWD/.worktrees FLOOR_JOBS=$1 FLOOR_PARALLEL=$2
mkdir -p "$FLOOR_FOLDERS"
seq 1 "$3" | xargs -P "$FLOOR_PARALLEL" -n 1 sh "$4"
tip=$(git rev-parse main)
number=1
while [ "$number" -le "$FLOOR_JOBS" ]; do
    tree=$(git merge-tree --write-tree "$tip" "refs/floor/$number")
    tip=$(git commit-tree "$tree" -p "$tip" -m "merge $number")
    number=$((number + 1))
done
git update-ref refs/heads/landed "$tip"
"""

MERGES = """
set -e
tip=$(git rev-parse main)
git update-ref "$1" "$tip"
number=0
while [ "$number" -lt "$2" ]; do
    tree=$(git merge-tree --write-tree "$tip" "leaf/$number")
    new=$(git commit-tree "$tree" -p "$tip" -p "leaf/$number" -m "merge $number")
    git update-ref "$1" "$new" "$tip"
    tip=$new
    number=$((number + 1))
done
"""

WAITER = """
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("sleep", "{seconds}")
    await process.wait()
asyncio.run(main())
"""


def script(folder: Path, name: str, text: str) -> Path:
    """Write a script, once."""
    place = folder / f"{name}.sh"
    place.write_text(text, "utf-8")
    return place


def plain(repo: Path, jobs: int, parallel: int) -> float:
    """Seconds of the script that adds and removes a worktree for each job."""
    one = script(repo / ".git", "plain-job", PLAIN_JOB)
    both = script(repo / ".git", "run-and-merge", RUN_AND_MERGE)
    return timed(["sh", both, str(jobs), str(parallel), str(jobs), one], repo).wall


def pool(repo: Path, jobs: int, parallel: int) -> float:
    """Seconds of the script that keeps its worktrees."""
    one = script(repo / ".git", "pool-worker", POOL_WORKER)
    both = script(repo / ".git", "run-and-merge", RUN_AND_MERGE)
    return timed(["sh", both, str(jobs), str(parallel), str(parallel), one], repo).wall


def merges(repo: Path, ref: str, leaves: int) -> float:
    """Seconds of three processes per leaf."""
    return timed(["sh", script(repo / ".git", "merges", MERGES), ref, str(leaves)], repo).wall


def ninja(file: Path, parallel: int) -> float:
    """Seconds of ninja in the same graph."""
    return timed(["ninja", "--quiet", "-j", str(parallel), "-f", file], file.parent).wall


def seeds(repo: Path, jobs: int, parallel: int) -> float:
    """Seconds of the model of the seeds' design, as a program of its own."""
    return timed(
        [sys.executable, "-m", "bench.floors", repo, str(jobs), str(parallel)], Path(__file__).parent.parent
    ).wall


# ------------------------------------------------------------------------------- the seeds' design


@dataclass
class SeedsModel:
    """A pump that starts what is free, and jobs that take the mutex for the whole of a worktree's making."""

    repo: Path
    jobs: int
    parallel: int

    def __post_init__(self) -> None:
        self.mutex = asyncio.Lock()
        self.merging = asyncio.Lock()
        self.running: set[asyncio.Task[None]] = set()
        filler = "x" * PLAN_BYTES_PER_JOB
        self.plan = {f"job-{number}": {"state": "pending", "spec": filler} for number in range(self.jobs)}

    async def run(self) -> None:
        """Run all jobs, then move the branch."""
        await self.git("update-ref", "refs/heads/seeds", "main")
        waiting = list(self.plan)
        while waiting or self.running:
            self.running = {task for task in self.running if not task.done() or task.result()}
            while waiting and len(self.running) < self.parallel:
                self.running.add(asyncio.create_task(self.job(waiting.pop(0))))
            await asyncio.sleep(PUMP)
        await self.git("update-ref", "refs/heads/landed", "refs/heads/seeds")

    async def job(self, name: str) -> None:
        """One job: worktree, work, commit, merge, worktree gone."""
        folder = self.repo / ".worktrees" / name
        self.record(name, "scheduled")
        async with self.mutex:
            await self.git("worktree", "add", "-q", "--detach", str(folder), "main")
        self.record(name, "running")
        await self.start("sh", "-c", f"echo {name} > made-{name}.txt", cwd=folder)
        await self.git("add", "-A", cwd=folder)
        await self.git("commit", "-q", "-m", name, cwd=folder)
        commit = await self.git("rev-parse", "HEAD", cwd=folder)
        self.record(name, "merging")
        async with self.merging:
            await self.merge(commit)
        self.record(name, "succeeded")
        async with self.mutex:
            await self.git("worktree", "remove", "--force", str(folder))
            await self.git("worktree", "prune")

    async def merge(self, commit: str) -> None:
        """Merge into the snapshot branch, counting files before and after."""
        tip = await self.git("rev-parse", "seeds")
        tree = await self.git("merge-tree", "--write-tree", tip, commit)
        for one in (tip, commit, tree):
            await self.git("ls-tree", "-r", "--name-only", one)
        merged = await self.git("commit-tree", tree, "-p", tip, "-m", "merge")
        async with self.mutex:  # without it, this command now and then finds a worktree that is half made
            await self.git("branch", "-f", "seeds", merged)

    def record(self, name: str, state: str) -> None:
        """Write the whole plan anew, as the seeds do for each transition."""
        self.plan[name]["state"] = state
        place = self.repo / ".git" / "plan.json"
        fresh = place.with_suffix(".new")
        fresh.write_text(json.dumps(self.plan, indent=2), "utf-8")
        fresh.rename(place)

    async def git(self, *words: str, cwd: Path | None = None) -> str:
        return await self.start("git", *words, cwd=cwd or self.repo)

    async def start(self, *words: str, cwd: Path) -> str:
        process = await asyncio.create_subprocess_exec(*words, cwd=cwd, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        if process.returncode != 0:
            raise Broken(f"'{' '.join(words)}' ended with status {process.returncode}")
        return output.decode().strip()


def main(words: list[str]) -> None:
    repo, jobs, parallel = words
    asyncio.run(SeedsModel(Path(repo), int(jobs), int(parallel)).run())


if __name__ == "__main__":
    main(sys.argv[1:])
