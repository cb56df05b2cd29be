// A plan as a person writes it, in YAML: what it says, and on which line a problem of the daemon's stands.
import { LineCounter, isNode, parseDocument } from "yaml";
import { firstUnseen, visible } from "./format";
import type { ProblemItem } from "./generated/api";

export interface Trouble {
  line: number | null;
  path: string;
  message: string;
}

export interface Read {
  value: unknown;
  troubles: Trouble[];
  lineOf: (path: string) => number | null;
}

export function readPlan(text: string): Read {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  const troubles = document.errors.map((error): Trouble => ({ line: lines.linePos(error.pos[0]).line, path: "", message: error.message.split("\n")[0] ?? "" }));
  const lineOf = (path: string): number | null => {
    // The nearest part that is there: of a field that is missing, what it is missing from.
    for (let steps = stepsOf(path); ; steps = steps.slice(0, -1)) {
      const node = steps.length === 0 ? document.contents : document.getIn(steps, true);
      if (isNode(node) && node.range) return lines.linePos(node.range[0]).line;
      if (steps.length === 0) return null;
    }
  };
  return { value: troubles.length === 0 ? document.toJS({ maxAliasCount: 100 }) : null, troubles, lineOf };
}

/** `jobs[1].needs[0]` as the steps that lead there. */
export function stepsOf(path: string): (string | number)[] {
  return [...path.matchAll(/\[(\d+)\]|([^.[\]]+)/g)].map((found) => (found[1] !== undefined ? Number(found[1]) : (found[2] ?? "")));
}

export function located(problems: readonly ProblemItem[], read: Read): Trouble[] {
  return problems.map((one) => ({ line: read.lineOf(one.path), path: one.path, message: one.message }));
}

const LISTED = 5;
const BEFORE = 60;

/** The lines of a plan that hold more than one can see, made visible there; an editor shows nothing of it. */
export function unseen(text: string): { lines: { line: number; shown: string }[]; more: number } {
  const found = text.replaceAll("\r\n", "\n").split("\n").flatMap((one, place) => {
    const at = firstUnseen(one);
    const from = Math.max(0, at - BEFORE);
    return at < 0 ? [] : [{ line: place + 1, shown: `${from > 0 ? "…" : ""}${visible(one.slice(from)).trim().slice(0, 200)}` }];
  });
  return { lines: found.slice(0, LISTED), more: Math.max(0, found.length - LISTED) };
}
