// The beginning: a session for the code of the link, and the page.
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { enter } from "./api";
import { whenAway } from "./away";
import { notifies, notify } from "./notify";
import { store } from "./state";
import "@xyflow/react/dist/base.css";
import "./style.css";

const root = document.getElementById("page");
if (root) createRoot(root).render(<App />);

enter().then(
  () => store.start(),
  (error: unknown) => store.failed(error),
);

// A new link in a tab that is open already is only another '#' to the browser: the page begins anew, where it was.
addEventListener("hashchange", (event) => {
  if (!location.hash.startsWith("#code=")) return;
  const before = new URL(event.oldURL).hash.slice(1);
  enter(before.startsWith("/") ? before : "/").then(
    () => location.reload(),
    (error: unknown) => store.failed(error),
  );
});

let waiting = store.state.waiting;
store.subscribe(() => {
  const now = store.state.waiting;
  if (now === waiting) return;
  if (store.state.connection.is === "live" && document.hidden) notify(waiting, now);
  waiting = now;
});

whenAway(
  () => {
    if (notifies()) return false;
    store.stop();
    return true;
  },
  () => store.start(),
);
