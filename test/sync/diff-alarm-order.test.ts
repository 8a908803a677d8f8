import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Alarm } from "#src/core/model/building.ts";
import type { AlarmFact } from "#src/core/model/event.ts";
import { classifyRecords, type RecordCounts } from "#src/engine/sync/alarms/classify-alarm-records.ts";
import { beginEpisode } from "#src/engine/sync/alarms/diff-alarm.ts";
import { findAbsentAlarms, type SeenAlarms } from "#src/engine/sync/alarms/diff-alarms.ts";
import { diffResolvedAlarms } from "#src/engine/sync/alarms/diff-resolved-alarms.ts";
import { fillFromStoredAlarm, relateToEpisode } from "#src/engine/sync/alarms/episode.ts";
import type { StoredAlarm } from "#src/engine/sync/stored-documents.ts";
import { ALARM } from "../sample-events.ts";
import { activity, diffOf, OPTIONS, observation, SWEEP_OPTIONS } from "./diff-support.ts";

const at = (time: string) => `2026-11-02T${time}Z`;
const START = at("06:15:00.000");
const record = (triggeredAt: string, eventId: number | null, more: Partial<Alarm> = {}): Alarm => ({
  ...ALARM,
  triggeredAt,
  triggeredAtRaw: triggeredAt,
  lastActiveEvent: eventId === null ? null : activity(eventId),
  ...more,
});
const over = (resolvedAt: string): Partial<Alarm> => ({ status: "resolved", resolvedAt });

const storedOf = (alarm: Alarm, more: Partial<StoredAlarm> = {}): StoredAlarm => ({
  ...beginEpisode(alarm, false, OPTIONS).stored,
  ...more,
});

const times = (count: number, act: () => readonly string[]) => Array.from({ length: count }, act).flat();

/** One alarm and its events through polls and sweeps, a minute apart; the first poll lists `first`. */
function follow(first: readonly Alarm[] = []) {
  let stored: ReadonlyMap<string, StoredAlarm> = new Map();
  let minute = 0;
  const emitted: string[] = [];
  const ids: string[] = [];
  const facts: AlarmFact[] = [];
  let statements: RecordCounts = new Map();
  const keep = ({ put, events }: ReturnType<typeof diffResolvedAlarms>) => {
    stored = new Map([...stored, ...put]);
    emitted.push(...events.map(({ type }) => type.replace("alarm-", "")));
    ids.push(...events.map(({ id }) => id));
    facts.push(...events.map(({ data }) => data as AlarmFact));
  };
  const now = () => new Date(Date.parse(at("08:00:00")) + (minute++ as number) * 60_000).toISOString();
  const self = {
    emitted,
    ids,
    facts,
    stored: () => stored.get(ALARM.id) as StoredAlarm,
    poll(shown: readonly Alarm[], found: readonly Alarm[] = [], more: Partial<SeenAlarms> = {}) {
      const coverage = () => "complete" as const;
      const sorted = classifyRecords(statements, stored, shown, coverage);
      const absent = findAbsentAlarms(stored, sorted.listed, coverage, () => true).map(({ alarm }) => alarm.id);
      const lookedUp = found.filter(({ id }) => absent.includes(id));
      const seen = observation({ ...sorted, coverage, foundRecords: lookedUp, searchedIds: new Set(absent), ...more });
      keep(diffOf(stored, seen, { ...OPTIONS, at: now() }));
      statements = sorted.newCounts;
      return emitted.splice(0);
    },
    sweep(records: readonly Alarm[], more: Partial<Parameters<typeof diffResolvedAlarms>[2]> = {}) {
      keep(diffResolvedAlarms(stored, records, { ...SWEEP_OPTIONS, ...more, at: now() }));
      return emitted.splice(0);
    },
  };
  if (first.length > 0) self.poll(first);
  return self;
}

