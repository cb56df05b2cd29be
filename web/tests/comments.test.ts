import { expect, test } from "vitest";
import { Comments, type Comment } from "../src/comments";

const ONE: Comment = { file: "a.py", line: 3, code: "x = 1", said: "Why?" };

function shelf(): { getItem: (key: string) => string | null; setItem: (key: string, value: string) => void } {
  const held = new Map<string, string>();
  return { getItem: (key) => held.get(key) ?? null, setItem: (key, value) => void held.set(key, value) };
}

test("comments are kept by job and attempt until they are sent, also over a reload", () => {
  const storage = shelf();
  const first = new Comments(storage);
  let told = 0;
  first.subscribe(() => (told += 1));
  first.keep("job 1", { comments: [ONE] });
  first.keep("job 1", { draft: { ...ONE, said: "half a wo" } });
  const again = new Comments(storage);
  expect(told).toBe(2);
  expect(again.of("job 1")).toEqual({ comments: [ONE], draft: { ...ONE, said: "half a wo" } });
  expect(again.of("job 2")).toEqual({ comments: [], draft: null });
  again.keep("job 1", { comments: [], draft: null });
  expect(new Comments(storage).of("job 1").comments).toEqual([]);
});

test("a browser that keeps nothing, or something else, does no harm", () => {
  const full = new Comments({ getItem: () => "{not json", setItem: () => { throw new Error("full"); } });
  full.keep("job 1", { comments: [ONE] });
  expect(full.of("job 1").comments).toEqual([ONE]);
  expect(full.of("job 1")).toBe(full.of("job 1"));
});
