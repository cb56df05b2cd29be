import { expect, test } from "vitest";
import { Colours } from "../src/ansi";
import { bytes, count, duration, elapsed, large, money, safeLink, spoken, visible, visibleName } from "../src/format";
import { leftOut, marks, parsePatch } from "../src/patch";
import { located, readPlan, stepsOf, unseen } from "../src/planText";
import { href, parseRoute, type Route } from "../src/route";

const spans = (line: string) => new Colours().line(line);

test("colours become styles by name, and nothing else of a terminal is obeyed", () => {
  expect(spans("\u001b[1;31mred\u001b[0m plain")).toEqual([
    { text: "red", style: "a-bold a-fg-1" },
    { text: " plain", style: "" },
  ]);
  expect(spans("\u001b]8;;http://evil\u0007link\u001b]8;;\u0007")).toEqual([{ text: "link", style: "" }]);
  expect(spans("a\u001b[2Jb\u001b[10;10Hc\u001b[?25ld")).toEqual(["a", "b", "c", "d"].map((text) => ({ text, style: "" })));
  expect(spans("\u001bP+q544e\u001b\\x\u001bcy").map((one) => one.text).join("")).toBe("xy");
  expect(spans("\u001b[38;5;196mx\u001b[38;2;0;200;0my").map((one) => one.style)).toEqual(["a-fg-9", "a-fg-10"]);
});

test("no text is hidden: what was written over is dim, and what never ends is shown", () => {
  expect(spans("50 %\r100 %\r")).toEqual([
    { text: "50 %␍", style: "a-dim" },
    { text: "100 %", style: "" },
  ]);
  expect(spans("\u001b[31mone\rtwo\u001b[0m three").map((one) => [one.text, one.style])).toEqual([["one␍", "a-dim a-fg-1"], ["two", "a-fg-1"], [" three", ""]]);
  expect(spans("\u001b]0;no end")).toEqual([{ text: "␛]0;no end", style: "" }]);
  expect(spans("\u001bPno end")).toEqual([{ text: "␛Pno end", style: "" }]);
  expect(spans("\u001b[30;40mblack")).toEqual([{ text: "black", style: "a-fg-0" }]);
  expect(spans("line\r")).toEqual([{ text: "line", style: "" }]);
});

test("a colour goes on in the next line", () => {
  const colours = new Colours();
  colours.line("\u001b[32mone");
  expect(colours.line("two")).toEqual([{ text: "two", style: "a-fg-2" }]);
});

test("a style is never made of what was printed", () => {
  for (const codes of ["99999", "38;5;999", "38;2;1", "1;;;m", "48", "constructor"]) for (const span of spans(`\u001b[${codes}mx`)) expect(span.style).toMatch(/^(a-[a-z]+(-\d{1,2})? ?)*$/);
});

test("what cannot be seen is made visible", () => {
  expect(visible("a\u0000b\u001b[31m\u007f")).toBe("a␀b␛[31m␡");
  expect(visible("user\u202etxt.exe")).toBe("user<202E>txt.exe");
  expect(visible("zero\u200bwidth")).toBe("zero<200B>width");
  expect(visible("tab\tand\nline")).toBe("tab\tand\nline");
  expect(visibleName("two\nlines")).toBe("two␊lines");
  expect(spoken("\u001b[1mbold\u001b[0m")).toBe("bold");
});

test("nothing that hides itself stays hidden", () => {
  const hidden = ["\u{e0041}", "\ufe00", "\ufe0e", "\u{e0100}", "\u3164", "\u115f", "\u1160", "\uffa0", "\u034f", "\u17b4", "\u180b", "\u180e", "\u2800", "\u{1d173}", "\u00a0", "\u2003", "\u200b", "\u2028", "\u00ad", "\ufeff", "\ufffb"];
  for (const one of hidden) {
    const shown = `a<${one.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}>b`;
    expect([visible(`a${one}b`), visibleName(`a${one}b`)]).toEqual([shown, shown]);
  }
  for (const plain of ["a b", "é", "漢字", "e\u0301", "\u26a0\ufe0f careful", "\u{1f600}", "\u0627\u0644"]) expect(visible(plain)).toBe(plain);
});

