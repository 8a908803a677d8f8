import { expect, test } from "vitest";
import { makeEvent, sourceUri, subjectOf } from "#src/core/model/event.ts";

/** The ids of live values rise with time and repeat what does not change, for the log's index and a lake's column. */

const idOf = (time: string, tagId = "7", source = "main", facts: readonly string[] = []) =>
  makeEvent({
    type: "tag-value",
    source: sourceUri(source),
    subject: subjectOf("tag", 1, tagId),
    time,
    siteId: 1,
    data: {} as never,
    facts,
  }).id;

const NOON = "2026-11-23T12:00:00.000Z";
const LATER = "2026-11-23T12:00:00.001Z";

test("a later value has a higher id, and the same end", () => {
  expect(idOf(NOON) < idOf(LATER)).toBe(true);
  expect(idOf(NOON).slice(-16)).toBe(idOf(LATER).slice(-16));
  expect(idOf(NOON)).toBe(idOf(NOON));
});

test("another tag, another source and a value of the snapshot have other ids at the same moment", () => {
  const all = [idOf(NOON), idOf(NOON, "8"), idOf(NOON, "7", "other"), idOf(NOON, "7", "main", ["snapshot", NOON])];
  expect(new Set(all).size).toBe(all.length);
});
