import { describe, expect, test } from "vitest";
import type { Alarm } from "#src/core/model/building.ts";
import { alarmEndOrStartMs } from "#src/engine/sync/alarms/alarm-times.ts";
import { beginEpisode } from "#src/engine/sync/alarms/diff-alarm.ts";
import { type AlarmDiffOptions, findAbsentAlarms, type SeenAlarms } from "#src/engine/sync/alarms/diff-alarms.ts";
import { diffResolvedAlarms, type ResolvedAlarmDiffOptions } from "#src/engine/sync/alarms/diff-resolved-alarms.ts";
import type { StoredAlarm } from "#src/engine/sync/stored-documents.ts";
import { ALARM } from "../sample-events.ts";
import { AT, activity, CONTEXT, diffOf, kindsOf, OPTIONS, observation, SWEEP_OPTIONS } from "./diff-support.ts";

const BEFORE = "2026-11-02T07:00:00.000Z";
const ENDED = "2026-11-02T07:45:00.000Z";
const OVER: Alarm = { ...ALARM, status: "resolved", resolvedAt: ENDED };
const NEXT: Alarm = { ...ALARM, triggeredAt: "2026-11-02T07:15:00.000Z", lastActiveEvent: activity(9002) };
const NEXT_OVER: Alarm = { ...NEXT, status: "resolved", resolvedAt: ENDED };
const OLDER: Alarm = { ...ALARM, triggeredAt: "2026-11-02T05:15:00.000Z", lastActiveEvent: activity(9000) };
const SITE = new Set([ALARM.site.id]);

type Alarms = ReadonlyMap<string, StoredAlarm>;
function stored(changes: Partial<StoredAlarm> = {}, alarm: Alarm = ALARM): Alarms {
  return new Map([[alarm.id, { ...beginEpisode(alarm, true, { ...CONTEXT, at: BEFORE }).stored, ...changes }]]);
}

const poll = (known: Alarms, seen: Partial<SeenAlarms>, options: Partial<AlarmDiffOptions> = {}) => {
  const { put, events } = diffOf(known, observation(seen), { ...OPTIONS, ...options });
  return { emitted: kindsOf(events), events, stored: put.get(ALARM.id) };
};

describe("the decision whether a stored alarm is absent from a list", () => {
  const none: readonly Alarm[] = [];
  test.each<[string, Partial<StoredAlarm>, readonly Alarm[], "complete" | "none", boolean, boolean]>([
    ["absent if it is active and not listed", {}, none, "complete", true, true],
    ["not absent if its site was not read", {}, none, "none", true, false],
    ["absent if its state is missing", { state: "missing" }, none, "complete", false, true],
    ["not absent if it is listed", {}, [ALARM], "complete", true, false],
    ["absent if a later episode is listed", {}, [NEXT], "complete", true, true],
    ["not absent if an older episode is listed", {}, [OLDER], "complete", true, false],
    ["not absent if it is resolved", { state: "resolved" }, none, "complete", true, false],
    ["not absent if it has vanished", { state: "vanished" }, none, "complete", true, false],
    ["not absent if it is out of scope", { state: "out-of-scope" }, none, "complete", false, false],
    ["absent if it is in scope again", { state: "out-of-scope" }, none, "complete", true, true],
  ])("the alarm is %s", (_what, changes, listed, coverage, isVisible, expected) => {
    const absent = findAbsentAlarms(
      stored(changes),
      listed,
      () => coverage,
      () => isVisible,
    );
    expect(absent).toHaveLength(expected ? 1 : 0);
  });
});

