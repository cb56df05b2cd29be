// A patch as git prints it, taken apart: files, hunks, and lines with their numbers; and what the daemon left out of it.
import { count, visibleName } from "./format";

export interface Line {
  kind: "add" | "del" | "same" | "note";
  old: number | null;
  new: number | null;
  text: string;
}

export interface Hunk {
  header: string;
  lines: Line[];
  /** Lines of the file before it that nobody changed, since the hunk before. */
  skipped: number;
  /** Whether lines of it are missing. */
  cut: boolean;
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
  /** Whether a part of it is missing. */
  cut: boolean;
  /** Its mode before and after, as far as git tells it. */
  modes: { old: string | null; new: string | null };
}

/** A file of which nothing is shown; `added` is null where it is not text. */
export interface Missing {
  path: string;
  added: number | null;
  deleted: number | null;
}

export interface Patch {
  files: FileChange[];
  missing: Missing[];
  /** Further files of which not even the name is known. */
  nameless: number;
  /** Whether anything was left out. */
  cut: boolean;
}

export function parsePatch(text: string): Patch {
  const patch: Patch = { files: [], missing: [], nameless: 0, cut: false };
  const { files } = patch;
  let file: FileChange | undefined;
  let hunk: Hunk | undefined;
  let left = { old: 0, new: 0 };
  let at = { old: 0, new: 0 };
  const torn = () => {
    if (!hunk || !file || (left.old <= 0 && left.new <= 0)) return;
    hunk.cut = file.cut = patch.cut = true;
    left = { old: 0, new: 0 };
  };
  for (const line of text.replace(/\n$/, "").split("\n")) {
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
    // A hunk that ended too early is not whole, whatever stands after it; no line of a patch begins with three dots.
    if (line[0] !== "\\") torn();
    if (line.startsWith("... ")) {
      patch.cut = true;
      leftOutLine(line.slice(4), patch, file);
      continue;
    }
    if (line.startsWith("diff --git ")) {
      file = { path: named(second(line.slice(11))), from: null, status: "modified", binary: false, added: 0, deleted: 0, hunks: [], cut: false, modes: { old: null, new: null } };
      files.push(file);
      hunk = undefined;
      continue;
    }
    if (!file) continue;
    const range = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/.exec(line);
    if (range) {
      const skipped = Math.max(0, Number(range[1]) - (hunk ? at.old : 1));
      at = { old: Number(range[1]), new: Number(range[3]) };
      left = { old: Number(range[2] ?? 1), new: Number(range[4] ?? 1) };
      hunk = { header: range[5] ?? "", lines: [], skipped, cut: false };
      file.hunks.push(hunk);
    } else if (line.startsWith("\\") && hunk) hunk.lines.push({ kind: "note", old: null, new: null, text: line.slice(2) });
    else if (line.startsWith("new file mode ")) (file.status = "added"), (file.modes.new = line.slice(14));
    else if (line.startsWith("deleted file mode ")) (file.status = "deleted"), (file.modes.old = line.slice(18));
    else if (line.startsWith("old mode ")) file.modes.old = line.slice(9);
    else if (line.startsWith("new mode ")) file.modes.new = line.slice(9);
    else if (/^index [0-9a-f]+\.\.[0-9a-f]+ \d+$/.test(line)) file.modes.old = file.modes.new = line.slice(line.lastIndexOf(" ") + 1);
    else if (line.startsWith("rename from ")) (file.status = "renamed"), (file.from = named(line.slice(12)));
    else if (line.startsWith("rename to ")) file.path = named(line.slice(10));
    else if (line.startsWith("+++ b/") || line.startsWith('+++ "b/')) file.path = named(line.slice(4).replace(/^"?b\//, "").replace(/"$/, ""));
    else if (line.startsWith("Binary files ") || line.startsWith("GIT binary patch")) file.binary = true;
  }
  torn();
  return patch;
}

/** What the daemon says of a patch that it cut; its last such line is for people. */
function leftOutLine(said: string, patch: Patch, file: FileChange | undefined): void {
  const part = /^the rest of this file is left out: (?:\+(\d+) -(\d+)|binary) in all$/.exec(said);
  if (part && file) {
    file.cut = true;
    // What the whole file has, not what is shown of it.
    if (part[1] !== undefined) (file.added = Number(part[1])), (file.deleted = Number(part[2]));
  }
  const missing = /^not shown: (?:\+(\d+) -(\d+)|binary) (.*)$/.exec(said);
  if (missing) patch.missing.push({ path: named((missing[3] ?? "").replace(/^"(.*)"$/, "$1")), added: figure(missing[1]), deleted: figure(missing[2]) });
  const more = /^not shown: (\d+) more files$/.exec(said);
  if (more) patch.nameless += Number(more[1]);
}

function figure(text: string | undefined): number | null {
  return text === undefined ? null : Number(text);
}

/** What of a change the page cannot show, as a sentence; null: it shows all of it. */
export function leftOut(patch: Patch): string | null {
  if (!patch.cut) return null;
  const whole = patch.missing.length + patch.nameless;
  const parts = patch.files.filter((one) => one.cut).length;
  const said = [whole > 0 && `${count(whole, "file is", "files are")} not shown`, parts > 0 && `${count(parts, "file is", "files are")} shown only in part`].filter(Boolean);
  return `${said.join(", and ") || "A part of the change is not shown"}: the change is too long for one page.`;
}

const KINDS: Record<string, string> = { "120000": "link", "160000": "submodule" };

/** What a file is, or became, beyond its text. */
export function marks(file: FileChange): string[] {
  const { old: was, new: is } = file.modes;
  const found: string[] = file.binary ? ["not text"] : [];
  const kind = KINDS[is ?? ""] ?? KINDS[was ?? ""];
  if (kind) found.push(kind);
  if (is === "100755" && was !== is) found.push("executable");
  if (was === "100755" && is === "100644") found.push("no longer executable");
  return found;
}

/** The second of the two names in the first line of a file; those of one that was not renamed are the same. */
function second(names: string): string {
  const half = (names.length - 1) / 2;
  const same = names.slice(0, half).replace(/^("?)a\//, "$1b/") === names.slice(half + 1);
  const name = same ? names.slice(half + 1) : (/^"?a\/.*? ("?b\/.*)$/.exec(names)?.[1] ?? names);
  return name.replace(/^"?b\//, "").replace(/"$/, "");
}

/** A file's name; git ends one that has blanks with a tab. */
function named(path: string): string {
  return visibleName(path.replace(/\t$/, ""));
}
