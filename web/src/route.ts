// Where in the dashboard one is: what stands behind the '#', so that every page has an address of its own.

export const TABS = ["graph", "jobs", "timeline", "changes", "usage", "events"] as const;
export type Tab = (typeof TABS)[number];
export const JOB_TABS = ["log", "attempts", "changes", "talk", "details"] as const;
export type JobTab = (typeof JOB_TABS)[number];

export type Route =
  | { page: "plans" }
  | { page: "new"; repo?: string }
  | { page: "plan"; repo: string; plan: string; tab: Tab }
  | { page: "job"; repo: string; plan: string; job: string; tab: JobTab }
  | { page: "inbox" }
  | { page: "workers" }
  | { page: "system" };

export function parseRoute(hash: string): Route {
  const path = hash.replace(/^#?\/?/, "").split("?")[0] ?? "";
  const parts = path.split("/").map(decoded);
  const [first, repo, plan, word, job, last] = parts;
  if (first === "r" && repo && plan) {
    if (word === "jobs" && job) return { page: "job", repo, plan, job, tab: oneOf(JOB_TABS, last) };
    return { page: "plan", repo, plan, tab: oneOf(TABS, word) };
  }
  if (first === "inbox" || first === "workers" || first === "system") return { page: first };
  if (first === "new") return repo ? { page: "new", repo } : { page: "new" };
  return { page: "plans" };
}

export function href(route: Route): string {
  const part = encodeURIComponent;
  switch (route.page) {
    case "plans":
      return "#/";
    case "new":
      return route.repo ? `#/new/${part(route.repo)}` : "#/new";
    case "plan":
      return `#/r/${part(route.repo)}/${part(route.plan)}${route.tab === "graph" ? "" : `/${route.tab}`}`;
    case "job":
      return `#/r/${part(route.repo)}/${part(route.plan)}/jobs/${part(route.job)}${route.tab === "log" ? "" : `/${route.tab}`}`;
    default:
      return `#/${route.page}`;
  }
}

function oneOf<T extends string>(known: readonly T[], given: string | undefined): T {
  return known.find((one) => one === given) ?? (known[0] as T);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
