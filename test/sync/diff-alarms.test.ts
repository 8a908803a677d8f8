import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Alarm } from "#src/core/model/building.ts";
import type { AlarmFact, Event } from "#src/core/model/event.ts";
import {
  diffAlarms,
  findAbsentAlarms,
  type ListCoverage,
  type SeenAlarms,
  splitAlarmDiff,
} from "#src/engine/sync/alarms/diff-alarms.ts";
import { diffResolvedAlarms } from "#src/engine/sync/alarms/diff-resolved-alarms.ts";
import { episodeKey, isResolvedAlarm } from "#src/engine/sync/alarms/episode.ts";
import type { StoredAlarm } from "#src/engine/sync/stored-documents.ts";
import { ALARM } from "../sample-events.ts";
import { activity, diffOf, kindsOf, OPTIONS, observation, SWEEP_OPTIONS } from "./diff-support.ts";

/**
 * The pure diffs against a world that we know: any sequence of changes and observations, complete ones, moving ones
 * and failed ones, with scope that comes and goes. A failure prints its seed and path; `PLENUM_SEED` and
 * `PLENUM_FC_PATH` replay it.
 */
const replay = { ...(process.env.PLENUM_FC_PATH === undefined ? {} : { path: process.env.PLENUM_FC_PATH }) };

const SITES = [1, 2];
const IDS = ["1", "2", "3", "4", "5"];

type Step =
  | { readonly kind: "raise" | "resolve" | "acknowledge" | "recover" | "delete"; readonly id: string }
  | { readonly kind: "scope"; readonly sites: readonly number[] }
  | { readonly kind: "sweep" }
  | {
      readonly kind: "poll";
      readonly coverage: readonly ListCoverage[];
      readonly seen: number;
      readonly searches: boolean;
    };

const id = fc.constantFrom(...IDS);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constantFrom("raise", "resolve"), id }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom("acknowledge", "recover", "delete"), id }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("scope"), sites: fc.subarray(SITES) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("sweep") }) },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("poll"),
      coverage: fc.tuple(...SITES.map(() => fc.constantFrom<ListCoverage>("complete", "complete", "moving", "none"))),
      seen: fc.nat(31),
      searches: fc.boolean(),
    }),
  },
) as fc.Arbitrary<Step>;

function createWorld() {
  const alarms = new Map<string, Alarm>();
  const resolved = new Set<string>();
  let stored = new Map<string, StoredAlarm>();
  let scope = new Set(SITES);
  let lastScope = new Set(SITES);
  let minute = 0;
  const known = new Set<number>();
  const sweptSites = new Set<number>();
  const log: Event[] = [];
  const iso = () => new Date(Date.UTC(2026, 0, 1) + minute * 60_000).toISOString();
  const siteOf = (alarmId: string) => SITES[Number(alarmId) % SITES.length] ?? 1;
  const change = (alarmId: string, more: Partial<Alarm>) => {
    const alarm = alarms.get(alarmId);
    if (alarm !== undefined) alarms.set(alarmId, { ...alarm, ...more });
  };

  function keep(diff: { put: ReadonlyMap<string, StoredAlarm>; events: readonly Event[] }) {
    stored = new Map(Object.entries(JSON.parse(JSON.stringify(Object.fromEntries([...stored, ...diff.put])))));
    log.push(...diff.events);
  }

  return {
    log,
    resolved,
    alarms,
    stored: () => stored,
    apply(next: Step) {
      minute += 1;
      switch (next.kind) {
        case "raise":
          if (alarms.get(next.id)?.status === "active") return;
          alarms.set(next.id, {
            ...{ ...ALARM, id: next.id, site: { id: siteOf(next.id), displayName: "S" }, triggeredAt: iso() },
            lastActiveEvent: activity(minute),
          });
          return;
        case "resolve": {
          const alarm = alarms.get(next.id);
          if (alarm?.status !== "active") return;
          change(next.id, { status: "resolved", resolvedAt: iso(), recoveringUntil: null });
          resolved.add(episodeKey(alarm));
          return;
        }
        case "acknowledge":
          change(next.id, { acknowledged: true, acknowledgedAt: iso(), acknowledgedBy: "Kari" });
          return;
        case "recover":
          change(next.id, { recoveringUntil: iso() });
          return;
        case "delete":
          alarms.delete(next.id);
          return;
        case "scope":
          scope = new Set(next.sites);
          return;
        case "poll":
          this.poll(next);
          return;
        case "sweep":
          this.sweep();
      }
    },
    /** `seen` is the part of a moving list that came into view, as bits. */
    poll({ coverage, seen, searches }: Extract<Step, { kind: "poll" }>) {
      const gradeOf = (siteId: number) => coverage[SITES.indexOf(siteId)] ?? "none";
      const visible = [...alarms.values()].filter((alarm) => scope.has(alarm.site.id));
      const listed = visible.filter((alarm) => {
        if (isResolvedAlarm(alarm)) return false;
        const grade = gradeOf(alarm.site.id);
        return grade === "complete" || (grade === "moving" && ((seen >> Number(alarm.id)) & 1) === 1);
      });
      const isVisible = (siteId: number) => lastScope.has(siteId);
      const absent = findAbsentAlarms(stored, listed, gradeOf, isVisible);
      const asStored = listed.map((alarm) => {
        const known = stored.get(alarm.id)?.alarm;
        return isDeepStrictEqual(known, alarm) && known !== undefined ? known : alarm;
      });
      expect(findAbsentAlarms(stored, asStored, gradeOf, isVisible)).toEqual(absent);
      const found = searches ? visible.filter((alarm) => absent.some((one) => one.alarm.id === alarm.id)) : [];
      const observation: SeenAlarms = {
        listed,
        coverage: gradeOf,
        foundRecords: found,
        searchedIds: new Set(searches ? absent.map((one) => one.alarm.id) : []),
        scope: searches ? { before: lastScope, after: new Set(scope) } : null,
      };
      if (searches) lastScope = new Set(scope);
      const isKnownSite = (siteId: number) => known.has(siteId);
      const options = { ...OPTIONS, at: iso(), startedAt: iso(), isKnownSite };
      const announcing = { ...options, startup: "announce" as const, isStartupOver: () => false };
      expect(diffOf(stored, { ...observation, listed: asStored }, announcing)).toEqual(
        diffOf(stored, observation, announcing),
      );
      const diff = diffOf(stored, observation, options);
      expect(diffOf(stored, { ...observation, listed: asStored }, options)).toEqual(diff);
      keep(diff);
      for (const siteId of SITES) if (gradeOf(siteId) === "complete" && scope.has(siteId)) known.add(siteId);
    },
    sweep() {
      const records = [...alarms.values()].filter((alarm) => scope.has(alarm.site.id) && isResolvedAlarm(alarm));
      const isBeforeFollowing = (alarm: Alarm) => !sweptSites.has(alarm.site.id);
      const options = { ...SWEEP_OPTIONS, at: iso(), isBeforeFollowing };
      const diff = diffResolvedAlarms(stored, records, options);
      expect(diffResolvedAlarms(stored, records, options)).toEqual(diff);
      keep(diff);
      for (const siteId of scope) sweptSites.add(siteId);
    },
  };
}

