// The graph of a plan: live, with groups that fold, and the way that takes longest.
import { Background, Controls, Handle, MiniMap, Position, ReactFlow, useReactFlow, useStore, type Edge, type Node, type NodeProps } from "@xyflow/react";
import { memo, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { jobsOf, type Plan } from "../deltas";
import { beginsFolded, criticalPath, draw, groupsOf, pathsOf } from "../graph";
import type { JobStatus, JobView } from "../generated/api";
import { count, duration, elapsed, phaseWords, visibleName } from "../format";
import { Banner } from "../parts/bits";
import { Icon } from "../parts/icons";
import { StatusIcon, jobTone, statusTone, type Tone } from "../parts/status";
import { href } from "../route";
import { useNow } from "../state";
import { jobWord, waitWords } from "../waits";
import { JobsTab } from "./Jobs";

const COLOURS: Record<Tone, string> = { ok: "var(--ok)", run: "var(--run)", bad: "var(--bad)", wait: "var(--wait)", ask: "var(--ask)", off: "var(--line-strong)" };

const FIT = { padding: 0.12, maxZoom: 1.05, minZoom: 0.35 };
const MANY = 300; // jobs; with more, their times are as of the last change, and not of each second

interface Data extends Record<string, unknown> {
  tone: Tone;
  status: string;
  label: string;
  sub: string;
  address?: string;
  vertical: boolean;
  toggle?: (group: string) => void;
  group?: string;
  folded?: boolean;
  waitsFor?: string;
}

export default function Graph({ repo, plan }: { repo: string; plan: Plan }) {
  const jobs = useMemo(() => jobsOf(plan), [plan]);
  const [direction, setDirection] = useState<"LR" | "TB">(innerWidth < 820 ? "TB" : "LR");
  const [critical, setCritical] = useState(false);
  const groups = useMemo(() => groupsOf(jobs), [jobs]);
  const [folded, setFolded] = useState<ReadonlySet<string>>(() => new Set(beginsFolded(jobs) ? groups : []));
  const now = useNow(jobs.length < MANY && jobs.some((job) => job.status === "running"));
  // Where things are depends on the shape alone; what they show is put in afterwards.
  const shape = jobs.map((job) => `${job.id}<${job.needs.join(",")}|${job.group ?? ""}`).join("\n");
  const drawing = useMemo(() => draw(jobs, folded, direction), [shape, folded, direction]);
  const path = useMemo(() => (critical ? criticalPath(jobs) : new Set<string>()), [critical, jobs]);
  // The same for as long as the page is: a node that is kept would hold on to everything that its drawing knew.
  const toggle = useCallback((group: string) => setFolded((now) => toggled(now, group)), []);
  const moved = useRef(false);
  const vertical = direction === "TB";
  const tallies = useMemo(() => tallied(jobs), [jobs]);
  const kept = useRef({ nodes: new Map<string, Node<Data>>(), edges: new Map<string, Edge>() });
  const before = kept.current;
  const nodes = drawing.nodes.map((one): Node<Data> => {
    const now = node(one);
    const then = before.nodes.get(one.id);
    return then && sameNode(then, now) ? then : now;
  });
  function node(one: (typeof drawing.nodes)[number]): Node<Data> {
    const base = { id: one.id, position: { x: one.x, y: one.y }, width: one.width, height: one.height, draggable: false, selectable: false, focusable: false };
    const name = one.id.slice(one.id.indexOf(":") + 1);
    if (one.kind === "job") return { ...base, type: "job", data: jobData(repo, plan, name, now, vertical), ...(path.has(name) ? { className: "critical" } : {}) };
    const status: JobStatus = plan.plan.groups?.[name] ?? "pending";
    const { all, done } = tallies.get(name) ?? { all: 0, done: 0 };
    const data: Data = { tone: statusTone(status), status, label: visibleName(name.split("/").at(-1) ?? name), sub: `${done} of ${count(all, "job")}`, vertical, toggle, group: name, folded: one.kind === "folded" };
    return { ...base, type: one.kind === "folded" ? "folded" : "box", data, zIndex: one.kind === "box" ? -1 : 0 };
  }
  const tones = new Map(nodes.map((node) => [node.id, node.data.tone]));
  const edges = drawing.edges.map((edge): Edge => {
    const [from, to] = [tones.get(edge.from), tones.get(edge.to)];
    const style = from === "bad" ? "e-bad" : to === "run" ? "e-run" : from === "ok" ? "e-ok" : "";
    const onPath = path.has(edge.from.slice(4)) && path.has(edge.to.slice(4));
    const className = `${style} ${onPath ? "e-critical" : ""}`;
    const then = before.edges.get(edge.id);
    if (then?.className === className && then.animated === (to === "run") && then.source === edge.from && then.target === edge.to) return then;
    return { id: edge.id, source: edge.from, target: edge.to, className, animated: to === "run", focusable: false, selectable: false };
  });
  useEffect(() => {
    kept.current = { nodes: new Map(nodes.map((one) => [one.id, one])), edges: new Map(edges.map((one) => [one.id, one])) };
  });
  if (drawing.dense !== undefined)
    return (
      <div className="stack">
        <Banner tone="wait" actions={groups.length > 0 && folded.size === 0 && <button className="button tiny" onClick={() => setFolded(new Set(groups))}>Fold groups</button>}>
          The graph is too dense to draw: {count(jobs.length, "job")}, {count(drawing.dense, "need")}. These are its jobs:
        </Banner>
        <JobsTab repo={repo} plan={plan} />
      </div>
    );
  return (
    <div className="card graph">
      <div className="legend">
        {groups.length > 0 && (
          <button className="button tiny" onClick={() => setFolded(new Set(folded.size > 0 ? [] : groups))}>
            {folded.size > 0 ? "Unfold groups" : "Fold groups"}
          </button>
        )}
        <button className="button tiny" aria-pressed={critical} onClick={() => setCritical(!critical)}>
          {critical ? "Hide" : "Show"} critical path
        </button>
        <button className="button tiny wide" onClick={() => setDirection(vertical ? "LR" : "TB")}>
          {vertical ? "Left to right" : "Top to bottom"}
        </button>
      </div>
      <ReactFlow key={`${direction} ${folded.size}`} nodes={nodes} edges={edges} nodeTypes={TYPES} fitView fitViewOptions={FIT} onMoveStart={(event) => (moved.current ||= event !== null)} minZoom={0.05} maxZoom={1.6} nodesDraggable={false} nodesConnectable={false} elementsSelectable={false} onlyRenderVisibleElements={nodes.length > 80} proOptions={{ hideAttribution: true }} panOnScroll={false} zoomOnDoubleClick={false} preventScrolling aria-label="The graph of the plan">
        <Background gap={22} color="var(--line)" />
        <Controls showInteractive={false} />
        <Fitted moved={moved} />
        {nodes.length > 40 && <MiniMap className="wide" pannable zoomable nodeColor={(node) => COLOURS[(node.data as Data).tone]} />}
      </ReactFlow>
    </div>
  );
}

/** Whether nothing is drawn anew for a node: what is the same stays the same object, for most of a large graph does. */
function sameNode(one: Node<Data>, other: Node<Data>): boolean {
  const [data, now] = [one.data, other.data];
  if (one.position.x !== other.position.x || one.position.y !== other.position.y || one.width !== other.width || one.height !== other.height || one.type !== other.type || one.className !== other.className) return false;
  return (["tone", "status", "label", "sub", "address", "vertical", "folded"] as const).every((name) => data[name] === now[name]);
}

function toggled(folded: ReadonlySet<string>, group: string): ReadonlySet<string> {
  const next = new Set(folded);
  if (!next.delete(group)) next.add(group);
  return next;
}

/** How many jobs are in each group and those below it, and how many of them are done. */
function tallied(jobs: readonly JobView[]): ReadonlyMap<string, { all: number; done: number }> {
  const found = new Map<string, { all: number; done: number }>();
  for (const job of jobs)
    for (const group of pathsOf(job.group)) {
      const one = found.get(group) ?? { all: 0, done: 0 };
      found.set(group, { all: one.all + 1, done: one.done + Number(job.status === "succeeded") });
    }
  return found;
}

/** The whole graph is seen in a window of another size too, unless a person has moved it. */
function Fitted({ moved }: { moved: { current: boolean } }) {
  const { fitView } = useReactFlow();
  const size = useStore((state) => `${state.width} ${state.height}`);
  useEffect(() => {
    if (!moved.current) void fitView(FIT);
  }, [size]);
  return null;
}

function jobData(repo: string, plan: Plan, id: string, now: number, vertical: boolean): Data {
  const job = plan.jobs.get(id);
  if (!job) return { tone: "off", status: "pending", label: id, sub: "", vertical };
  return { tone: jobTone(job), status: job.status, label: visibleName(job.validation ? "verify and land" : job.name), sub: subtitle(job, plan, now), vertical, address: href({ page: "job", repo, plan: plan.plan.id, job: id, tab: "log" }) };
}

function subtitle(job: JobView, plan: Plan, now: number): string {
  const took = elapsed(job.started_at, job.ended_at, now, job.idle_seconds);
  const time = took === null ? "" : duration(took);
  if (job.waiting) return "waits for you";
  if (job.status === "running") return [job.agent?.name, job.phase && phaseWords(job.phase), time].filter(Boolean).join(" · ");
  if (job.status === "pending" || job.status === "ready") return waitWords(job, plan);
  if (job.status === "blocked") return `blocked by ${jobWord(job.needs.find((need) => ["failed", "canceled", "blocked"].includes(plan.jobs.get(need)?.status ?? "")) ?? "what it needs")}`;
  if (job.status === "failed") return [job.failed_phase ? `failed in ${phaseWords(job.failed_phase)}` : "failed", time].filter(Boolean).join(" · ");
  const { lines_added: added = 0, lines_deleted: deleted = 0 } = job.summary;
  return [job.status === "succeeded" ? "" : job.status, time, added || deleted ? `+${added} −${deleted}` : "", job.healed.length > 0 ? "healed" : "", job.attempts > 1 ? `attempt ${job.attempts}` : ""].filter(Boolean).join(" · ");
}

function Ends({ vertical }: { vertical: boolean }) {
  return (
    <>
      <Handle className="quiet" type="target" position={vertical ? Position.Top : Position.Left} isConnectable={false} />
      <Handle className="quiet" type="source" position={vertical ? Position.Bottom : Position.Right} isConnectable={false} />
    </>
  );
}

const JobNode = memo(({ data }: NodeProps<Node<Data>>) => (
  <a className={`node n-${data.tone} nopan ${data.tone === "off" ? "quiet" : ""}`} href={data.address} title={`${data.label}: ${data.status}${data.sub ? `, ${data.sub}` : ""}`}>
    <Ends vertical={data.vertical} />
    <span className="title cut">{data.label}</span>
    <span className={`sub t-${data.tone}`}>
      <StatusIcon tone={data.tone} status={data.status} size={13} />
      <span className="cut">{data.sub || data.status}</span>
    </span>
  </a>
));

const FoldedNode = memo(({ data }: NodeProps<Node<Data>>) => (
  <button className={`node folded nopan n-${data.tone}`} onClick={() => data.toggle?.(data.group ?? "")} style={{ textAlign: "left" }} aria-expanded="false">
    <Ends vertical={data.vertical} />
    <span className="title cut row">
      <Icon shape="unfold" size={13} />
      {data.label}
    </span>
    <span className={`sub t-${data.tone}`}>
      <StatusIcon tone={data.tone} status={data.status} size={13} />
      {data.sub}
    </span>
  </button>
));

const BoxNode = memo(({ data }: NodeProps<Node<Data>>) => (
  <div className="box">
    <button className="nopan" onClick={() => data.toggle?.(data.group ?? "")} aria-expanded="true" title="Fold this group">
      <Icon shape="fold" size={13} />
      <span className="cut">{data.label}</span>
      <span className={`t-${data.tone} small`}>{data.sub}</span>
    </button>
  </div>
));

const TYPES = { job: JobNode, folded: FoldedNode, box: BoxNode };
