import { expect, test } from "vitest";
import { eventSubject, makeEvent, sourceUri } from "#src/core/model/event.ts";

const idOf = (time: string, tagId = "7", source = "main", facts: readonly string[] = []) =>
  makeEvent({
    type: "tag-value",
    source: sourceUri(source),
    subject: eventSubject("tag", 1, tagId),
    time,
    siteId: 1,
    data: {} as never,
    facts,
  }).id;

const NOON = "2026-11-23T12:00:00.000Z";
const LATER = "2026-11-23T12:00:00.001Z";

test("a later value has a higher event id with the same suffix", () => {
  expect(idOf(NOON) < idOf(LATER)).toBe(true);
  expect(idOf(NOON).slice(-16)).toBe(idOf(LATER).slice(-16));
  expect(idOf(NOON)).toBe(idOf(NOON));
});

test("values of another tag, source or snapshot have different event ids at the same time", () => {
  const all = [idOf(NOON), idOf(NOON, "8"), idOf(NOON, "7", "other"), idOf(NOON, "7", "main", ["snapshot", NOON])];
  expect(new Set(all).size).toBe(all.length);
});
