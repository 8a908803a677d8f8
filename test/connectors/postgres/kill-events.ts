import type { Event } from "#src/core/model/event.ts";
import { ALARM, sampleEvent, TAG, valueEvent } from "../../sample-events.ts";

const BEGAN_MS = Date.parse("2026-11-02T06:20:00.000Z");
const BUCKET_MS = 300_000;
const POINTS = 40;
const TAGS = 40;

export function eventNo(n: number): Event {
  const time = new Date(BEGAN_MS + n).toISOString();
  switch (n % 10) {
    case 7: {
      const event = sampleEvent("tag-history", { time }, n);
      return { ...event, data: { ...event.data, points: pointsOf(n) } };
    }
    case 8:
      return alarmNo(n, time);
    case 9: {
      const event = sampleEvent("tag-changed", { time, subject: `site/1/tag/${tagOf(n)}` }, n);
      return { ...event, data: { ...event.data, tag: { ...TAG, id: tagOf(n), unit: `u${n}` } } };
    }
    default:
      return valueEvent(n, tagOf(n), n);
  }
}

const tagOf = (n: number) => String(10_000 + (n % TAGS));

function pointsOf(n: number) {
  return Array.from({ length: POINTS }, (_, at) => ({
    time: new Date(BEGAN_MS - (n * POINTS + at) * BUCKET_MS).toISOString(),
    value: n + at,
  })).reverse();
}

function alarmNo(n: number, time: string): Event {
  const kind = (["alarm-raised", "alarm-acknowledged", "alarm-resolved"] as const)[Math.floor(n / 10) % 3];
  const event = sampleEvent(kind ?? "alarm-raised", { time }, n);
  const id = String(Math.floor(n / 30));
  return { ...event, data: { ...event.data, episode: id, alarm: { ...ALARM, id } } } as Event;
}

const rowOf = (...cells: readonly unknown[]) => JSON.stringify(cells);

export function expectedRows(count: number): readonly string[] {
  const rows: string[] = [];
  const states = new Map<string, { row: readonly unknown[]; from: number }>();
  const episodes = new Map<string, string>();
  for (let n = 0; n < count; n++) {
    const { id } = eventNo(n);
    if (n % 10 === 7) {
      for (const { time, value } of pointsOf(n)) rows.push(rowOf("history", id, Date.parse(time), value));
    } else if (n % 10 === 8) {
      rows.push(rowOf("alarm", id));
      episodes.set(String(Math.floor(n / 30)), Math.floor(n / 10) % 3 === 2 ? "resolved" : "active");
    } else if (n % 10 === 9) {
      const before = states.get(tagOf(n));
      if (before !== undefined) rows.push(rowOf(...before.row, before.from, BEGAN_MS + n, false));
      states.set(tagOf(n), { row: ["tag", tagOf(n), `u${n}`], from: BEGAN_MS + n });
    } else rows.push(rowOf("value", id, n));
  }
  for (const { row, from } of states.values()) rows.push(rowOf(...row, from, null, true));
  for (const [episode, state] of episodes) rows.push(rowOf("alarm_episode", episode, state));
  return rows;
}

export const READ_ROWS = `select * from (
select json_build_array('value', event_id, value_number) from plenum.value
union all select json_build_array('history', event_id, (extract(epoch from time) * 1000)::bigint, value_number) from plenum.history
union all select json_build_array('alarm', event_id) from plenum.alarm
union all select json_build_array('alarm_episode', episode, state) from plenum.alarm_episode
union all select json_build_array('tag', tag_id, unit, (extract(epoch from valid_from) * 1000)::bigint,
  (extract(epoch from valid_to) * 1000)::bigint, is_current) from plenum.tag
) as every(cells)`;