describe("an alarm record compared with the stored episode of its alarm", () => {
  test.each<[string, string, number | null, string]>([
    ["equal start, equal event number", START, 9001, "same"],
    ["equal start, later event number", START, 9002, "same"],
    ["equal start, lower event number", START, 9000, "past"],
    ["equal start, no event number", START, null, "same"],
    ["equal start in whole seconds", at("06:15:00"), 9001, "same"],
    ["start in the same second, with milliseconds", at("06:15:00.900"), 9001, "same"],
    ["later start, equal event number", at("07:15:00.000"), 9001, "same"],
    ["later start, later event number", at("07:15:00.000"), 9002, "newer"],
    ["later start, no event number", at("07:15:00.000"), null, "newer"],
    ["later start, lower event number", at("06:15:01.000"), 9000, "newer"],
    ["earlier start, equal event number", at("06:14:57.000"), 9001, "same"],
    ["earlier start, later event number", at("05:15:00.000"), 9002, "newer"],
    ["earlier start, lower event number", at("05:15:00.000"), 9000, "past"],
    ["earlier start, no event number", at("05:15:00.000"), null, "past"],
    ["start without an offset, equal event number", "2026-11-02T07:15:00", 9001, "same"],
    ["start without an offset, later event number", "2026-11-02T07:15:00", 9002, "newer"],
    ["start without an offset, lower event number", "2026-11-02T07:15:00", 9000, "past"],
    ["start without an offset, no event number", "2026-11-02T07:15:00", null, "newer"],
  ])("is assigned to the stored, an earlier or a later episode: %s", (_what, triggeredAt, eventId, expected) => {
    expect(relateToEpisode(storedOf(record(START, 9001)), record(triggeredAt, eventId))).toBe(expected);
  });

  test("has its time compared to the millisecond only when both times have milliseconds", () => {
    const known = storedOf(record(at("06:15:00.123"), null));
    expect(relateToEpisode(known, record(at("06:15:00.124"), null))).toBe("newer");
    expect(relateToEpisode(known, record(at("06:15:00.000"), null))).toBe("same");
  });

  test("is compared by the event number when the stored time has no UTC offset", () => {
    const known = storedOf(record("2026-11-02T07:15:00", 9001));
    expect(relateToEpisode(known, record(START, 9001))).toBe("same");
    expect(relateToEpisode(known, record(START, 9000))).toBe("past");
    expect(fillFromStoredAlarm(known, record(START, 9001)).triggeredAt).toBe(START);
  });

  test("that ended before the stored start belongs to the episode only if it has the same event number", () => {
    const known = storedOf(record(START, 9001));
    const older = (id: number | null) => record(at("06:14:00.000"), id, over(at("06:14:59.000")));
    expect(relateToEpisode(known, older(9001))).toBe("same");
    expect(relateToEpisode(known, older(null))).toBe("past");
  });

  test("belongs to another episode if it has the same event number and another trigger", () => {
    const trigger = { ...ALARM.trigger, id: ALARM.trigger.id + 1 };
    expect(relateToEpisode(storedOf(record(START, 9001)), record(at("07:15:00.000"), 9001, { trigger }))).toBe("newer");
  });

  test("changes the stored start to an earlier time at once, and to a later time only when that time is confirmed", () => {
    const known = storedOf(record(START, 9001));
    const corrected = record(at("06:14:57.000"), 9001);
    expect(fillFromStoredAlarm(known, corrected)).toEqual(corrected);
    const stored = { ...known, alarm: corrected };
    for (const time of [START, at("06:14:58.500"), at("06:14:57.300"), at("06:15:00.700")]) {
      expect(relateToEpisode(stored, record(time, 9001))).toBe("same");
      expect(fillFromStoredAlarm(stored, record(time, 9001))).toEqual(corrected);
    }
    const later = record(at("07:15:00.000"), 9001);
    expect(relateToEpisode(stored, later)).toBe("same");
    expect(fillFromStoredAlarm(stored, later)).toEqual(corrected);
    expect(fillFromStoredAlarm(stored, later, true)).toEqual(later);
    expect(relateToEpisode(stored, record(at("06:14:58.500"), 9002))).toBe("newer");
    expect(fillFromStoredAlarm(stored, record("2026-11-02T07:15:00", 9001))).toEqual(corrected);
    expect(fillFromStoredAlarm(stored, record("2026-11-02T07:15:00", 9002)).triggeredAt).toBe("2026-11-02T07:15:00");
  });
});