const complete: Step = { kind: "poll", coverage: ["complete", "complete"], seen: 31, searches: true };
const factOf = (event: Event) => event.data as AlarmFact & { readonly initial?: boolean };
const episodeOfEvent = (event: Event) => factOf(event).episode;

describe("diffAlarms for random alarms of the service and random polls", () => {
  test("emits all alarms within two complete polls, ends only alarms the service resolved, and repeats no event id", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const world = createWorld();
        world.apply({ kind: "sweep" });
        for (const next of steps) world.apply(next);
        world.apply({ kind: "scope", sites: SITES });
        for (let i = 0; i < 2; i += 1) world.apply(complete);
        const { log, alarms } = world;
        const emitted = (type: string) => new Set(log.filter((event) => event.type === type).map(episodeOfEvent));
        const raised = emitted("alarm-raised");
        for (const alarm of alarms.values()) {
          const episode = episodeKey(alarm);
          if (!isResolvedAlarm(alarm)) expect(raised).toContain(episode);
          else if (raised.has(episode)) expect(emitted("alarm-resolved")).toContain(episode);
        }
        world.apply(complete);
        world.apply({ kind: "sweep" });
        for (const event of log)
          if (event.type === "alarm-resolved") expect(world.resolved).toContain(factOf(event).episode);
        expect(new Set(log.map((event) => event.id)).size).toBe(log.length);
        expect(log.filter((event) => event.type === "alarm-raised").length).toBe(emitted("alarm-raised").size);

        // Replaying the log gives the alarms that are stored as open.
        const open = new Map<string, Alarm>();
        for (const event of log) {
          const { alarm } = factOf(event);
          if (event.type === "alarm-resolved" || event.type === "alarm-vanished") open.delete(alarm.id);
          else if (event.type === "alarm-acknowledged" && alarm.status === "resolved") continue;
          else open.set(alarm.id, alarm);
        }
        const stored = [...world.stored().values()].filter((one) => one.state === "active");
        expect(Object.fromEntries(open)).toEqual(Object.fromEntries(stored.map((one) => [one.alarm.id, one.alarm])));
        expect([...open.keys()].sort()).toEqual(
          [...alarms.values()]
            .filter((alarm) => !isResolvedAlarm(alarm))
            .map((alarm) => alarm.id)
            .sort(),
        );
      }),
      { numRuns: 400, ...replay },
    );
  });
});

