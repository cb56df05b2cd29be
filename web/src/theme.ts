// Light, dark, or as the system says; remembered in this browser.

export type Theme = "system" | "light" | "dark";
const THEMES: readonly Theme[] = ["system", "light", "dark"];
const KEPT = "orchard-theme";

export function theme(): Theme {
  return THEMES.find((one) => one === localStorage.getItem(KEPT)) ?? "system";
}

export function nextTheme(): Theme {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length] ?? "system";
  localStorage.setItem(KEPT, next);
  apply();
  return next;
}

export function apply(): void {
  const now = theme();
  if (now === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = now;
}

apply();
