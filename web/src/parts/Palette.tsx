// Everything that one can go to or do, found by typing: pages, plans, the jobs of the open plan, and its actions.
import { useMemo, useState } from "react";
import { jobActions, planActions, type Action } from "../actions";
import { visibleName } from "../format";
import { jobsOf } from "../deltas";
import { href, parseRoute } from "../route";
import { useStore } from "../state";
import { key, type State } from "../store";
import { nextTheme } from "../theme";
import { Dialog } from "./overlay";
import { Icon } from "./icons";

interface Entry {
  id: string;
  label: string;
  kind: string;
  icon: string;
  go: () => unknown;
}

const SHOWN = 12;

export function Palette({ close }: { close: () => void }) {
  const state = useStore((now) => now);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const entries = useMemo(() => everything(state), [state]);
  const found = useMemo(() => matching(entries, text), [entries, text]);
  const pick = (entry: Entry | undefined) => {
    close();
    entry?.go();
  };
  return (
    <Dialog label="Go to" close={close} className="palette">
      <input
        className="search"
        placeholder="Go to a plan, a job or a page, or do something …"
        aria-label="Go to"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found[at] ? `palette-${at}` : undefined}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setAt(Math.min(found.length - 1, at + 1));
          else if (event.key === "ArrowUp") setAt(Math.max(0, at - 1));
          else if (event.key === "Enter") pick(found[at]);
          else return;
          event.preventDefault();
        }}
      />
      <ul role="listbox" id="palette-list" aria-label="Found">
        {found.map((entry, place) => (
          <li key={entry.id} id={`palette-${place}`} role="option" aria-selected={place === at} onMouseMove={() => setAt(place)} onClick={() => pick(entry)}>
            <Icon shape={entry.icon} />
            <span className="cut grow">{entry.label}</span>
            <span className="faint small">{entry.kind}</span>
          </li>
        ))}
        {found.length === 0 && <li className="soft">Nothing is called that.</li>}
      </ul>
    </Dialog>
  );
}

function everything(state: State): Entry[] {
  const to = (address: string) => () => (location.hash = address);
  const found: Entry[] = [
    { id: "plans", label: "Plans", kind: "page · g p", icon: "plans", go: to(href({ page: "plans" })) },
    { id: "inbox", label: "Inbox", kind: "page · g i", icon: "inbox", go: to(href({ page: "inbox" })) },
    { id: "workers", label: "Workers", kind: "page · g w", icon: "workers", go: to(href({ page: "workers" })) },
    { id: "system", label: "System", kind: "page · g s", icon: "system", go: to(href({ page: "system" })) },
    { id: "new", label: "New plan", kind: "page · n", icon: "plus", go: to(href({ page: "new" })) },
    { id: "theme", label: "Change the theme: light, dark, or as the system says", kind: "action", icon: "sun", go: nextTheme },
  ];
  const doing = (action: Action, what: string): Entry => ({ id: `do ${action.name} ${what}`, label: `${action.label}: ${visibleName(what)}`, kind: "action", icon: action.icon, go: () => void action.run() });
  const route = parseRoute(location.hash);
  if (route.page === "plan" || route.page === "job") {
    const open = state.open.get(key(route.repo, route.plan));
    const job = route.page === "job" ? open?.jobs.get(route.job) : undefined;
    if (open && job) found.unshift(...jobActions(route.repo, route.plan, job).map((one) => doing(one, job.name)));
    else if (open) found.unshift(...planActions(route.repo, open.plan).map((one) => doing(one, open.plan.name)));
    for (const one of open ? jobsOf(open) : [])
      found.push({ id: `job ${one.id}`, label: visibleName(one.name === one.id ? one.id : `${one.name} (${one.id})`), kind: `job · ${one.status}`, icon: "unfold", go: to(href({ page: "job", repo: route.repo, plan: route.plan, job: one.id, tab: "log" })) });
  }
  for (const [repo, plans] of state.plans)
    for (const plan of plans)
      found.push({ id: `plan ${repo} ${plan.id}`, label: visibleName(plan.name), kind: `plan · ${plan.status}`, icon: "plans", go: to(href({ page: "plan", repo, plan: plan.id, tab: "graph" })) });
  return found;
}

/** Those that have every word, those that begin with the text first. */
function matching(entries: readonly Entry[], text: string): Entry[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rated: [number, Entry][] = [];
  for (const entry of entries) {
    const label = `${entry.label} ${entry.kind}`.toLowerCase();
    if (!words.every((word) => label.includes(word))) continue;
    rated.push([words[0] && label.startsWith(words[0]) ? 0 : 1, entry]);
  }
  return rated.sort((one, other) => one[0] - other[0]).slice(0, SHOWN).map(([, entry]) => entry);
}
