// The store in React: what a page reads of it, and the clock that running times are shown by.
import { useEffect, useState, useSyncExternalStore } from "react";
import { Comments, type Unsent } from "./comments";
import type { Plan } from "./deltas";
import { Store, key, lastKnown, type State } from "./store";

export const store = new Store();
// For people who wonder about a page, and for tests: what it knows.
Object.defineProperty(globalThis, "orchard", { value: { store } });

/** A part of the state; the page is drawn anew only where that part is another. */
export function useStore<T>(pick: (state: State) => T): T {
  return useSyncExternalStore(store.subscribe, () => pick(store.state));
}

const comments = new Comments(typeof sessionStorage === "undefined" ? null : sessionStorage);

/** The comments on what an attempt of a job changed that were not sent, and how they are changed. */
export function useComments(repo: string, plan: string, job: string, attempt: number): [Unsent, (change: Partial<Unsent>) => void] {
  const where = [repo, plan, job, attempt].join("\n");
  return [useSyncExternalStore(comments.subscribe, () => comments.of(where)), (change) => comments.keep(where, change)];
}

/** A plan, kept open while the page shows it; `null`: there is none. */
export function usePlan(repo: string, plan: string): Plan | null | undefined {
  useEffect(() => store.hold(repo, plan), [repo, plan]);
  return useStore((state) => state.open.get(key(repo, plan)) ?? (state.gone.has(key(repo, plan)) ? null : undefined));
}

/** The time that running times are shown by, every second while something runs; it stands still while the daemon is away. */
export function useNow(running: boolean): number {
  const now = useClock(running);
  const connection = useStore((state) => state.connection);
  return lastKnown(connection, now);
}

/** The time of this machine, every second while it is wanted. */
export function useClock(running: boolean): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    setNow(Date.now());
    if (!running) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [running]);
  return now;
}

/** What a question is answered with, asked again whenever `again` is another; a failure is its message. */
export function useAsked<T>(question: () => Promise<T>, again: readonly unknown[]): { value?: T; error?: unknown } {
  const [found, setFound] = useState<{ value?: T; error?: unknown }>({});
  useEffect(() => {
    let wanted = true;
    question().then(
      (value) => wanted && setFound({ value }),
      (error: unknown) => wanted && setFound((before) => ({ ...before, error })),
    );
    return () => {
      wanted = false;
    };
  }, again);
  return found;
}
