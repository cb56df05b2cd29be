import { afterEach, expect, test, vi } from "vitest";
import { toggleNotifies } from "../src/notify";

afterEach(() => vi.unstubAllGlobals());

test("who asks for notifications that the browser denies is told what to do", async () => {
  const told: string[] = [];
  vi.stubGlobal("localStorage", { getItem: () => null, setItem: () => undefined, removeItem: () => undefined });
  vi.stubGlobal("Notification", { permission: "denied", requestPermission: () => Promise.resolve("denied") });
  expect(await toggleNotifies((why) => told.push(why))).toBe(false);
  expect(told.join()).toContain("settings of the browser");
});
