"""Floors: what bare scripts reach, without any of our promises. Each is as fast as its design allows.

    plain   per job: lock, add a worktree, commit, remove it; in the end merge all
    pool    a worktree per worker, reset between jobs; plumbing commits; in the end merge all
    merges  three processes per leaf

None of them keeps work that fails, survives being killed, or writes anything so that it outlives the power.
"""

import shutil
from pathlib import Path

from orchard.process.stopwatch import timed

PROGRAMS = ("sh", "xargs", "flock")

PLAIN_JOB = """
set -e
number=$1 folder=$FLOOR_FOLDERS/$1
flock .git/floor.lock git worktree add -q --detach "$folder" main
cd "$folder"
echo "$number" > "orchard-bench-$number.txt"
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
    echo "$number" > "orchard-bench-$number.txt"
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


def missing(*programs: str) -> list[str]:
    return [program for program in programs if shutil.which(program) is None]


def script(folder: Path, name: str, text: str) -> Path:
    place = folder / f"{name}.sh"
    place.write_text(text, "utf-8")
    return place


def plain(repo: Path, jobs: int, parallel: int) -> float:
    """Seconds of the script that adds and removes a worktree for each job."""
    one = script(repo / ".git", "plain-job", PLAIN_JOB)
    both = script(repo / ".git", "run-and-merge", RUN_AND_MERGE)
    return timed(["sh", both, str(jobs), str(parallel), str(jobs), one], repo).wall


def pool(repo: Path, jobs: int, parallel: int) -> float:
    one = script(repo / ".git", "pool-worker", POOL_WORKER)
    both = script(repo / ".git", "run-and-merge", RUN_AND_MERGE)
    return timed(["sh", both, str(jobs), str(parallel), str(parallel), one], repo).wall


def merges(repo: Path, ref: str, leaves: int) -> float:
    return timed(["sh", script(repo / ".git", "merges", MERGES), ref, str(leaves)], repo).wall
