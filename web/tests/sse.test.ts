import { expect, test } from "vitest";
import { Frames } from "../src/sse";

test("events are whole however the stream is cut", () => {
  const stream = 'id: 7\nretry: 1000\n\n: still here\n\nid: 8\nevent: JobStarted\ndata: {"a":\ndata: 1}\n\ndata: last\r\n\r\n';
  const whole = new Frames().take(stream);
  expect(whole).toEqual([
    { id: "7", event: "message", data: "" },
    { id: "8", event: "JobStarted", data: '{"a":\n1}' },
    { id: "", event: "message", data: "last" },
  ]);
  for (let size = 1; size < 12; size += 1) {
    const frames = new Frames();
    const found = [];
    for (let at = 0; at < stream.length; at += size) found.push(...frames.take(stream.slice(at, at + size)));
    expect(found).toEqual(whole);
  }
});

test("what is not ended by an empty line is no event yet", () => {
  const frames = new Frames();
  expect(frames.take("id: 1\ndata: x\n")).toEqual([]);
  expect(frames.take("\n")).toEqual([{ id: "1", event: "message", data: "x" }]);
});
