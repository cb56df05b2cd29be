// The frame around every page: where one can go, whether the daemon answers, and the keys that work everywhere.
import { Suspense, lazy, useEffect, useMemo, useState, useSyncExternalStore, type ReactNode } from "react";
import { duration } from "./format";
import { Guard, Command, Empty, Loading } from "./parts/bits";
import { Icon, Logo } from "./parts/icons";
import { Overlay } from "./parts/overlay";
import { Palette } from "./parts/Palette";
import { InboxPage } from "./pages/Inbox";
import { JobPage } from "./pages/Job";
import { PlanPage } from "./pages/Plan";
import { PlansPage } from "./pages/Plans";
import { SystemPage } from "./pages/System";
import { WorkersPage } from "./pages/Workers";
import { href, parseRoute, type Route } from "./route";
import { useClock, useStore } from "./state";
import { nextTheme, theme } from "./theme";

const NewPlanPage = lazy(() => import("./pages/NewPlan").then((page) => ({ default: page.NewPlanPage })));

const PLACES: { page: "plans" | "inbox" | "workers" | "system"; label: string; key: string }[] = [
  { page: "plans", label: "Plans", key: "p" },
  { page: "inbox", label: "Inbox", key: "i" },
  { page: "workers", label: "Workers", key: "w" },
  { page: "system", label: "System", key: "s" },
];

export function useRoute(): Route {
  const hash = useSyncExternalStore(
    (listener) => {
      addEventListener("hashchange", listener);
      return () => removeEventListener("hashchange", listener);
    },
    () => location.hash,
  );
  return useMemo(() => parseRoute(hash), [hash]);
}

export function App() {
  const route = useRoute();
  const [palette, setPalette] = useState(false);
  useKeys(() => setPalette(true));
  const waiting = useStore((state) => state.waiting.length);
  useEffect(() => {
    document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${title(route)} · Orchard`;
  }, [route, waiting]);
  return (
    <div className="frame">
      <nav className="side" aria-label="Pages">
        <a className="brand" href={href({ page: "plans" })}>
          <Logo />
          Orchard
        </a>
        {PLACES.map((one) => (
          <a key={one.page} className="item" href={href({ page: one.page })} aria-current={isIn(route, one.page) ? "page" : undefined} title={`${one.label} (g then ${one.key})`}>
            <Icon shape={one.page} />
            {one.label}
            {one.page === "inbox" && waiting > 0 && <span className="pill">{waiting}</span>}
          </a>
        ))}
        <div className="bottom">
          <button className="item" onClick={() => setPalette(true)}>
            <Icon shape="search" />
            Go to … <span className="kbd wide" style={{ marginLeft: "auto" }}>Ctrl K</span>
          </button>
          <ThemeButton />
        </div>
      </nav>
      <main className="main">
        <Connected>
          <Guard key={[route.page, "plan" in route ? route.plan : "", "job" in route ? route.job : ""].join(" ")}>
            <Suspense fallback={<Loading />}>
              <Page route={route} />
            </Suspense>
          </Guard>
        </Connected>
      </main>
      {palette && <Palette close={() => setPalette(false)} />}
      <Overlay />
    </div>
  );
}

function Page({ route }: { route: Route }) {
  switch (route.page) {
    case "plans":
      return <PlansPage />;
    case "new":
      return <NewPlanPage repo={route.repo} />;
    case "plan":
      return <PlanPage {...route} />;
    case "job":
      return <JobPage {...route} />;
    case "inbox":
      return <InboxPage />;
    case "workers":
      return <WorkersPage />;
    case "system":
      return <SystemPage />;
  }
}

/** The page, if the daemon knows this session; and a line over it while the daemon does not answer. */
function Connected({ children }: { children: ReactNode }) {
  const connection = useStore((state) => state.connection);
  const known = useStore((state) => state.repos.length > 0);
  const now = useClock(connection.is === "away");
  if (connection.is === "locked") {
    return (
      <Empty title="This tab needs a new link">
        <p>{connection.detail} A link works once, and a session ends with the daemon. Run this in the repository, and open the link that it prints:</p>
        <Command>orchard serve</Command>
      </Empty>
    );
  }
  if (connection.is === "away" && !known) {
    return (
      <Empty title="The daemon does not answer">
        <p>This page comes back by itself when it does. To start it:</p>
        <Command>orchard serve</Command>
      </Empty>
    );
  }
  if (!known) return <Loading />;
  return (
    <>
      {connection.is === "away" && (
        <div className="banner t-wait" role="status" style={{ borderRadius: 0, borderWidth: "0 0 1px" }}>
          <Icon shape="wait" />
          <span className="said grow">
            The daemon has not answered for {duration(Math.max(1, (now - connection.since) / 1000))}. This page shows what was last known and catches up by itself; if the daemon ended, run <code>orchard serve</code>.
          </span>
        </div>
      )}
      {children}
    </>
  );
}

function ThemeButton() {
  const [now, setNow] = useState(theme);
  return (
    <button className="item" onClick={() => setNow(nextTheme())} aria-label={`Theme: ${now}`} title="Light, dark, or as the system says">
      <Icon shape="sun" />
      <span>
        <span className="wide">Theme: </span>
        {now}
      </span>
    </button>
  );
}

/** `g` and a letter goes to a page, `?` and Ctrl-K open the list of everything. */
function useKeys(openPalette: () => void): void {
  useEffect(() => {
    let going = 0;
    const key = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        openPalette();
        return;
      }
      const target = event.target as HTMLElement | null;
      if (event.ctrlKey || event.metaKey || event.altKey || target?.closest("input, textarea, select, [role=dialog]")) return;
      const place = PLACES.find((one) => one.key === event.key);
      if (Date.now() - going < 1500 && place) location.hash = href({ page: place.page });
      going = event.key === "g" ? Date.now() : 0;
      if (event.key === "?" || event.key === "/") {
        const search = document.querySelector<HTMLInputElement>("main input[type=search]");
        event.preventDefault();
        if (event.key === "/" && search) search.focus();
        else openPalette();
      }
      if (event.key === "n") location.hash = href({ page: "new" });
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, [openPalette]);
}

function isIn(route: Route, page: string): boolean {
  return route.page === page || (page === "plans" && ["plan", "job", "new"].includes(route.page));
}

function title(route: Route): string {
  if (route.page === "plan") return route.plan;
  if (route.page === "job") return route.job;
  return route.page === "new" ? "New plan" : (PLACES.find((one) => one.page === route.page)?.label ?? "Plans");
}
