import { expect, test } from "vitest";
import { beginsFolded, criticalPath, draw, groupsOf, type Job } from "../src/graph";
import { Log } from "../src/log";
import { lanes } from "../src/timeline";
import type { LogPage } from "../src/generated/api";
import type { Happened } from "../src/store";

const job = (id: string, needs: string[] = [], group: string | null = null): Job => ({ id, needs, group });
const JOBS = [job("a/x", [], "a"), job("a/in/y", ["a/x"], "a/in"), job("b", ["a/in/y"]), job("c", ["b", "a/x"])];

test("jobs stand after what they need, inside of their groups", () => {
  const { nodes, edges } = draw(JOBS, new Set(), "LR");
  const at = new Map(nodes.map((node) => [node.id, node]));
  for (const edge of edges) expect(at.get(edge.from)?.x).toBeLessThan(at.get(edge.to)?.x ?? 0);
  const [outer, inner, y] = [at.get("box:a"), at.get("box:a/in"), at.get("job:a/in/y")];
  expect(outer && inner && y && outer.x < inner.x && inner.x < y.x && y.x + y.width < inner.x + inner.width && inner.x + inner.width < outer.x + outer.width).toBe(true);
  expect(nodes.findIndex((node) => node.id === "box:a")).toBeLessThan(nodes.findIndex((node) => node.id === "box:a/in"));
  expect(groupsOf(JOBS)).toEqual(["a", "a/in"]);
});

test("a folded group is one node, and its inner edges are gone", () => {
  const { nodes, edges } = draw(JOBS, new Set(["a"]), "TB");
  expect(nodes.map((node) => node.id).sort()).toEqual(["group:a", "job:b", "job:c"]);
  expect(edges.map((edge) => edge.id).sort()).toEqual(["group:a>job:b", "group:a>job:c", "job:b>job:c"]);
});

test("two folded groups that need each other are drawn all the same", () => {
  const jobs = [job("a/1", [], "a"), job("b/1", ["a/1"], "b"), job("a/2", ["b/1"], "a")];
  expect(draw(jobs, new Set(["a", "b"]), "LR").nodes).toHaveLength(2);
});

test("5,000 jobs get their places in a second", () => {
  const many = Array.from({ length: 5000 }, (_, place) => job(`j${place}`, place >= 50 ? [`j${place - 50}`, `j${place - 49}`] : []));
  const began = performance.now();
  const { nodes } = draw(many, new Set(), "LR");
  expect(nodes).toHaveLength(5000);
  expect(performance.now() - began).toBeLessThan(1000);
  expect(new Set(nodes.map((node) => `${node.x} ${node.y}`)).size).toBe(5000);
});

test("the critical path is the chain that takes longest", () => {
  const timed = [["a", [], 5], ["b", ["a"], 1], ["c", ["a"], 9], ["d", ["b", "c"], 1], ["e", ["b"], 2]] as [string, string[], number][];
  expect([...criticalPath(timed.map(([id, needs, seconds]) => ({ id, needs, usage: { seconds } })))].sort()).toEqual(["a", "c", "d"]);
});

test("a timeline has phases, failures, and marks of further attempts", () => {
  const event = (seq: number, type: string, more: object): Happened => ({ seq, at: new Date(seq * 1000).toISOString(), plan: "p", type, job: "a", ...more });
  const [lane] = lanes([event(1, "JobStarted", { attempt: 1 }), event(1, "PhaseStarted", { phase: "work" }), event(3, "PhaseEnded", { phase: "work", outcome: "failed" }), event(3, "JobFailed", {}), event(5, "JobStarted", { attempt: 2 }), event(5, "PhaseStarted", { phase: "work" })]);
  expect(lane).toMatchObject({ job: "a", from: 1000, to: null, marks: [{ at: 5000, what: "attempt 2" }] });
  expect(lane?.phases).toEqual([
    { phase: "work", from: 1000, to: 3000, failed: true },
    { phase: "work", from: 5000, to: null, failed: false },
  ]);
});

const page = (data: string, offset: number, size: number, ended = false): LogPage => ({ attempt: 1, phase: "work", data, offset, next_offset: offset + new TextEncoder().encode(data).length, size, ended });

test("a log grows at both ends, and its lines are whole wherever it was cut", () => {
  const text = Array.from({ length: 50 }, (_, place) => `line ${place} ü`).join("\n") + "\n";
  const data = new TextEncoder().encode(text);
  const cut = (from: number, to: number) => page(new TextDecoder().decode(data.slice(from, to)), from, data.length);
  const log = Log.at(200).append(cut(200, 300)).append(cut(300, 400)).prepend(cut(100, 200)).prepend(cut(0, 100)).append(cut(400, data.length));
  expect(log.lines.join("\n")).toBe(text);
  expect([log.start, log.end]).toEqual([0, data.length]);
  expect(log.append(cut(300, 400)).lines).toEqual(log.lines);
});

test("a log that is very long keeps what is looked at, and lets the other end go", () => {
  const piece = `${"x".repeat(99)}\n`.repeat(10_000);
  let log = Log.at(0);
  for (let place = 0; place < 20; place += 1) log = log.append(page(piece, place * 1_000_000, 20_000_000));
  expect(log.end).toBe(20_000_000);
  expect(log.start).toBeGreaterThan(10_000_000);
  expect(log.start % 100).toBe(0);
  expect(log.lines.length).toBeLessThan(70_000);
  let back = log;
  for (let place = log.start / 1_000_000; place > 0; place -= 1) back = back.prepend(page(piece, (place - 1) * 1_000_000, 20_000_000));
  expect(back.start).toBe(0);
  expect(back.end).toBeLessThan(10_000_000);
  expect(back.end % 100).toBe(0);
});

test("a graph of very many needs is not drawn, unless its groups are folded", () => {
  const jobs = Array.from({ length: 480 }, (_, place) => job(`g${place % 3}/j${place}`, place < 40 ? [] : Array.from({ length: 40 }, (_, one) => one + (Math.floor(place / 40) - 1) * 40).map((one) => `g${one % 3}/j${one}`), `g${place % 3}`));
  expect(draw(jobs, new Set(), "LR")).toEqual({ nodes: [], edges: [], dense: 17_600 });
  expect(beginsFolded(jobs)).toBe(true);
  expect(draw(jobs, new Set(groupsOf(jobs)), "LR").nodes).toHaveLength(3);
});