function follow(...observations: readonly Partial<SeenAlarms>[]): readonly (readonly Event[])[] {
  let stored: ReadonlyMap<string, StoredAlarm> = new Map();
  return observations.map((seen, minute) => {
    const at = `2026-01-01T00:${String(minute).padStart(2, "0")}:00.000Z`;
    const diff = diffOf(stored, observation(seen), { ...OPTIONS, at, startedAt: at });
    stored = new Map([...stored, ...diff.put]);
    return diff.events;
  });
}

describe("the events that one poll emits for one alarm", () => {
  const at = (time: string) => `2026-11-02T06:${time}.000Z`;
  const emitted = (alarm: Partial<Alarm>, before: Partial<Alarm> = {}) =>
    follow({ listed: [{ ...ALARM, ...before }] }, { listed: [{ ...ALARM, ...before, ...alarm }] })[1];

  test("are ordered by time, and by kind when the times are equal", () => {
    const acknowledgement = { acknowledged: true, acknowledgedBy: "Kari", acknowledgedAt: at("30:00") };
    const both = { ...acknowledgement, lastActiveEvent: activity(9002, { triggeredAt: at("20:00") }) };
    expect(kindsOf(emitted(both))).toEqual(["retriggered", "acknowledged"]);
    const equal = { ...both, acknowledgedAt: at("20:00") };
    expect(kindsOf(emitted(equal))).toEqual(["acknowledged", "retriggered"]);
  });

  test("begin with alarm-raised even when the trigger time has no UTC offset", () => {
    const unsaid = { ...ALARM, triggeredAt: "2026-11-02T07:15:00", acknowledged: true };
    const [first] = follow({ listed: [{ ...unsaid, acknowledgedAt: at("00:00") }] });
    expect(kindsOf(first)).toEqual(["raised", "acknowledged"]);
  });
});

describe("unknown status texts", () => {
  const observe = (alarm: Partial<Alarm>) =>
    kindsOf(follow({ listed: [ALARM] }, { listed: [{ ...ALARM, ...alarm }], scope: null })[1]);

  test.each(["paused", "", "RESOLVED?", "closed"])("does not resolve an alarm with the status %j", (status) => {
    expect(observe({ status })).not.toContain("resolved");
  });

  test("emits nothing for an active alarm with an end time", () => {
    expect(observe({ resolvedAt: ALARM.triggeredAt })).toEqual([]);
  });

  test("resolves an alarm with the status resolved and no end time", () => {
    expect(observe({ status: "resolved" })).toContain("resolved");
  });
});

describe("alarm times", () => {
  test.each([
    ["2026-03-01T10:00:00.000Z", "2026-03-01T10:00:00Z", true],
    ["2026-03-01T10:00:00Z", "2026-03-01T10:00:01Z", false],
    ["2026-03-01T10:00:00", "2026-03-01T10:00:00Z", false],
    ["2026-12-31T23:59:60Z", "2026-12-31T23:59:60Z", true],
  ])("%s and %s belong to the same episode: %s", (a, b, same) => {
    const first = episodeKey({ ...ALARM, triggeredAt: a });
    expect(first === episodeKey({ ...ALARM, triggeredAt: b })).toBe(same);
  });
});

test("diffAlarms yields to the event loop after each alarm that may have changed, and not after an unchanged alarm", () => {
  const alarms = Array.from({ length: 300 }, (_, n): Alarm => ({ ...ALARM, id: String(n), status: "active" }));
  const stops = (stored: ReadonlyMap<string, StoredAlarm>, listed: readonly Alarm[]) =>
    [...diffAlarms(stored, observation({ listed, scope: null }), OPTIONS)].length;
  expect(stops(new Map(), alarms)).toBe(300);
  const { put } = diffOf(new Map(), observation({ listed: alarms, scope: null }), OPTIONS);
  const asStored = [...put.values()].map(({ alarm }) => alarm);
  expect(stops(put, asStored)).toBe(0);
  expect(stops(put, asStored.slice(100))).toBe(100);
});

test("splitAlarmDiff keeps the document and the events of an alarm in one commit, and marks the last commit", () => {
  const stored = (id: string) => [id, { alarm: { id } } as StoredAlarm] as const;
  const event = (id: string, n: number) => ({ id: `${id}.${n}`, data: { alarm: { id } } }) as unknown as Event;
  const events = [event("1", 1), event("2", 1), event("1", 2), event("4", 1)];
  expect([...splitAlarmDiff({ put: new Map(["1", "2", "3"].map(stored)), events }, 2)]).toEqual([
    { put: ["1", "2"].map(stored), events: [event("1", 1), event("1", 2), event("2", 1)], isLast: false },
    { put: [stored("3")], events: [event("4", 1)], isLast: true },
  ]);
});
