// What the agents of a plan used: by model, by job, by phase.
import type { Plan } from "../deltas";
import { ask } from "../api";
import type { UsageSum } from "../generated/api";
import { duration, large, money, visibleName } from "../format";
import { Empty, Failed, Loading } from "../parts/bits";
import { useAsked } from "../state";

export function UsageTab({ repo, plan }: { repo: string; plan: Plan }) {
  const { value, error } = useAsked(() => ask("getUsage", { repo, plan: plan.plan.id }), [repo, plan.plan.id, plan.seq]);
  if (error !== undefined && !value) return <Failed error={error} />;
  if (!value) return <Loading />;
  if (value.total.turns === 0)
    return (
      <Empty title="No agent has worked yet">
        <p>Tokens, cost and time of agents appear here, by model and by job.</p>
      </Empty>
    );
  return (
    <div className="stack" style={{ gap: 18 }}>
      {Object.entries(value.by).map(([by, sums]) => (
        <section key={by} className="card scroll">
          <table className="list">
            <thead>
              <tr>
                <th>By {by}</th>
                <th className="num">Turns</th>
                <th className="num">Input</th>
                <th className="num">Cached</th>
                <th className="num">Output</th>
                <th className="num">Time</th>
                <th className="num">Cost</th>
              </tr>
            </thead>
            <tbody>
              {Object.entries(sums).map(([name, sum]) => (
                <Row key={name} name={name} sum={sum} />
              ))}
              <Row name="all" sum={value.total} />
            </tbody>
          </table>
        </section>
      ))}
    </div>
  );
}

function Row({ name, sum }: { name: string; sum: UsageSum }) {
  return (
    <tr>
      <td className="words">
        <b>{visibleName(name)}</b>
      </td>
      <td className="num">{sum.turns}</td>
      <td className="num">{large(sum.input)}</td>
      <td className="num">{large(sum.cached)}</td>
      <td className="num">{large(sum.output)}</td>
      <td className="num">{duration(sum.session_seconds)}</td>
      <td className="num">
        {money(sum.cost)}
        {sum.cost_complete ? "" : "+"}
      </td>
    </tr>
  );
}
