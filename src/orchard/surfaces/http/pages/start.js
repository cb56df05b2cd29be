// Lists the plans of every repository that is served here. Text is only ever set as text.
"use strict";

const SHOWN = 50;
const SESSION = "orchard-session";

// The code of the link becomes a session, which only pages of this very port can read: a cookie would go to every port.
async function enter() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return;
  history.replaceState(null, "", location.pathname);
  const answer = await fetch("/session", { method: "POST", headers: { "x-orchard-code": code } });
  const found = await answer.json();
  if (answer.ok) sessionStorage.setItem(SESSION, found.session);
  else if (!sessionStorage.getItem(SESSION)) throw new Error(`${found.detail} ${found.hint || ""}`);
}

async function ask(path) {
  const authorization = `Bearer ${sessionStorage.getItem(SESSION) || ""}`;
  const answer = await fetch(path, { headers: { accept: "application/json", authorization } });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.detail || answer.statusText);
  return found;
}

function element(name, text) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return made;
}

function row(name, values) {
  const made = element("tr");
  for (const value of values) made.append(element(name, value));
  return made;
}

function done(counts) {
  return `${counts.succeeded || 0} of ${counts.total}`;
}

async function show(repository) {
  const part = element("section");
  part.append(element("h2", repository.name));
  const found = await ask(`/api/v1/plans?limit=${SHOWN}&repo=${encodeURIComponent(repository.id)}`);
  const plans = found.plans;
  if (plans.length === 0) {
    part.append(element("p", "There is no plan yet."));
  } else {
    const table = element("table");
    table.append(row("th", ["plan", "name", "status", "jobs done", "created"]));
    for (const plan of plans) {
      table.append(row("td", [plan.id, plan.name, plan.status, done(plan.counts), plan.created_at || ""]));
    }
    part.append(table);
  }
  return part;
}

async function start() {
  const said = document.getElementById("said");
  try {
    await enter();
    const found = await ask("/api/v1/repos");
    const repositories = found.repos;
    const parts = await Promise.all(repositories.map(show));
    document.getElementById("repositories").replaceChildren(...parts);
    said.textContent = "";
  } catch (error) {
    said.textContent = error.message;
  }
}

addEventListener("hashchange", start);
start();
