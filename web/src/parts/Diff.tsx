// A patch, file by file: unified or side by side, folded where it is long; all of it is shown as text.
import { useMemo, useState, type ReactNode } from "react";
import { count } from "../format";
import { visible } from "../format";
import { leftOut, marks, parsePatch, type FileChange, type Hunk, type Line, type Patch } from "../patch";
import { languageOf, tokens, type Open } from "../syntax";
import { Banner, Empty } from "./bits";
import { Badge, type Tone } from "./status";
import { Icon } from "./icons";

const LONG = 400; // lines; a file with more begins folded
const MANY = 40; // files; with more, all begin folded
const TONES: Record<FileChange["status"], Tone> = { added: "ok", modified: "run", deleted: "bad", renamed: "ask" };

type Commented = (file: string, line: number, text: string) => void;
const NAMED = 200; // files that are not shown and are listed

/** `command` is what shows the change in a terminal. */
export function Diff({ patch, command, comment }: { patch: string; command: string; comment?: Commented }) {
  const whole = useMemo(() => parsePatch(patch), [patch]);
  const { files, missing } = whole;
  const [split, setSplit] = useState(false);
  if (files.length === 0 && !whole.cut) return <Empty title="Nothing has changed" />;
  const added = [...files, ...missing].reduce((sum, file) => sum + (file.added ?? 0), 0);
  const deleted = [...files, ...missing].reduce((sum, file) => sum + (file.deleted ?? 0), 0);
  return (
    <div className="stack">
      <LeftOut patch={whole} command={command} />
      <div className="row">
        <span className="soft grow num">
          {count(files.length + missing.length + whole.nameless, "file")} <span className="plus">+{added}</span> <span className="minus">−{deleted}</span>
        </span>
        <div className="chips wide" role="group" aria-label="How changes are shown">
          <button className="chip" aria-pressed={!split} onClick={() => setSplit(false)}>
            Unified
          </button>
          <button className="chip" aria-pressed={split} onClick={() => setSplit(true)}>
            Side by side
          </button>
        </div>
      </div>
      {files.map((file, place) => (
        <FileDiff key={`${file.path} ${place}`} file={file} split={split} folded={files.length > MANY || file.added + file.deleted > LONG} comment={comment} />
      ))}
    </div>
  );
}

/** Loud, and before everything else: nobody is to approve what the page does not show. */
function LeftOut({ patch, command }: { patch: Patch; command: string }) {
  const said = leftOut(patch);
  if (said === null) return null;
  const listed = [...patch.missing, ...patch.files.filter((one) => one.cut)];
  const more = Math.max(0, listed.length - NAMED) + patch.nameless;
  return (
    <Banner tone="bad">
      <b>{said}</b> <code>{command} -- PATH</code> shows a file.
      <div className="small num" style={{ maxHeight: 220, overflowY: "auto" }} tabIndex={0} role="region" aria-label="Files that are not shown">
        {listed.slice(0, NAMED).map((one, place) => (
          <div key={place} className="words">
            <span className="mono">{one.path}</span> {one.added === null ? "not text" : <Lines file={one} />} {"hunks" in one ? "in part" : ""}
          </div>
        ))}
      </div>
      {more > 0 && <div className="small">and {count(more, "more file")}</div>}
    </Banner>
  );
}

function Lines({ file }: { file: { added: number | null; deleted: number | null } }) {
  return (
    <>
      <span className="plus">+{file.added}</span> <span className="minus">−{file.deleted}</span>
    </>
  );
}

function FileDiff({ file, split, folded: begins, comment }: { file: FileChange; split: boolean; folded: boolean; comment: Commented | undefined }) {
  const [folded, setFolded] = useState(begins);
  return (
    <section className="card file">
      <button onClick={() => setFolded(!folded)} aria-expanded={!folded}>
        <Icon shape={folded ? "unfold" : "fold"} size={14} />
        <span className="mono grow words">
          {file.from && <span className="faint">{file.from} → </span>}
          {file.path}
        </span>
        {marks(file).map((one) => (
          <Badge key={one} tone="ask">
            {one}
          </Badge>
        ))}
        {file.cut && <Badge tone="bad">in part</Badge>}
        {file.status !== "modified" && <Badge tone={TONES[file.status]}>{file.status}</Badge>}
        <span className="num small">
          <Lines file={file} />
        </span>
      </button>
      {!folded && (file.binary ? <p className="pad soft">Git does not take it for text, so its lines are not shown. A single NUL character in a file is enough for that.</p> : file.hunks.length === 0 ? <p className="pad soft">{file.cut ? "Nothing of it is shown." : "No line of it has changed."}</p> : split ? <Split file={file} comment={comment} /> : <Unified file={file} comment={comment} />)}
    </section>
  );
}