describe("alarms of a service whose clock ran ahead and was set back", () => {
  const ahead = record(at("07:15:00.000"), 9001);
  const again = record(START, 9002);

  test("emit beginning and end of the next episode although it starts before the previous episode", () => {
    const one = follow();
    expect(one.poll([ahead])).toEqual(["raised"]);
    expect(one.poll([], [{ ...ahead, ...over(at("07:20:00.000")) }])).toEqual(["resolved"]);
    expect(one.poll([again])).toEqual(["raised"]);
    expect(one.poll([again])).toEqual([]);
    expect(one.poll([], [{ ...again, ...over(at("06:16:00.000")) }])).toEqual(["resolved"]);
    expect(new Set(one.ids).size).toBe(4);
  });

  test("emit an episode found only in the list of resolved alarms although it starts before the previous episode", () => {
    const one = follow([ahead]);
    one.poll([], [{ ...ahead, ...over(at("07:20:00.000")) }]);
    const ended = { ...again, ...over(at("06:16:00.000")) };
    expect(one.sweep([ended])).toEqual(["raised", "resolved"]);
    expect(one.sweep([ended])).toEqual([]);
  });

  test("emit a change when the start of an active alarm is corrected, and later the end of the same episode", () => {
    const one = follow([record(START, 9001)]);
    const corrected = record(at("06:14:57.000"), 9001);
    expect(one.poll([corrected])).toEqual(["changed"]);
    expect(one.poll([record(START, 9001)])).toEqual([]);
    expect(one.poll([corrected])).toEqual([]);
    expect(one.poll([], [{ ...corrected, ...over(at("06:16:00.000")) }])).toEqual(["resolved"]);
  });
});

describe("an outdated record in the list of active alarms", () => {
  const older = record(at("05:15:00.000"), null);
  test("begins another episode at the tenth poll after the last episode ended", () => {
    const one = follow([record(START, 9001)]);
    one.poll([], [record(START, 9001, over(at("06:20:00.000")))]);
    expect(times(9, () => one.poll([older]))).toEqual([]);
    expect(one.poll([older])).toEqual(["raised"]);
    expect(one.poll([older])).toEqual([]);
  });

  test("corrects the start of an active alarm at the tenth poll", () => {
    const one = follow();
    const now = record(START, null);
    one.poll([now]);
    expect(times(9, () => one.poll([older]))).toEqual([]);
    expect(one.poll([older])).toEqual(["changed"]);
    expect(one.poll([now])).toEqual([]);
    expect(one.poll([], [{ ...older, ...over(at("06:20:00.000")) }])).toEqual(["resolved"]);
  });

  test("changes nothing in an active alarm if its event number is lower than the stored one", () => {
    const one = follow([record(START, 9001)]);
    expect(times(12, () => one.poll([record(START, 9000)]))).toEqual([]);
    expect(times(12, () => one.poll([record(at("05:15:00.000"), 9000)]))).toEqual([]);
    expect(one.poll([record(START, 9002)])).toEqual(["retriggered"]);
  });
});

