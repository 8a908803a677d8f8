import { crc32 } from "node:zlib";
import { expect, test } from "vitest";
import { eventChecksum, rowChecksum } from "#src/engine/store/sqlite.ts";

// If the checksum changed, every stored row would count as damaged.
test.each([
  { values: ["a", null, 1, "b"], before: "a\u0000\u00001" },
  { values: [null, "x", "b"], before: "\u0000x" },
  { values: [7n, 0.5, null, "b"], before: "7\u00000.5\u0000" },
  { values: ["b"], before: "" },
])("rowChecksum($values) covers the text of all columns, with null as empty text", ({ values, before }) => {
  expect(rowChecksum(...values)).toBe(crc32("b", crc32(before)));
});

test.each([
  { last: null, as: "" },
  { last: Buffer.from("äb"), as: "äb" },
  { last: 12, as: "12" },
])("rowChecksum converts the last column to text: $last", ({ last, as }) => {
  expect(rowChecksum("a", last)).toBe(crc32(as, crc32("a")));
});

test("eventChecksum returns what rowChecksum returns for the same columns", () => {
  const columns = ["tag-value.1", "tag-value", 1, 1_795_161_600_000, 640, '{"id":"tag-value.1"}'] as const;
  expect(eventChecksum(...columns)).toBe(rowChecksum(...columns));
});
