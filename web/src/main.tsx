// The beginning: a session for the code of the link, and the page.
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { enter } from "./api";
import { notifies, notify } from "./notify";
import { store } from "./state";
import "@xyflow/react/dist/base.css";
import "./style.css";

const HIDDEN_FOR = 20_000;

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

// A page that is not looked at holds no connection: a browser has six to one host, for all of its tabs.
let leaving: ReturnType<typeof setTimeout> | undefined;
let away = false;
document.addEventListener("visibilitychange", () => {
  clearTimeout(leaving);
  if (document.hidden) {
    leaving = setTimeout(() => {
      if (notifies()) return;
      away = true;
      store.stop();
    }, HIDDEN_FOR);
  } else if (away) {
    away = false;
    store.start();
  }
});