describe("the lists of active and resolved alarms when they disagree about an end", () => {
  const open = record(START, 9001);
  const ended = record(START, 9001, over(at("06:20:00.000")));
  const reopened = record(START, 9002);

  test("cause one alarm-resolved for the old end of an episode that is active again", () => {
    const one = follow([open]);
    expect(one.poll([], [ended])).toEqual(["resolved"]);
    expect(one.poll([reopened])).toEqual(["retriggered"]);
    const both = () => [...one.sweep([ended]), ...one.poll([reopened])];
    expect(times(5, both)).toEqual([]);
    const again = { ...reopened, ...over(at("06:30:00.000")) };
    expect(one.sweep([ended, again])).toEqual(["resolved"]);
    expect(one.sweep([ended, again])).toEqual([]);
  });

  test("cause a second alarm-resolved with the same end time if a later event reopened the alarm in between", () => {
    const one = follow([open]);
    one.poll([], [ended]);
    one.poll([reopened]);
    expect(one.poll([], [{ ...ended, lastActiveEvent: activity(9002) }])).toEqual(["resolved"]);
  });

  test("cause a record with a lower event number to be accepted after ten polls if another field changed", () => {
    const one = follow([record(START, 9001)]);
    const anew = record(START, 40);
    expect(times(20, () => one.poll([anew]))).toEqual([]);
    const seen = { ...anew, acknowledged: true, acknowledgedBy: "Eve" };
    expect(one.poll([seen])).toEqual(["acknowledged", "changed"]);
    expect(times(20, () => one.poll([seen]))).toEqual([]);
    expect(one.poll([], [{ ...seen, ...over(at("06:40:00.000")) }])).toEqual(["resolved"]);

    const other = follow([record(START, 9001)]);
    expect(times(9, () => other.poll([seen]))).toEqual([]);
    expect(other.poll([record(START, 9001)])).toEqual([]);
    expect(times(9, () => other.poll([seen]))).toEqual([]);
  });

  test("reopen an alarm after ten polls, and end it again once both lists state the same end", () => {
    const one = follow([open]);
    one.sweep([ended]);
    times(9, () => one.poll([open]));
    expect(one.poll([open])).toEqual(["retriggered"]);
    expect(one.sweep([ended])).toEqual([]);
    expect(one.poll([], [ended], { coverage: () => "moving" })).toEqual([]);
    expect(one.poll([], [ended])).toEqual([]);
    expect(one.sweep([ended])).toEqual([]);
    expect(one.poll([], [ended])).toEqual(["resolved"]);
    expect(times(30, () => one.poll([open]))).toEqual([]);
    expect(one.poll([reopened])).toEqual(["retriggered"]);
    expect(new Set(one.ids).size).toBe(one.ids.length);
  });

  test("cause no further end after an emitted end with an unreadable time", () => {
    const one = follow();
    const unread = { ...open, ...over("yesterday") };
    one.poll([open]);
    one.sweep([unread]);
    times(10, () => one.poll([open]));
    expect(one.stored().ended).toEqual({ endMs: null, eventId: 9001 });
    expect(one.sweep([unread, ended])).toEqual([]);
  });

  test("end a vanished alarm with the end of an earlier event, unless that end was emitted before", () => {
    const one = follow([open]);
    one.poll([reopened]);
    one.poll([]);
    expect(one.poll([])).toEqual(["vanished"]);
    expect(one.sweep([ended])).toEqual(["resolved"]);
    const other = follow([open]);
    other.poll([], [ended]);
    other.poll([reopened]);
    other.poll([]);
    expect(other.poll([])).toEqual(["vanished"]);
    expect(other.sweep([ended])).toEqual([]);
    expect(
      other.sweep([record(at("05:15:00.000"), 9000, over(at("05:20:00.000")))], { fromMs: Date.parse(START) }),
    ).toEqual([]);
    expect(other.sweep([{ ...reopened, ...over(at("06:30:00.000")) }])).toEqual(["resolved"]);
  });

  test("cause one alarm-acknowledged, for the last of several ends", () => {
    const acknowledged = (who: string): Partial<Alarm> => ({ acknowledged: true, acknowledgedBy: who });
    const rows = [
      { ...ended, ...acknowledged("Kari") },
      { ...ended, ...over(at("06:30:00.000")), ...acknowledged("Ola") },
    ];
    const one = follow([open]);
    one.poll([], [ended]);
    expect(one.sweep(rows)).toEqual(["acknowledged"]);
    expect(one.stored().alarm.acknowledgedBy).toBe("Ola");
    expect(one.sweep(rows)).toEqual([]);
  });

  test("repeated 60 times at random, cause no repeated event id, and only alarm-changed after the fortieth repetition", () => {
    const time = fc.constantFrom(START, at("06:15:00.123"), at("06:14:57.000"), at("07:15:00"), "2026-11-02T07:15:00");
    const row = fc.tuple(time, fc.constantFrom(null, 9000, 9001, 9002)).map(([start, id]) => record(start, id));
    const end = fc
      .tuple(row, fc.constantFrom(at("06:20:00.000"), at("07:30:00.500")))
      .map(([alarm, resolvedAt]) => ({ ...alarm, ...over(resolvedAt) }));
    const look = fc.oneof(
      fc.record({ shown: fc.array(row, { maxLength: 2 }), found: fc.array(end, { maxLength: 2 }) }),
      fc.record({ swept: fc.array(end, { maxLength: 3 }) }),
    );
    const seen = { scope: null };
    fc.assert(
      fc.property(fc.array(look, { minLength: 1, maxLength: 7 }), (looks) => {
        const one = follow();
        const cycle = () =>
          looks.flatMap((each) => ("swept" in each ? one.sweep(each.swept) : one.poll(each.shown, each.found, seen)));
        const emitted = Array.from({ length: 60 }, cycle);
        expect(
          emitted
            .slice(40)
            .flat()
            .filter((kind) => kind !== "changed"),
        ).toEqual([]);
        expect(new Set(one.ids).size).toBe(one.ids.length);
      }),
      { numRuns: 300 },
    );
  });
});

