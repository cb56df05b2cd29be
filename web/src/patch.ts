// A patch as git prints it, taken apart: files, hunks, and lines with their numbers.
import { visibleName } from "./format";

export interface Line {
  kind: "add" | "del" | "same" | "note";
  old: number | null;
  new: number | null;
  text: string;
}

export interface Hunk {
  header: string;
  lines: Line[];
}

export interface FileChange {
  path: string;
  /** What it was called before, where it was renamed. */
  from: string | null;
  status: "added" | "modified" | "deleted" | "renamed";
  binary: boolean;
  added: number;
  deleted: number;
  hunks: Hunk[];
}

export function parsePatch(text: string): FileChange[] {
  const files: FileChange[] = [];
  let file: FileChange | undefined;
  let hunk: Hunk | undefined;
  let left = { old: 0, new: 0 };
  let at = { old: 0, new: 0 };
  for (const line of text.split("\n")) {
    // While a hunk has lines left, a line that looks like a header is a line of a file.
    if (hunk && file && (left.old > 0 || left.new > 0)) {
      const sign = line[0] ?? " ";
      if (sign === "+" || sign === "-" || sign === " ") {
        const kind = sign === "+" ? "add" : sign === "-" ? "del" : "same";
        hunk.lines.push({ kind, old: kind === "add" ? null : at.old, new: kind === "del" ? null : at.new, text: line.slice(1) });
        if (kind !== "add") (at.old += 1), (left.old -= 1);
        if (kind !== "del") (at.new += 1), (left.new -= 1);
        if (kind === "add") file.added += 1;
        if (kind === "del") file.deleted += 1;
        continue;
      }
    }
    const started = /^diff --git (?:"?a\/(.*?)"?) (?:"?b\/(.*?)"?)$/.exec(line);
    if (started) {
      file = { path: named(started[2] ?? ""), from: null, status: "modified", binary: false, added: 0, deleted: 0, hunks: [] };
      files.push(file);
      hunk = undefined;
      continue;
    }
    if (!file) continue;
    const range = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/.exec(line);
    if (range) {
      at = { old: Number(range[1]), new: Number(range[3]) };
      left = { old: Number(range[2] ?? 1), new: Number(range[4] ?? 1) };
      hunk = { header: range[5] ?? "", lines: [] };
      file.hunks.push(hunk);
    } else if (line.startsWith("\\") && hunk) hunk.lines.push({ kind: "note", old: null, new: null, text: line.slice(2) });
    else if (line.startsWith("new file")) file.status = "added";
    else if (line.startsWith("deleted file")) file.status = "deleted";
    else if (line.startsWith("rename from ")) (file.status = "renamed"), (file.from = named(line.slice(12)));
    else if (line.startsWith("rename to ")) file.path = named(line.slice(10));
    else if (line.startsWith("+++ b/") || line.startsWith('+++ "b/')) file.path = named(line.slice(4).replace(/^"?b\//, "").replace(/"$/, ""));
    else if (line.startsWith("Binary files ") || line.startsWith("GIT binary patch")) file.binary = true;
  }
  return files;
}

/** A file's name; git ends one that has blanks with a tab. */
function named(path: string): string {
  return visibleName(path.replace(/\t$/, ""));
}
