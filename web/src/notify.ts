// Notes of the browser when something new needs a person: only where that person asked for them, in this browser.
import type { Wait } from "./store";

const KEPT = "orchard-notify";

export function notifies(): boolean {
  return localStorage.getItem(KEPT) === "yes" && typeof Notification !== "undefined" && Notification.permission === "granted";
}

/** Begin or end to notify; whether it does now. */
export async function toggleNotifies(): Promise<boolean> {
  if (notifies()) localStorage.removeItem(KEPT);
  else if (typeof Notification !== "undefined" && (await Notification.requestPermission()) === "granted") localStorage.setItem(KEPT, "yes");
  return notifies();
}

/** Tell about what was not there before. */
export function notify(before: readonly Wait[], now: readonly Wait[]): void {
  if (!notifies()) return;
  const known = new Set(before.map(name));
  for (const one of now) if (!known.has(name(one))) new Notification(`Orchard: ${one.name}`, { body: one.reason, tag: name(one) });
}

function name(one: Wait): string {
  return `${one.repo} ${one.plan} ${one.job ?? ""} ${one.kind} ${one.since ?? ""}`;
}
