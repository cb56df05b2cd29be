import { expect, test } from "vitest";
import type { WorkerRow } from "../src/generated/api";
import { isAtWork, workedFor } from "../src/pages/Workers";
import { lastKnown } from "../src/store";

test("clocks stand still while the daemon does not answer", () => {
  expect(lastKnown({ is: "live" }, 9000)).toBe(9000);
  expect(lastKnown({ is: "away", since: 5000 }, 9000)).toBe(5000);
  expect(lastKnown({ is: "away", since: 5000 }, 4000)).toBe(4000);
});

const worker = (state: WorkerRow["state"], usage: WorkerRow["usage"] = {}) => ({ state, usage, started_at: "2026-01-01T00:00:00Z" });

test("an agent that is done is not at work, and its time stands still", () => {
  expect((["created", "running", "idle", "paused", "completed", "error"] as const).filter((state) => isAtWork(worker(state)))).toEqual(["created", "running", "idle", "paused"]);
  const later = Date.parse("2026-01-01T00:02:44Z");
  expect(workedFor(worker("running"), later)).toBe(164);
  expect(workedFor(worker("completed", { seconds: 0.4 }), later)).toBe(0.4);
  expect(workedFor(worker("error"), later)).toBeNull();
});