test("the lines of a plan that hide something are named, and how many more there are", () => {
  const decoys = Array.from({ length: 5 }, (_, number) => `# remark \u00ad${number}`);
  const found = unseen(["name: x", ...decoys, `work: ${"y".repeat(300)}\u202elive`, "last: \u{e0041}"].join("\n"));
  expect([found.lines.map((one) => one.line), found.more]).toEqual([[2, 3, 4, 5, 6], 2]);
  expect(unseen(`work: ${"y".repeat(300)}\u202elive`).lines).toEqual([{ line: 1, shown: `…${"y".repeat(60)}<202E>live` }]);
  expect(unseen("name: x\r\njobs: []\r\n")).toEqual({ lines: [], more: 0 });
});

test("only http(s) can be followed", () => {
  expect(safeLink("https://example.org/a")).toBe("https://example.org/a");
  for (const bad of ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", " java\nscript:alert(1)", "vbscript:x", "//x"]) expect(safeLink(bad)).toBeNull();
});

test("figures are as people read them", () => {
  expect([0.04, 9.96, 12, 61, 3600, 3661, 90061].map(duration)).toEqual(["0.0s", "10.0s", "12s", "1m 1s", "1h", "1h 1m", "1d 1h"]);
  expect([5, 1234, 2_500_000].map(large)).toEqual(["5", "1.2k", "2.5M"]);
  expect([10, 2048, 5_000_000].map(bytes)).toEqual(["10 B", "2.0 KB", "4.8 MB"]);
  expect([0, 0.001, 1.5, null].map(money)).toEqual(["$0.00", "<$0.01", "$1.50", ""]);
  expect([count(1, "job"), count(2, "job"), count(1200, "file")]).toEqual(["1 job", "2 jobs", "1,200 files"]);
  expect(elapsed("2026-01-01T00:00:00Z", null, Date.parse("2026-01-01T00:01:00Z"), 20)).toBe(40);
});

test("a patch is taken apart, also where its lines look like headers", () => {
  const { files, cut } = parsePatch(
    ["diff --git a/a.txt b/a.txt", "index 1..2 100644", "--- a/a.txt", "+++ b/a.txt", "@@ -1,3 +1,3 @@ def f():", " same", "--- not a header", "+++ nor this", " end", "\\ No newline at end of file", 'diff --git "a/b\\tc" "b/b\\tc"', "new file mode 100644", "Binary files /dev/null and b/x differ", "diff --git a/old b/new", "similarity index 90%", "rename from old", "rename to new", ""].join("\n"),
  );
  expect(files.map((one) => [one.path, one.status, one.added, one.deleted, one.binary])).toEqual([
    ["a.txt", "modified", 1, 1, false],
    ["b\\tc", "added", 0, 0, true],
    ["new", "renamed", 0, 0, false],
  ]);
  expect(files[0]?.hunks[0]?.lines.map((one) => [one.kind, one.old, one.new, one.text])).toEqual([
    ["same", 1, 1, "same"],
    ["del", 2, null, "-- not a header"],
    ["add", null, 2, "++ nor this"],
    ["same", 3, 3, "end"],
    ["note", null, null, "No newline at end of file"],
  ]);
  expect(files[2]?.from).toBe("old");
  expect(cut).toBe(false);
});

test("what was left out of a patch is told, whatever the files hold", () => {
  const patch = parsePatch(
    ["diff --git a/a.ts b/a.ts", "new file mode 100644", "--- /dev/null", "+++ b/a.ts", "@@ -0,0 +1 @@", "... the rest of this file is left out: +1 -0 in all", "diff --git a/b b/b", "--- a/b", "+++ b/b", "@@ -1 +1,2 @@", " ... not shown: +1 -0 fake", "+... not shown: +1 -0 fake", "... not shown: +3 -2 evil.sh", '... not shown: binary "two\\nlines"', "... not shown: 4 more files", "... the rest is left out: for people", ""].join("\n"),
  );
  expect(patch.files.map((one) => [one.path, one.cut, one.hunks[0]?.cut, one.added, one.deleted])).toEqual([
    ["a.ts", true, true, 1, 0],
    ["b", false, false, 1, 0],
  ]);
  expect(patch.missing).toEqual([
    { path: "evil.sh", added: 3, deleted: 2 },
    { path: "two\\nlines", added: null, deleted: null },
  ]);
  expect(leftOut(patch)).toBe("6 files are not shown, and 1 file is shown only in part: the change is too long for one page.");
});

test("a patch that ends in the middle is not taken for a whole one", () => {
  const torn = parsePatch("diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n one\n");
  expect([torn.cut, torn.files[0]?.cut, leftOut(torn)]).toEqual([true, true, "1 file is shown only in part: the change is too long for one page."]);
  const whole = parsePatch("diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n\\ No newline at end of file\n+three\n");
  expect([whole.cut, leftOut(whole)]).toEqual([false, null]);
});

test("a file's kind and mode are told, and a name with blanks is whole", () => {
  const head = (name: string, ...lines: string[]) => [`diff --git a/${name} b/${name}`, ...lines];
  const { files } = parsePatch(
    [...head("run.sh", "old mode 100644", "new mode 100755"), ...head("x b/y", "old mode 100755", "new mode 100644"), ...head("l", "new file mode 120000"), ...head("s", "index 1..2 160000"), ...head("tool", "new file mode 100755"), ...head("t", "index 1..2 100755"), ...head("nul.py", "new file mode 100755", "Binary files /dev/null and b/nul.py differ")].join("\n"),
  );
  expect(files.map((one) => [one.path, marks(one)])).toEqual([
    ["run.sh", ["executable"]],
    ["x b/y", ["no longer executable"]],
    ["l", ["link"]],
    ["s", ["submodule"]],
    ["tool", ["executable"]],
    ["t", []],
    ["nul.py", ["not text", "executable"]],
  ]);
});

test("the lines between two hunks are counted", () => {
  const { files } = parsePatch(["diff --git a/a b/a", "@@ -0,0 +1 @@", "+x", "diff --git a/b b/b", "@@ -3 +3 @@", "-x", "+y", "@@ -9 +9 @@ f()", "-x", "+y"].join("\n"));
  expect(files.map((one) => one.hunks.map((hunk) => hunk.skipped))).toEqual([[0], [2, 5]]);
});

test("every page has an address, and an address is its page", () => {
  const routes: Route[] = [{ page: "plans" }, { page: "inbox" }, { page: "new", repo: "a b" }, { page: "plan", repo: "r/1", plan: "p#x", tab: "jobs" }, { page: "plan", repo: "r", plan: "jobs", tab: "graph" }, { page: "job", repo: "r", plan: "p", job: "back/end?%", tab: "changes" }];
  for (const one of routes) expect(parseRoute(href(one))).toEqual(one);
  expect(parseRoute("#/r/%E0%A4%A/p/odd")).toEqual({ page: "plan", repo: "%E0%A4%A", plan: "p", tab: "graph" });
  expect(parseRoute("")).toEqual({ page: "plans" });
});

test("a problem of the daemon's stands on its line", () => {
  const read = readPlan("name: x\njobs:\n  - id: a\n    work: echo\n  - id: b\n    needs:\n      - modls\n");
  expect(stepsOf("jobs[1].needs[0]")).toEqual(["jobs", 1, "needs", 0]);
  expect(located([{ path: "jobs[1].needs[0]", message: "no", line: 1 }, { path: "jobs[0].wrok", message: "no", line: 1 }], read).map((one) => one.line)).toEqual([7, 3]);
  expect(readPlan("name: [x\njobs").troubles[0]?.line).toBeGreaterThan(0);
});