function Unified({ file, comment }: { file: FileChange; comment: Commented | undefined }) {
  const shades = useMemo(() => file.hunks.map((hunk) => coloured(file.path, hunk.lines)), [file]);
  return (
    <div className="diff" tabIndex={0} role="region" aria-label={`Changes of ${file.path}`}>
      <table>
        <tbody>
          {file.hunks.map((hunk, place) => [
            between(hunk) && (
              <tr key={place} className="hunk">
                <td className="n" />
                <td className="n" />
                <td className="c">{between(hunk)}</td>
              </tr>
            ),
            ...hunk.lines.map((line, number) => (
              <tr key={`${place} ${number}`} className={line.kind}>
                <td className="n">{line.old ?? ""}</td>
                <td className="n">
                  <Numbered file={file} line={line} comment={comment} />
                </td>
                <td className="c">
                  <span className="sign">{line.kind === "add" ? "+ " : line.kind === "del" ? "− " : "  "}</span>
                  {shades[place]?.[number]}
                </td>
              </tr>
            )),
            hunk.cut && (
              <tr key={`${place} cut`} className="hunk">
                <td className="n" />
                <td className="n" />
                <td className="c t-bad">{CUT}</td>
              </tr>
            ),
          ])}
        </tbody>
      </table>
    </div>
  );
}

const CUT = "The rest of this is not shown.";

/** What is told before a hunk: how many lines nobody changed, and where it is. */
function between(hunk: Hunk): string {
  return [hunk.skipped > 0 && `⋯ ${count(hunk.skipped, "line")}`, visible(hunk.header)].filter(Boolean).join("  ");
}

/** The number of a line as it is now, to comment on. */
function Numbered({ file, line, comment }: { file: FileChange; line: Line | undefined; comment: Commented | undefined }) {
  const number = line?.new ?? null;
  if (!line || number === null) return null;
  if (!comment) return number;
  return (
    <button title="Comment on this line" onClick={() => comment(file.path, number, line.text)}>
      {number}
    </button>
  );
}

/** Lines that were taken out beside those that came in their place. */
function Split({ file, comment }: { file: FileChange; comment: Commented | undefined }) {
  const { hunks } = file;
  const shades = useMemo(() => {
    const found = new Map<Line, ReactNode>();
    for (const hunk of hunks) for (const [at, one] of coloured(file.path, hunk.lines).entries()) found.set(hunk.lines[at] as Line, one);
    return found;
  }, [file]);
  return (
    <div className="diff split">
      <table>
        <tbody>
          {hunks.map((hunk, place) => [
            between(hunk) && (
              <tr key={place} className="hunk">
                <td className="n" />
                <td className="c">{between(hunk)}</td>
                <td className="n" />
                <td className="c" />
              </tr>
            ),
            ...pairs(hunk.lines).map(([left, right], number) => (
              <tr key={`${place} ${number}`}>
                <td className="n">{left?.old ?? ""}</td>
                <td className={`c ${left?.kind === "del" ? "del" : ""}`}>{left ? shades.get(left) : ""}</td>
                <td className="n">
                  <Numbered file={file} line={right} comment={comment} />
                </td>
                <td className={`c ${right?.kind === "add" ? "add" : ""}`}>{right ? shades.get(right) : ""}</td>
              </tr>
            )),
            hunk.cut && (
              <tr key={`${place} cut`} className="hunk">
                <td className="n" />
                <td className="c t-bad">{CUT}</td>
                <td className="n" />
                <td className="c" />
              </tr>
            ),
          ])}
        </tbody>
      </table>
    </div>
  );
}

/** The lines of a hunk in colours. What was and what is are two texts: each goes on in its own way. */
function coloured(path: string, lines: readonly Line[]): ReactNode[] {
  const known = languageOf(path);
  if (!known) return lines.map((line) => visible(line.text));
  let [was, is]: [Open, Open] = [null, null];
  return lines.map((line) => {
    if (line.kind === "note") return visible(line.text);
    const found = tokens(line.text, known, line.kind === "del" ? was : is);
    if (line.kind !== "add") was = found.open;
    if (line.kind !== "del") is = found.open;
    return found.tokens.map(([kind, text], at) => (kind ? <span key={at} className={`s-${kind}`}>{visible(text)}</span> : visible(text)));
  });
}

function pairs(lines: readonly Line[]): [Line | undefined, Line | undefined][] {
  const found: [Line | undefined, Line | undefined][] = [];
  let out: Line[] = [];
  let into: Line[] = [];
  const flush = () => {
    for (let at = 0; at < Math.max(out.length, into.length); at += 1) found.push([out[at], into[at]]);
    out = [];
    into = [];
  };
  for (const line of lines) {
    if (line.kind === "del") out.push(line);
    else if (line.kind === "add") into.push(line);
    else {
      flush();
      if (line.kind === "same") found.push([line, line]);
    }
  }
  flush();
  return found;
}
