"""Floors that only we measure against; the scripts that do the same work as our plans are in `orchard.bench.floors`.

seeds   a model of the design that the idea came from: a pump that looks every 200 ms, a mutex around the whole
        of adding and removing a worktree, and the plan rewritten as JSON at each transition
ninja   a build tool that keeps no state worth mentioning
waiter  a program that only waits
"""

import asyncio
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from orchard.process.stopwatch import Broken, timed

PUMP = 0.2
PLAN_BYTES_PER_JOB = 1000

WAITER = """
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("sleep", "{seconds}")
    await process.wait()
asyncio.run(main())
"""


def ninja(file: Path, parallel: int) -> float:
    """Seconds of ninja in the same graph."""
    program = ninja_program()
    if program is None:
        raise Broken("There is no ninja.", hint="Install it with: make dev")
    return timed([program, "--quiet", "-j", str(parallel), "-f", file], file.parent).wall


def ninja_program() -> str | None:
    """The ninja of the environment we run in, else the one on the PATH."""
    ours = Path(sys.executable).parent / "ninja"
    return str(ours) if ours.exists() else shutil.which("ninja")


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
        await self.start("sh", "-c", f"echo {name} > orchard-bench-{name}.txt", cwd=folder)
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
