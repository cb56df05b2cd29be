// A new plan: written by an agent for a goal, or by hand as YAML; checked while it is written, and drawn.
import { Suspense, lazy, useEffect, useMemo, useRef, useState } from "react";
import { Refused, send, sentence } from "../api";
import { draw, groupsOf, type Drawing } from "../graph";
import type { Made } from "../generated/api";
import { count, visible } from "../format";
import { Banner, Loading } from "../parts/bits";
import { note } from "../parts/overlay";
import { located, readPlan, unseen, type Trouble } from "../planText";
import { href } from "../route";
import { useStore } from "../state";
import { Goal, author, type Written } from "./Goal";

const Preview = lazy(() => import("./Preview"));
const PAUSE = 350;
const AGAIN = 2000; // until a daemon that did not answer is asked again

const TEMPLATES: { name: string; text: string }[] = [
  {
    name: "A task for an agent",
    text: `name: Say hello
verify: test -f HELLO.md
jobs:
  - id: hello
    work: "@agent Write HELLO.md, a short and friendly welcome"
`,
  },
  {
    name: "Two at once, then one",
    text: `name: Add a greeting
verify: sh greet.sh Ada | grep -q "hello, Ada"
jobs:
  - id: script
    work: printf 'echo "$(cat greeting.txt), $1"\\n' > greet.sh
  - id: words
    work: echo "hello" > greeting.txt
  - id: docs
    needs: [script, words]
    work: |
      (echo "# Greeting"; echo; sh greet.sh you) > GREETING.md
    postchecks: grep -q "hello, you" GREETING.md
`,
  },
  {
    name: "Groups, with approval",
    text: `name: Login
max_parallel: 4
groups:
  - name: backend
    jobs:
      - id: api
        work: "@agent Add POST /login; a session cookie, as in docs/auth.md"
        postchecks: pytest -q tests/api
        approve: true
  - name: frontend
    jobs:
      - id: page
        needs: [backend/api]
        work: "@agent Add the login page"
jobs:
  - id: docs
    needs: [backend/api]
    work: "@agent Document the login endpoint"
`,
  },
];

const EMPTY = { text: TEMPLATES[1]?.text ?? "", goal: "", written: null as Written | null, before: "" };
const KEPT = "orchard-new-plan";
/** What was written here and not run yet: who looks at another page, or loads this one again, finds it again. */
let kept = recalled();

function recalled(): typeof EMPTY {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT) ?? "null") as typeof EMPTY | null;
    return found && typeof found.text === "string" && typeof found.goal === "string" && typeof found.before === "string" ? { ...EMPTY, ...found } : EMPTY;
  } catch {
    return EMPTY; // a browser that keeps nothing
  }
}

function keep(next: typeof EMPTY): typeof EMPTY {
  kept = next;
  try {
    if (next === EMPTY) sessionStorage.removeItem(KEPT);
    else sessionStorage.setItem(KEPT, JSON.stringify(next));
  } catch {
    // It is kept until the page is loaded again.
  }
  return next;
}

export function NewPlanPage({ repo: given }: { repo: string | undefined }) {
  const repos = useStore((state) => state.repos);
  const [chosen, setChosen] = useState(given ?? "");
  const repo = repos.find((one) => one.id === chosen)?.id ?? repos[0]?.id ?? "";
  const [{ text, goal, written, before }, setDraft] = useState(kept);
  const [busy, setBusy] = useState(false);
  const editor = useRef<HTMLTextAreaElement>(null);
  const change = (some: Partial<typeof EMPTY>) => setDraft((now) => keep({ ...now, ...some }));
  const setText = (next: string) => change({ text: next });
  const isOwn = text.trim() !== "" && !TEMPLATES.some((one) => one.text === text);
  const begin = (template: string) => change(isOwn ? { text: template, before: text, written: null } : { text: template });
  const putBack = (
    <button className="button tiny" onClick={() => change({ text: before, before: "", written: null })}>
      Put back what was there
    </button>
  );
  const read = useMemo(() => readPlan(text), [text]);
  const checked = useChecked(repo, text, read);
  const hidden = useMemo(() => unseen(text), [text]);
  const submit = async (body: unknown) => {
    setBusy(true);
    try {
      const made = (await send("submitPlan", { repo }, body)) as Made;
      keep(EMPTY);
      location.hash = href({ page: "plan", repo, plan: made.plan, tab: "graph" });
    } catch (error) {
      note(sentence(error), "bad");
    } finally {
      setBusy(false);
    }
  };
  const preview = useMemo(() => previewed(read.value), [read]);
  return (
    <div className="content full">
      <div className="head">
        <div className="grow stack tight">
          <h1>New plan</h1>
          <p className="soft">Say what you want, and an agent writes the plan; or write it yourself.</p>
        </div>
        {repos.length > 1 && (
          <select className="input" aria-label="Repository" value={repo} onChange={(event) => setChosen(event.target.value)}>
            {repos.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name}
              </option>
            ))}
          </select>
        )}
      </div>
      {repo && (
        <Goal
          repo={repo}
          goal={goal}
          setGoal={(next) => change({ goal: next })}
          busy={busy}
          written={(plan) => {
            setDraft((now) => keep({ ...now, text: plan.text, written: plan, before: now.text }));
            editor.current?.focus();
          }}
          start={(words, agent) => void submit(oneTask(words, agent))}
        />
      )}
      {written && (
        <Banner tone="ok" actions={putBack}>
          {author(written)} Read what it would run; nothing has started.
        </Banner>
      )}
      {!written && before !== "" && (
        <Banner tone="wait" actions={putBack}>
          The template has taken the place of what you wrote, which is kept.
        </Banner>
      )}
      <div className="row wrap">
        <span className="soft small">Begin with:</span>
        <div className="chips">
          {TEMPLATES.map((one) => (
            <button key={one.name} className="chip" aria-pressed={text === one.text} onClick={() => begin(one.text)}>
              {one.name}
            </button>
          ))}
        </div>
      </div>
      <div className="editor">
        <div className="stack">
          <textarea ref={editor} className="input" spellCheck={false} aria-label="The plan, as YAML" value={text} onChange={(event) => setText(event.target.value)} />
          <div className="row wrap">
            <button className="button main" disabled={busy || checked.troubles.length > 0 || checked.says === null} onClick={() => void submit(read.value)}>
              Run it
            </button>
            <span className="soft small grow">{checked.says ?? "Checking …"}</span>
          </div>
          {hidden.lines.map((one) => (
            <Banner key={one.line} tone="wait">
              <b>Line {one.line}</b> holds characters that cannot be seen: {one.shown}
            </Banner>
          ))}
          {hidden.more > 0 && <Banner tone="wait">and {count(hidden.more, "more line holds", "more lines hold")} characters that cannot be seen</Banner>}
          {checked.troubles.map((one, place) => (
            <Banner key={place} tone="bad">
              {one.line !== null && <b>Line {one.line}: </b>}
              {visible(one.message)}
            </Banner>
          ))}
        </div>
        <Suspense fallback={<Loading />}>
          <Preview {...preview} />
        </Suspense>
      </div>
    </div>
  );
}

