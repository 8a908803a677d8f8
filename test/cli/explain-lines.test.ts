import { expect, test } from "vitest";
import { type TagExplanation, tagLines } from "#src/cli/watching/explain.ts";

const AT = "2026-11-24T12:00:00.000Z";
const explained: TagExplanation = {
  source: "main",
  tag: { id: "7", displayName: "Supply", description: null, unit: "°C" },
  siteId: 1,
  missingSince: null,
  value: { value: true, quality: "uncertain", time: AT, told: "this" },
  quarantine: null,
  leftOut: null,
  work: null,
  worker: "none",
  history: [],
  holes: [],
  sinks: [],
  commands: [],
};

const valueLines = (more: Partial<TagExplanation>) => {
  const lines = tagLines({ ...explained, ...more });
  return lines.slice(lines.indexOf("Value") + 2, lines.indexOf("Next reading") - 1);
};

test("`explain` prints the text of the response for an unreadable value", () => {
  const leftOut = { since: AT, kind: "unreadable", reason: 'Its value is the text "--".' } as const;
  expect(valueLines({ leftOut })).toEqual([`  Unreadable in the replies since ${AT}: Its value is the text "--".`]);
});

test.each([
  ["unit", "  uncertain: it is a boolean, and °C is a unit of numbers."],
  ["changed", "  uncertain: the values before were of another type, until a further reading confirms this one."],
] as const)("`explain` gives the reason for a value of uncertain type: %s", (typeDoubt, line) => {
  const value = { value: true, quality: "uncertain", time: AT, told: "this", typeDoubt } as const;
  expect(valueLines({ value })).toEqual([line]);
});
