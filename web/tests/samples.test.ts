// What processes use over time, as the page remembers it.
import { expect, test } from "vitest";
import { line, sampled } from "../src/samples";

const process = (cpu: number | null, rss: number) => ({ pid: 1, parent: 0, name: "sh", command: "sh", cpu_percent: cpu, cpu_seconds: 1, rss });

test("samples of all processes are added up, and an answer that is seen twice counts once", () => {
  sampled("a", [process(10, 5), process(null, 7)], 1);
  sampled("a", [process(99, 99)], 1);
  expect(sampled("a", [], 2)).toEqual([{ at: 1, cpu: 10, memory: 12 }]);
});

test("no job is remembered for ever, and no more of one than can be drawn", () => {
  for (let at = 1; at < 1000; at += 1) sampled("long", [process(at, at)], at);
  expect(sampled("long", [], 0)).toHaveLength(240);
  for (let other = 0; other < 30; other += 1) sampled(`other ${other}`, [process(1, 1)], 1);
  expect(sampled("long", [], 0)).toHaveLength(0);
});

test("a line goes through its values, from the left to the right", () => {
  expect(line([0, 5, 10], 100, 20)).toBe("0.0,20.0 50.0,10.0 100.0,0.0");
  expect(line([0, 0], 100, 20)).toBe("0.0,20.0 100.0,20.0");
  expect(line([3], 100, 20)).toBe("0.0,0.0");
  expect(line([], 100, 20)).toBe("");
});