describe("a listed alarm", () => {
  test("is emitted as alarm-raised if it is new, marked initial if its site was not followed before", () => {
    const initial = (options: Partial<AlarmDiffOptions>) =>
      poll(new Map(), { listed: [ALARM] }, options).events.map(({ data }) => data);
    expect(initial({})).toMatchObject([{ initial: false }]);
    expect(initial({ isKnownSite: () => false })).toMatchObject([{ initial: true }]);
    const announce = { startup: "announce", isStartupOver: () => false } as const;
    expect(initial(announce)).toMatchObject([{ initial: true }]);
    expect(initial({ ...announce, isStartupOver: () => true })).toMatchObject([{ initial: false }]);
    expect(initial({ isStartupOver: () => false })).toMatchObject([{ initial: false }]);
  });

  test("with the start mode `announce`, is emitted as alarm-raised again if it is stored, before its changes", () => {
    const options = { startup: "announce", isStartupOver: () => false } as const;
    const changed = { ...ALARM, source: "VS2" };
    expect(poll(stored(), { listed: [changed] }, options).emitted).toEqual(["raised", "changed"]);
    expect(poll(stored(), { listed: [changed] }, { startup: "announce" }).emitted).toEqual(["changed"]);
    expect(poll(stored(), { listed: [changed] }, { isStartupOver: () => false }).emitted).toEqual(["changed"]);
  });

  test("with the start mode `silent`, is stored without an event until its site was listed once", () => {
    const silent = poll(new Map(), { listed: [ALARM] }, { startup: "silent", isStartupOver: () => false });
    expect([silent.emitted, silent.stored?.state]).toEqual([[], "active"]);
    expect(poll(new Map(), { listed: [ALARM] }, { startup: "silent" }).emitted).toEqual(["raised"]);
  });

  test("is emitted once when the list contains it twice, and is not written when it is unchanged", () => {
    expect(poll(new Map(), { listed: [ALARM, { ...ALARM, source: "VS2" }] }).emitted).toEqual(["raised"]);
    expect(poll(stored(), { listed: [ALARM] })).toEqual({ emitted: [], events: [], stored: undefined });
  });

  test("ends its previous episode when the list contains a later episode", () => {
    expect(poll(stored(), { listed: [NEXT] }).emitted).toEqual(["vanished", "raised"]);
    expect(poll(stored(), { listed: [NEXT], foundRecords: [OVER] }).emitted).toEqual(["resolved", "raised"]);
    expect(poll(stored({ state: "vanished" }), { listed: [NEXT] }).emitted).toEqual(["raised"]);
    expect(poll(stored(), { listed: [OLDER] }).emitted).toEqual([]);
  });

  test("that was resolved is retriggered if its record states no end: after a later event, or after ten polls", () => {
    const resolved = stored({ state: "resolved", alarm: OVER });
    const insisted = new Set([ALARM.id]);
    const again = { ...ALARM, lastActiveEvent: activity(9002) };
    expect(
      poll(resolved, { listed: [{ ...ALARM, resolvedAt: ENDED }], acceptedOutdatedIds: insisted }).emitted,
    ).toEqual([]);
    expect(poll(resolved, { listed: [{ ...again, resolvedAt: ENDED }] }).emitted).toEqual([]);
    expect(poll(resolved, { listed: [ALARM] }).emitted).toEqual([]);
    expect(poll(resolved, { listed: [again] }).emitted).toEqual(["retriggered"]);
    expect(poll(resolved, { listed: [ALARM], acceptedOutdatedIds: insisted }).emitted).toEqual(["retriggered"]);
  });
});

describe("an alarm that the list lacks", () => {
  test("is emitted as alarm-vanished after enough consecutive polls without it and a search for its end", () => {
    const once = poll(stored(), {});
    expect([once.emitted, once.stored?.misses]).toEqual([[], 1]);
    const missing = stored({ state: "missing", misses: 1 });
    expect(poll(missing, {}).emitted).toEqual(["vanished"]);
    expect(poll(missing, { searchedIds: new Set() }).emitted).toEqual([]);
    expect(poll(stored({ state: "resolved" }), {}).stored).toBeUndefined();
    expect(poll(stored({ state: "out-of-scope" }), {}).stored).toMatchObject({ state: "missing", returns: 1 });
  });

  test.each<[string, Partial<SeenAlarms>]>([
    ["the absence is unverified", { unverifiedIds: new Set([ALARM.id]) }],
    ["the scope is unknown", { scope: null }],
    ["its site was out of the scope before", { scope: { before: new Set(), after: SITE } }],
    ["the pages of the list shifted", { coverage: () => "moving" }],
    ["its site was not read", { coverage: () => "none" }],
  ])("keeps its state when %s", (_why, seen) => {
    expect(poll(stored(), seen)).toEqual({ emitted: [], events: [], stored: undefined });
  });

  test("is emitted once as alarm-out-of-scope when its site left the scope", () => {
    const scope = { before: SITE, after: new Set<number>() };
    expect(poll(stored(), { scope }).emitted).toEqual(["out-of-scope"]);
    expect(poll(stored({ state: "out-of-scope" }), { scope }).stored).toBeUndefined();
  });

  test("is resolved when it is active or vanished and the service lists it as resolved", () => {
    expect(poll(stored(), { foundRecords: [OVER] }).emitted).toEqual(["resolved"]);
    expect(poll(stored({ state: "vanished" }), { foundRecords: [OVER], scope: null }).emitted).toEqual(["resolved"]);
    expect(poll(stored({ state: "resolved" }), { foundRecords: [OVER] }).emitted).toEqual([]);
  });

  test("stays open if the service states an end before its start and the list of active alarms was incomplete", () => {
    const times = { triggeredAt: "2026-11-02T04:15:00.000Z", resolvedAt: "2026-11-02T05:45:00.000Z" };
    const found = [{ ...OVER, ...times }];
    expect(poll(stored(), { foundRecords: found, coverage: () => "moving" }).emitted).toEqual([]);
    expect(poll(stored(), { foundRecords: found }).emitted).toEqual(["resolved"]);
  });

  test("ends, and its later episode is emitted and marked late, when the list of resolved alarms contains that episode", () => {
    const { emitted: kinds, events } = poll(stored(), { foundRecords: [NEXT_OVER] });
    expect(kinds).toEqual(["vanished", "raised", "resolved"]);
    expect(events.map(({ data }) => (data as { readonly late: boolean }).late)).toEqual([false, true, true]);
    expect(poll(stored({ state: "vanished" }), { foundRecords: [NEXT_OVER] }).emitted).toEqual(["raised", "resolved"]);
  });
});

