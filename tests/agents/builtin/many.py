"""Many built-in agents in one process, and what they take: started by `test_many` as a program of its own.

python -m tests.agents.builtin.many URL COUNT FOLDER     # prints one JSON document
"""

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path

from orchard.agents.builtin.agent import BuiltinAgent
from orchard.agents.protocol import Result, Task, Telling, Used, Watch
from orchard.model.agent_rows import BuiltinRow
from orchard.model.usage import Usage, total
from orchard.process.families.identity import Identity
from orchard.process.launcher import Launcher

BEAT = 0.02


async def work(url: str, count: int, top: Path) -> dict[str, object]:
    agent = BuiltinAgent(BuiltinRow(base_url=url, model="fake-model"))
    used: list[Usage] = []
    ended: list[float] = []
    begun = time.monotonic()

    def tell(telling: Telling) -> None:
        if isinstance(telling, Used):
            used.append(telling.usage)

    async def on_start(identity: Identity) -> None:
        return

    async def one(number: int) -> Result:
        folder, private, scratch = (top / f"{name}-{number}" for name in ("folder", "private", "scratch"))
        for place in (folder, private, scratch):
            place.mkdir(mode=0o700)
        env = {"PATH": os.environ["PATH"], "HOME": str(top), "ANTHROPIC_API_KEY": "test-key"}
        log = top / f"{number}.log"
        task = Task(f"Job {number}.", folder, env, private, scratch, log, Launcher())
        result = await agent.run(task, Watch(tell, on_start, asyncio.Event()))
        ended.append(time.monotonic() - begun)
        return result

    lags: list[float] = []
    beating = asyncio.ensure_future(beat(lags))
    results = await asyncio.gather(*(one(number) for number in range(count)))
    beating.cancel()
    sum_of = total(used)
    return {
        "done": sum(result.ok for result in results),
        "trouble": sorted({result.message for result in results if not result.ok}),
        "peak_mb": peak_mb(),
        "seconds": round(time.monotonic() - begun, 1),
        "first_end": round(min(ended), 1),
        "last_end": round(max(ended), 1),
        "longest_lag": round(max(lags), 3),
        "usual_lag": round(sorted(lags)[len(lags) // 2], 3),
        "cpu": round(time.process_time(), 1),
        "tokens": sum_of.tokens,
        "requests": sum_of.requests,
    }


def peak_mb() -> int:
    """The most memory that was held. What `getrusage` says may be that of the process which started this one."""
    status = Path("/proc/self/status")
    if status.exists():
        (row,) = [row for row in status.read_text().splitlines() if row.startswith("VmHWM:")]
        return round(int(row.split()[1]) / 1024)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 / 1024)


async def beat(lags: list[float]) -> None:
    """How late the loop comes back to somebody who waits for a moment: what others of the process would feel."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(BEAT)
        lags.append(time.monotonic() - before - BEAT)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(work(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))))
