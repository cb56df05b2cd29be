// Notes of the browser when something new needs a person: only where that person asked for them, in this browser.
import type { Wait } from "./store";

const KEPT = "orchard-notify";

export function notifies(): boolean {
  return localStorage.getItem(KEPT) === "yes" && typeof Notification !== "undefined" && Notification.permission === "granted";
}

/** Begin or end to notify; why it cannot, for the person who asked for it, is told. */
export async function toggleNotifies(tell: (why: string) => void): Promise<boolean> {
  if (notifies()) localStorage.removeItem(KEPT);
  else if (typeof Notification === "undefined") tell("This browser shows no notifications.");
  else {
    const answer = await Notification.requestPermission();
    if (answer === "granted") localStorage.setItem(KEPT, "yes");
    else if (answer === "denied") tell("The browser does not let this page notify you. Allow notifications for this address in the settings of the browser (the icon left of the address), and press the button again.");
    else tell("The browser has not been told yet whether this page may notify you. Press the button again, and allow it.");
  }
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
