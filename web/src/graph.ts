// Where every job of a plan is drawn: groups as boxes around their jobs, or folded to one node.
import dagre from "@dagrejs/dagre";
import type { JobView } from "./generated/api";

export const WIDTH = 188;
export const HEIGHT = 58;
const PADDING = 18;
const LABEL = 30;
const MANY = 300; // nodes; above this, layers are drawn as plain columns
const CROWDED = 800; // edges; above this too: to lay them out well takes seconds
const DENSE = 4000; // edges, if there are also many for each node: nobody could read them, and the browser would stand still
const DENSE_EACH = 4;
const FOLDED_FROM = 120; // jobs; above this, groups begin folded

export interface Placed {
  id: string;
  kind: "job" | "folded" | "box";
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Edge {
  id: string;
  from: string;
  to: string;
}

export interface Drawing {
  nodes: Placed[];
  edges: Edge[];
  /** How many edges there would be, where they are too many to be drawn. */
  dense?: number;
}

export type Job = Pick<JobView, "id" | "needs" | "group">;

/** Every group of the plan, those above first. */
export function groupsOf(jobs: readonly Job[]): string[] {
  const found = new Set<string>();
  for (const job of jobs) for (const path of pathsOf(job.group)) found.add(path);
  return [...found].sort((one, other) => one.split("/").length - other.split("/").length || one.localeCompare(other));
}

/** A group and those that it stands in, the outermost first. */
export function pathsOf(group: string | null): string[] {
  if (!group) return [];
  const parts = group.split("/");
  return parts.map((_, place) => parts.slice(0, place + 1).join("/"));
}

/** Whether a plan is drawn with its groups folded at first. */
export function beginsFolded(jobs: readonly Job[]): boolean {
  return jobs.length > FOLDED_FROM || jobs.reduce((sum, job) => sum + job.needs.length, 0) > CROWDED;
}

/** What stands for a job: itself, or the outermost folded group that it is in. */
export function shownAs(job: Job, folded: ReadonlySet<string>): string {
  const group = pathsOf(job.group).find((path) => folded.has(path));
  return group === undefined ? `job:${job.id}` : `group:${group}`;
}

export function draw(jobs: readonly Job[], folded: ReadonlySet<string>, direction: "LR" | "TB"): Drawing {
  const shown = new Map(jobs.map((job) => [job.id, shownAs(job, folded)]));
  const edges = new Map<string, Edge>();
  for (const job of jobs)
    for (const need of job.needs) {
      const from = shown.get(need);
      const to = shown.get(job.id);
      if (from && to && from !== to) edges.set(`${from}>${to}`, { id: `${from}>${to}`, from, to });
    }
  const nodes = [...new Set(shown.values())];
  const all = [...edges.values()];
  if (all.length > Math.max(DENSE, DENSE_EACH * nodes.length)) return { nodes: [], edges: [], dense: all.length };
  if (nodes.length > MANY || all.length > CROWDED) return { nodes: columns(nodes, all, direction), edges: all };
  return { nodes: layered(jobs, nodes, all, shown, folded, direction), edges: all };
}

function layered(jobs: readonly Job[], nodes: string[], edges: Edge[], shown: ReadonlyMap<string, string>, folded: ReadonlySet<string>, direction: "LR" | "TB"): Placed[] {
  const graph = new dagre.graphlib.Graph({ compound: true });
  graph.setGraph({ rankdir: direction, nodesep: direction === "LR" ? 30 : 36, ranksep: direction === "LR" ? 52 : 56, marginx: 24, marginy: 24 });
  graph.setDefaultEdgeLabel(() => ({}));
  const open = groupsOf(jobs).filter((path) => !pathsOf(path).some((one) => folded.has(one)));
  for (const path of open) graph.setNode(`box:${path}`, {});
  for (const path of open) {
    const above = path.split("/").slice(0, -1).join("/");
    if (above) graph.setParent(`box:${path}`, `box:${above}`);
  }
  for (const id of nodes) graph.setNode(id, { width: WIDTH, height: HEIGHT });
  for (const job of jobs) {
    const node = shown.get(job.id) ?? "";
    const group = node.startsWith("group:") ? node.slice(6).split("/").slice(0, -1).join("/") : job.group;
    if (group) graph.setParent(node, `box:${group}`);
  }
  for (const edge of edges) graph.setEdge(edge.from, edge.to);
  dagre.layout(graph);
  const placed = nodes.map((id): Placed => {
    const { x, y } = graph.node(id) as { x: number; y: number };
    return { id, kind: id.startsWith("group:") ? "folded" : "job", x: x - WIDTH / 2, y: y - HEIGHT / 2, width: WIDTH, height: HEIGHT };
  });
  return [...boxes(open, placed, graph), ...placed];
}

/** The boxes around what is inside of each group, the outermost first, so that they lie below. */
function boxes(open: readonly string[], placed: readonly Placed[], graph: { parent: (id: string) => string | void }): Placed[] {
  const inside = new Map<string, Placed[]>();
  for (const node of placed) {
    const group = graph.parent(node.id);
    if (typeof group === "string") inside.set(group, [...(inside.get(group) ?? []), node]);
  }
  const found = new Map<string, Placed>();
  for (const path of [...open].reverse()) {
    const inner = [...(inside.get(`box:${path}`) ?? []), ...[...found.values()].filter((box) => box.id.slice(4).split("/").slice(0, -1).join("/") === path)];
    if (inner.length === 0) continue;
    const left = Math.min(...inner.map((node) => node.x)) - PADDING;
    const top = Math.min(...inner.map((node) => node.y)) - LABEL;
    const right = Math.max(...inner.map((node) => node.x + node.width)) + PADDING;
    const bottom = Math.max(...inner.map((node) => node.y + node.height)) + PADDING - 4;
    found.set(path, { id: `box:${path}`, kind: "box", x: left, y: top, width: right - left, height: bottom - top });
  }
  return [...found.values()].reverse();
}

/** Very many nodes: each in the column of how far it is from the beginning. */
function columns(nodes: string[], edges: readonly Edge[], direction: "LR" | "TB"): Placed[] {
  const rank = ranks(nodes, edges);
  const filled = new Map<number, number>();
  return nodes.map((id) => {
    const column = rank.get(id) ?? 0;
    const row = filled.get(column) ?? 0;
    filled.set(column, row + 1);
    const [x, y] = direction === "LR" ? [column * (WIDTH + 110), row * (HEIGHT + 22)] : [row * (WIDTH + 30), column * (HEIGHT + 80)];
    return { id, kind: id.startsWith("group:") ? "folded" : "job", x, y, width: WIDTH, height: HEIGHT };
  });
}

/** How far each node is from the beginning; folded groups can make circles, which are cut where they close. */
function ranks(nodes: readonly string[], edges: readonly Edge[]): Map<string, number> {
  const into = new Map<string, number>(nodes.map((id) => [id, 0]));
  const out = new Map<string, string[]>();
  for (const edge of edges) {
    into.set(edge.to, (into.get(edge.to) ?? 0) + 1);
    out.set(edge.from, [...(out.get(edge.from) ?? []), edge.to]);
  }
  const rank = new Map<string, number>(nodes.map((id) => [id, 0]));
  const ready = nodes.filter((id) => into.get(id) === 0);
  for (let id = ready.shift(); id !== undefined; id = ready.shift())
    for (const next of out.get(id) ?? []) {
      rank.set(next, Math.max(rank.get(next) ?? 0, (rank.get(id) ?? 0) + 1));
      const left = (into.get(next) ?? 0) - 1;
      into.set(next, left);
      if (left === 0) ready.push(next);
    }
  return rank;
}

/** The chain of jobs that took longest, or has the most steps where nothing is known: the plan is no faster than it. */
export function criticalPath(jobs: readonly Pick<JobView, "id" | "needs" | "usage">[]): Set<string> {
  const byId = new Map(jobs.map((job) => [job.id, job]));
  const known = jobs.map((job) => job.usage.seconds ?? 0).filter((seconds) => seconds > 0);
  const usual = known.length > 0 ? known.reduce((sum, one) => sum + one, 0) / known.length : 1;
  const length = new Map<string, number>();
  const before = new Map<string, string | undefined>();
  const visit = (first: string) => {
    const stack = [first];
    while (stack.length > 0) {
      const id = stack.at(-1) as string;
      const needs = byId.get(id)?.needs.filter((need) => byId.has(need)) ?? [];
      const open = needs.filter((need) => !length.has(need));
      if (open.length > 0 && stack.length <= jobs.length) {
        stack.push(...open);
        continue;
      }
      stack.pop();
      let longest: string | undefined;
      for (const need of needs) if (longest === undefined || (length.get(need) ?? 0) > (length.get(longest) ?? 0)) longest = need;
      before.set(id, longest);
      length.set(id, (longest ? (length.get(longest) ?? 0) : 0) + (byId.get(id)?.usage.seconds || usual));
    }
  };
  for (const job of jobs) if (!length.has(job.id)) visit(job.id);
  let at: string | undefined = jobs.reduce<string | undefined>((last, job) => (last === undefined || (length.get(job.id) ?? 0) > (length.get(last) ?? 0) ? job.id : last), undefined);
  const found = new Set<string>();
  while (at !== undefined && !found.has(at)) {
    found.add(at);
    at = before.get(at);
  }
  return found;
}
