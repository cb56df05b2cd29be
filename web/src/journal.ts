// The events of one plan: those before the page came, page by page, and then those that the store hears.
import { useEffect, useMemo, useState } from "react";
import { ask } from "./api";
import { useStore } from "./state";
import { key, type Happened } from "./store";

const PAGE = 200;
const MOST = 20_000;
const NONE: readonly Happened[] = [];

export function useJournal(repo: string, plan: string): { events: readonly Happened[]; loading: boolean } {
  const [early, setEarly] = useState<readonly Happened[]>(NONE);
  const [loading, setLoading] = useState(true);
  const late = useStore((state) => state.events.get(key(repo, plan)) ?? NONE);
  useEffect(() => {
    let wanted = true;
    const load = async () => {
      const found: Happened[] = [];
      let since = 0;
      while (wanted && found.length < MOST) {
        const page = await ask("listEvents", { repo, plan, since, limit: PAGE });
        found.push(...(page.events as Happened[]));
        if (wanted) setEarly([...found]);
        if (page.events.length < PAGE) break;
        since = page.next;
      }
    };
    load()
      .catch(() => undefined)
      .finally(() => wanted && setLoading(false));
    return () => {
      wanted = false;
    };
  }, [repo, plan]);
  const events = useMemo(() => {
    const seen = early.at(-1)?.seq ?? 0;
    return [...early, ...late.filter((one) => one.seq > seen)];
  }, [early, late]);
  return { events, loading };
}
