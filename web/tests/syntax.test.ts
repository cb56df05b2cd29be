// Program text in colours: nothing of it is lost or made up, and it is done in one pass.
import { expect, test } from "vitest";
import { languageOf, tokens, type Open, type Token } from "../src/syntax";

function coloured(path: string, ...lines: string[]): string[] {
  const known = languageOf(path);
  if (!known) return lines;
  let open: Open = null;
  return lines.map((line) => {
    const found = tokens(line, known, open);
    open = found.open;
    return found.tokens.map(([kind, text]: Token) => (kind ? `<${kind} ${text}>` : text)).join("");
  });
}

test("words, texts, numbers and remarks are told apart", () => {
  expect(coloured("a/b.py", 'def f(x: int = 42) -> str:  # "why"', "    return f'it\\'s # {x}' + name")).toEqual(['<word def> f(x: int = <number 42>) -> str:  <remark # "why">', "    <word return> f<text 'it\\'s # {x}'> + name"]);
  expect(coloured("x.ts", "const a = `b ${c}`; // d")).toEqual(["<word const> a = <text `b ${c}`>; <remark // d>"]);
  expect(coloured("q.sql", "SELECT 'a' from t -- all")).toEqual(["<word SELECT> <text 'a'> <word from> t <remark -- all>"]);
  expect(coloured("Makefile", "all: # what")).toEqual(["all: <remark # what>"]);
  expect(coloured("a.css", "a { color: #fff; }")).toEqual(["a { color: #fff; }"]);
});

test("remarks and texts of several lines go on", () => {
  expect(coloured("m.go", "a /* b", "c", "d */ var e")).toEqual(["a <remark /* b>", "<remark c>", "<remark d */> <word var> e"]);
  expect(coloured("m.py", '"""one', 'two""" if')).toEqual(['<text """one>', '<text two"""> <word if>']);
});

test("a file of no known language has no colours, whatever it is called", () => {
  for (const name of ["notes.txt", "README", "constructor", "a.__proto__", "toString", ""]) expect(languageOf(name)).toBeUndefined();
});

test("the tokens of any line are the line, in a time that grows with its length", () => {
  const pieces = ['"', "'", "`", "/*", "*/", "#", "//", "\\", '"""', "a1", "9", " ", "<b>", "\u0000", "é", "if"];
  let seed = 7;
  const next = () => (seed = (seed * 48271) % 2147483647);
  for (const path of ["a.py", "a.ts", "a.go", "a.rs", "a.yaml", "a.html", "a.sh"]) {
    const known = languageOf(path);
    if (!known) throw new Error(path);
    let open: Open = null;
    for (let turn = 0; turn < 300; turn += 1) {
      const line = Array.from({ length: next() % 30 }, () => pieces[next() % pieces.length]).join("");
      const found = tokens(line, known, open);
      expect(found.tokens.map(([, text]) => text).join("")).toBe(line);
      open = found.open;
    }
    const began = performance.now();
    for (const hard of ["a".repeat(100_000), '"'.repeat(1999), "\\".repeat(1999), "/*".repeat(999)]) tokens(hard, known, null);
    expect(performance.now() - began).toBeLessThan(500);
  }
});
