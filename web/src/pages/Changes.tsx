// What a plan changes: file by file, and which job brought how much.
import { text } from "../api";
import { jobsOf, type Plan } from "../deltas";
import { count, short, visibleName } from "../format";
import { Empty, Failed, Loading } from "../parts/bits";
import { Diff } from "../parts/Diff";
import { written } from "../parts/status";
import { useAsked } from "../state";
import { href } from "../route";

export function ChangesTab({ repo, plan }: { repo: string; plan: Plan }) {
  const commit = plan.plan.result?.commit;
  const { value, error } = useAsked(async () => (commit ? text("getPlanDiff", { repo, plan: plan.plan.id }) : ""), [repo, plan.plan.id, commit]);
  const jobs = jobsOf(plan).filter((job) => job.commit && (job.summary.commits ?? 0) > 0);
  return (
    <div className="stack" style={{ gap: 18 }}>
      {jobs.length > 0 && (
        <section className="card scroll">
          <table className="list">
            <thead>
              <tr>
                <th>Job</th>
                <th>Commit</th>
                <th className="num">Commits</th>
                <th className="num">Files</th>
                <th className="num">Lines</th>
              </tr>
            </thead>
            <tbody>
              {jobs.map((job) => (
                <tr key={job.id}>
                  <td>
                    <a className="link words" href={href({ page: "job", repo, plan: plan.plan.id, job: job.id, tab: "changes" })}>
                      {visibleName(job.name)}
                    </a>
                  </td>
                  <td className="mono">{short(job.commit)}</td>
                  <td className="num">{job.summary.commits}</td>
                  <td className="num">{(job.summary.added ?? 0) + (job.summary.modified ?? 0) + (job.summary.deleted ?? 0)}</td>
                  <td className="num">
                    <span className="plus">+{job.summary.lines_added ?? 0}</span> <span className="minus">−{job.summary.lines_deleted ?? 0}</span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      {!commit ? (
        <Empty title={jobs.length > 0 ? "Nothing is merged yet" : "Nothing has changed yet"}>
          <p>The merged result of all jobs appears here when the last of them is done: {count(written(plan.plan)["succeeded"] ?? 0, "job")} so far.</p>
        </Empty>
      ) : error !== undefined ? (
        <Failed error={error} />
      ) : value === undefined ? (
        <Loading />
      ) : (
        <Diff patch={value} command={`orchard diff --plan ${plan.plan.id}`} />
      )}
    </div>
  );
}