describe("an earlier episode found after a later episode of the same alarm", () => {
  const first = record(at("06:15:00.000"), 9001, over(at("06:16:00.000")));
  const second = record(at("06:17:00.000"), 9002);

  test("is emitted once, marked late and superseded, and the alarm stays active", () => {
    const one = follow();
    expect(one.poll([second])).toEqual(["raised"]);
    expect(one.sweep([first])).toEqual(["raised", "resolved"]);
    expect(one.facts.slice(-2)).toMatchObject([
      { late: true, superseded: true, episode: `${ALARM.id}@${first.triggeredAt}` },
      { late: true, superseded: true, episode: `${ALARM.id}@${first.triggeredAt}` },
    ]);
    expect(one.stored()).toMatchObject({ alarm: second, state: "active" });
    expect(one.sweep([first])).toEqual([]);
    const end = one.poll([], [{ ...second, ...over(at("06:20:00.000")) }]);
    expect(end).toEqual(["resolved"]);
    expect(one.facts.at(-1)).not.toHaveProperty("superseded");
    expect(one.sweep([first, { ...second, ...over(at("06:20:00.000")) }])).toEqual([]);
    expect(new Set(one.ids).size).toBe(4);
  });

  test("is stored without an event if it is older than the time from which alarms are followed", () => {
    const one = follow([second]);
    expect(one.sweep([first], { isBeforeFollowing: () => true })).toEqual([]);
    expect(one.sweep([first])).toEqual([]);
  });

  test("is not emitted if it was emitted before or is too old", () => {
    const one = follow([record(first.triggeredAt, 9001)]);
    expect(one.poll([second])).toEqual(["vanished", "raised"]);
    expect(one.sweep([first])).toEqual([]);
    const other = follow([second]);
    expect(other.sweep([first], { fromMs: Date.parse(at("06:16:01")) })).toEqual([]);
    expect(other.stored()).not.toHaveProperty("former");
  });

  test("counts as the stored episode if it has the same event number and an earlier start", () => {
    const now = record(at("06:17:00.000"), 9001);
    const one = follow([now]);
    expect(one.sweep([first])).toEqual([]);
    const end = { ...now, ...over(at("06:20:00.000")) };
    expect(one.poll([], [end])).toEqual(["resolved"]);
    expect(one.sweep([first, end])).toEqual([]);
  });

  test("is emitted for each of thirty episodes, of which the latest twenty are stored", () => {
    const start = (minute: number) => new Date(Date.parse(START) + minute * 60_000).toISOString();
    const rows = Array.from({ length: 30 }, (_, n) => record(start(n), 9000 + n, over(start(n + 0.5))));
    const one = follow([record(start(30), 9030)]);
    const emitted = one.sweep(rows);
    expect(emitted).toHaveLength(60);
    expect(one.stored().former).toHaveLength(20);
    expect(one.sweep(rows)).toEqual([]);
    const unread = record("2026-11-02T07:00:00", 9001, over(start(31)));
    expect(one.sweep([unread])).toEqual([]);
  });

  test("is not emitted when a later episode becomes active, if it was stored without an event before", () => {
    const one = follow();
    one.sweep([first, { ...second, ...over(at("06:18:00.000")) }], { isBeforeFollowing: () => true });
    expect(one.poll([second])).toEqual(["raised"]);
    expect(one.sweep([first])).toEqual([]);
  });
});
