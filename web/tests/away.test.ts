import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { whenAway } from "../src/away";

const page = Object.assign(new EventTarget(), { hidden: false });

function show(hidden: boolean): void {
  page.hidden = hidden;
  page.dispatchEvent(new Event("visibilitychange"));
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("document", page);
});
afterEach(() => {
  show(false);
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a page that nobody has looked at for a while leaves, and comes back when somebody does", () => {
  const said: string[] = [];
  const forget = whenAway(() => said.push("leave") > 0, () => said.push("back"));

  show(true);
  vi.advanceTimersByTime(19_000);
  expect(said).toEqual([]);
  vi.advanceTimersByTime(2_000);
  show(false);
  expect(said).toEqual(["leave", "back"]);
  forget();
});

test("a look at another tab is no absence, and who did not leave does not come back", () => {
  const said: string[] = [];
  const forget = whenAway(() => said.push("asked") === 0, () => said.push("back"));

  show(true);
  vi.advanceTimersByTime(5_000);
  show(false);
  vi.advanceTimersByTime(60_000);
  expect(said).toEqual([]);
  show(true);
  vi.advanceTimersByTime(21_000);
  show(false);
  expect(said).toEqual(["asked"]);
  forget();
});