/** What the daemon says about a plan, a moment after the last key. */
function useChecked(repo: string, text: string, read: ReturnType<typeof readPlan>): { troubles: Trouble[]; says: string | null } {
  const [found, setFound] = useState<{ text: string; troubles: Trouble[]; says: string | null }>({ text: "", troubles: [], says: null });
  useEffect(() => {
    let wanted = true;
    const check = async () => {
      if (read.troubles.length > 0) return { troubles: read.troubles, says: "This is not YAML yet." };
      try {
        const valid = (await send("validatePlan", { repo }, read.value)) as { jobs: number };
        return { troubles: [], says: `${count(valid.jobs, "job")}; nothing is wrong with it.` };
      } catch (error) {
        if (!(error instanceof Refused)) {
          if (wanted) timer = setTimeout(look, AGAIN);
          return { troubles: [], says: sentence(error) };
        }
        const all = located(error.problem.problems, read);
        return { troubles: all.length > 0 ? all : [{ line: null, path: "", message: sentence(error) }], says: `${count(Math.max(1, all.length), "problem")}` };
      }
    };
    const look = () => void check().then((now) => wanted && setFound({ text, ...now }));
    let timer = setTimeout(look, PAUSE);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [repo, text, read]);
  return found.text === text ? found : { troubles: [], says: null };
}

/** A plan of one job, which an agent does. */
export function oneTask(goal: string, agent: string): unknown {
  const work = { instructions: goal, ...(agent ? { agent } : {}) };
  return { name: goal.split("\n")[0]?.slice(0, 80), jobs: [{ id: "task", task: goal.slice(0, 200), work }] };
}

interface Part {
  id?: unknown;
  needs?: unknown;
  jobs?: unknown;
  groups?: unknown;
  name?: unknown;
}

/** The graph of what is written so far, as far as it can be read. */
export function previewed(value: unknown): { drawing: Drawing; jobs: number } {
  const found: { id: string; needs: string[]; group: string | null }[] = [];
  const walk = (part: Part, group: string | null) => {
    for (const job of Array.isArray(part.jobs) ? (part.jobs as Part[]) : [])
      if (job && typeof job.id === "string") {
        const needs = Array.isArray(job.needs) ? job.needs.map(String) : typeof job.needs === "string" ? [job.needs] : [];
        const own = typeof (job as { group?: unknown }).group === "string" ? (job as { group: string }).group : null;
        const path = [group, own].filter(Boolean).join("/") || null;
        found.push({ id: path ? `${path}/${job.id}` : job.id, needs, group: path });
      }
    for (const inner of Array.isArray(part.groups) ? (part.groups as Part[]) : [])
      if (inner && typeof inner.name === "string") walk(inner, group ? `${group}/${inner.name}` : inner.name);
  };
  if (value && typeof value === "object") walk(value as Part, null);
  const known = new Map(found.map((job) => [job.id, job.id]));
  for (const job of found) if (!known.has(job.id.split("/").at(-1) ?? "")) known.set(job.id.split("/").at(-1) ?? "", job.id);
  const whole = found.map((job) => ({ ...job, needs: job.needs.flatMap((need) => known.get(job.group ? `${job.group}/${need}` : need) ?? known.get(need) ?? []) }));
  const drawing = draw(whole, new Set(), "LR");
  return { drawing: drawing.dense === undefined ? drawing : draw(whole, new Set(groupsOf(whole)), "LR"), jobs: whole.length };
}
