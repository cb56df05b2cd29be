// The graph of a plan that is still being written.
import { Background, Handle, Position, ReactFlow, type Node, type NodeProps } from "@xyflow/react";
import type { Drawing } from "../graph";
import { count, visibleName } from "../format";
import { Empty } from "../parts/bits";

type Label = Node<{ label: string }>;

export default function Preview({ drawing, jobs }: { drawing: Drawing; jobs: number }) {
  if (drawing.dense !== undefined)
    return (
      <Empty title="The graph is too dense to draw">
        <p>
          {count(jobs, "job")}, {count(drawing.dense, "need")}
        </p>
      </Empty>
    );
  if (drawing.nodes.length === 0)
    return (
      <Empty title="The graph appears here">
        <p>as soon as the plan has a job.</p>
      </Empty>
    );
  const nodes = drawing.nodes.map((one): Label => ({ id: one.id, position: { x: one.x, y: one.y }, width: one.width, height: one.height, type: one.kind === "box" ? "box" : "job", zIndex: one.kind === "box" ? -1 : 0, draggable: false, data: { label: visibleName(one.id.slice(one.id.indexOf(":") + 1).split("/").at(-1) ?? "") } }));
  const edges = drawing.edges.map((edge) => ({ id: edge.id, source: edge.from, target: edge.to }));
  return (
    <div className="card graph" style={{ height: "auto", minHeight: 300 }}>
      <ReactFlow key={nodes.map((one) => one.id).join()} nodes={nodes} edges={edges} nodeTypes={TYPES} fitView fitViewOptions={{ padding: 0.15, maxZoom: 1 }} nodesDraggable={false} nodesConnectable={false} nodesFocusable={false} edgesFocusable={false} elementsSelectable={false} proOptions={{ hideAttribution: true }} aria-label="A preview of the graph">
        <Background gap={22} color="var(--line)" />
      </ReactFlow>
    </div>
  );
}

function JobNode({ data }: NodeProps<Label>) {
  return (
    <div className="node quiet">
      <Handle className="quiet" type="target" position={Position.Left} isConnectable={false} />
      <Handle className="quiet" type="source" position={Position.Right} isConnectable={false} />
      <span className="title cut">{data.label}</span>
    </div>
  );
}

function BoxNode({ data }: NodeProps<Label>) {
  return (
    <div className="box">
      <div className="pad small soft">{data.label}</div>
    </div>
  );
}

const TYPES = { job: JobNode, box: BoxNode };