describe("an alarm in the list of resolved alarms", () => {
  const sweep = (known: Alarms, records: readonly Alarm[], options: Partial<ResolvedAlarmDiffOptions> = {}) => {
    const { put, events } = diffResolvedAlarms(known, records, { ...SWEEP_OPTIONS, ...options });
    return { emitted: kindsOf(events), put, stored: put.get(ALARM.id) };
  };

  test("is emitted as alarm-raised and alarm-resolved if it is unknown and did not end before the searched time range", () => {
    expect(sweep(new Map(), [OVER]).emitted).toEqual(["raised", "resolved"]);
    expect(sweep(new Map(), [OVER], { fromMs: Date.parse(ENDED) }).emitted).toEqual(["raised", "resolved"]);
    expect(sweep(new Map(), [OVER], { fromMs: Date.parse(ENDED) + 1 }).put.size).toBe(0);
    expect(sweep(new Map(), [ALARM]).put.size).toBe(0);
  });

  test("is stored without events if it is old, or if it is found at a start with the mode `silent`", () => {
    const history = sweep(new Map(), [OVER], { isBeforeFollowing: () => true });
    expect([history.emitted, history.stored?.untold]).toEqual([[], true]);
    const silent = sweep(new Map(), [OVER], { suppressEvents: true });
    expect([silent.emitted, silent.stored?.untold]).toEqual([[], true]);
    expect(sweep(new Map(), [OVER]).stored).not.toHaveProperty("untold");
  });

  test("causes events for the end of the stored, a later or an earlier episode, but none at a start with the mode `silent`", () => {
    expect(sweep(stored(), [OVER], { isBeforeFollowing: () => true }).emitted).toEqual(["resolved"]);
    const silent = sweep(stored(), [OVER], { suppressEvents: true });
    expect([silent.emitted, silent.stored?.untold]).toEqual([[], true]);
    expect(sweep(stored(), [OVER]).emitted).toEqual(["resolved"]);
    expect(sweep(stored(), [OVER], { fromMs: Date.parse(AT) }).emitted).toEqual(["resolved"]);
    expect(sweep(stored(), [NEXT_OVER]).emitted).toEqual(["vanished", "raised", "resolved"]);
    const older = { ...OLDER, status: "resolved", resolvedAt: "2026-11-02T05:45:00.000Z" };
    const before = sweep(stored(), [older]);
    expect(before.emitted).toEqual(["raised", "resolved"]);
    expect(sweep(before.put, [older]).put.size).toBe(0);
    expect(sweep(stored(), [older], { fromMs: Date.parse("2026-11-02T06:00:00Z") }).put.size).toBe(0);
  });

  test("is emitted before alarms with a later end", () => {
    const first = { ...OVER, id: "2", resolvedAt: "2026-11-02T07:00:00.000Z" };
    const { put } = sweep(new Map(), [OVER, first]);
    expect([...put.keys()]).toEqual(["2", ALARM.id]);
  });

  test("is emitted with beginning and end if its end has an unreadable time", () => {
    const unread = { ...OVER, resolvedAt: "yesterday" };
    const { emitted: kinds, put } = sweep(new Map(), [OVER, unread, { ...unread, id: "2" }]);
    expect(kinds).toEqual(["raised", "resolved", "raised", "resolved"]);
    expect([...put.keys()]).toEqual([ALARM.id, "2"]);
    expect(sweep(new Map(), [unread], { fromMs: 1 }).put.size).toBe(0);
  });

  test("emits an acknowledgement after its end once, unless the alarm was never emitted", () => {
    const acknowledged = { ...OVER, acknowledged: true, acknowledgedAt: AT };
    const resolved = stored({ state: "resolved", alarm: OVER });
    const late = sweep(resolved, [acknowledged]);
    expect(late.emitted).toEqual(["acknowledged"]);
    expect(sweep(late.put, [acknowledged]).put.size).toBe(0);
    const silent = sweep(resolved, [acknowledged], { suppressEvents: true });
    expect([silent.emitted, silent.stored?.alarm.acknowledged]).toEqual([[], true]);
    const untold = stored({ state: "resolved", alarm: OVER, untold: true });
    expect(sweep(untold, [acknowledged]).put.size).toBe(0);
  });

  test("ends at its trigger time when it states no end, and its times without an offset are read as UTC", () => {
    expect(alarmEndOrStartMs(OVER)).toBe(Date.parse(ENDED));
    expect(alarmEndOrStartMs({ ...OVER, resolvedAt: null })).toBe(Date.parse("2026-11-02T06:15:00Z"));
    expect(alarmEndOrStartMs({ ...OVER, resolvedAt: "2026-11-02T07:45:00" })).toBe(Date.parse(ENDED));
    expect(alarmEndOrStartMs({ ...OVER, resolvedAt: "yesterday" })).toBeNull();
  });
});
