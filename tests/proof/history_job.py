"""What the jobs of a random history run: started as a program, so that it needs nothing of ours.

history_job.py FOLDER HOLD FAILS REGION CHILD     the work of a job
history_job.py FOLDER verify                      the check of a merged result

Every attempt holds a lock for as long as anything of it lives, its grandchild included: the next one
that finds the lock taken says so.
"""

import fcntl
import os
import subprocess
import sys
import time


def stamp(folder: str, kind: str, note: str = "-") -> None:
    """Write a line that other processes write beside: one call, to the end of the file."""
    names = [os.environ[f"ORCHARD_{name}"] for name in ("PLAN", "JOB", "ATTEMPT")]
    line = " ".join([kind, f"{time.time():.6f}", *names, note]) + "\n"
    file = os.open(f"{folder}/stamps", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)


def work(folder: str, hold: float, fails: int, region: int, child: bool) -> int:
    plan, job, attempt = (os.environ[f"ORCHARD_{name}"] for name in ("PLAN", "JOB", "ATTEMPT"))
    lock = os.open(f"{folder}/{plan}.{job}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stamp(folder, "overlap")
    stamp(folder, "start")
    if child:
        subprocess.Popen(["sleep", "300"], start_new_session=True, pass_fds=[lock])
    os.makedirs(f"jobs/{plan}", exist_ok=True)  # noqa: PTH103 (nothing is imported that can be done without)
    with open(f"jobs/{plan}/{job}.txt", "w") as file:  # noqa: PTH123
        file.write(f"{plan} {job} {attempt}\n")
    time.sleep(hold)
    if region:
        _change(region, f"{plan} {job}")
    stamp(folder, "stop")
    return 3 if int(attempt) < fails else 0


def _change(region: int, words: str) -> None:
    with open("shared.txt") as file:  # noqa: PTH123
        text = file.read()
    lines = [f"region {region}: {words}" if line.startswith(f"region {region}:") else line for line in text.split("\n")]
    with open("shared.txt", "w") as file:  # noqa: PTH123
        file.write("\n".join(lines))


def main(argv: list[str]) -> int:
    if argv[1] == "verify":
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        stamp(argv[0], "verified", head.stdout.strip())
        return 0
    return work(argv[0], float(argv[1]), int(argv[2]), int(argv[3]), argv[4] == "1")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
