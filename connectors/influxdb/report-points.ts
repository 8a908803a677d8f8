import type { Event } from "../../src/core/model/event.ts";
import type { DayAccount } from "../../src/core/model/history-facts.ts";
import type { Parts, PointParts } from "./point.ts";

export function tagSystemsPoint({ id, type, time, data }: Event<"tag-systems-changed">): Parts {
  return {
    measurement: "inventory_event",
    tags: { type, object: "tag", object_id: data.tag.id },
    fields: {
      display_name: data.tag.displayName,
      description: data.tag.description,
      unit: data.tag.unit,
      systems: data.systems.map((system) => system.id).join(","),
      systems_before: data.before.join(","),
      event_id: id,
    },
    time,
  };
}

/** Point for an annotation in a graph: the series changes here. */
export function breakPoint({ id, time, data }: Event<"series-break">): Parts {
  const { tag, before, since, systems } = data;
  return {
    measurement: "series_break",
    tags: { tag_id: tag.id },
    fields: {
      what: data.what.join(","),
      display_name: tag.displayName,
      display_name_before: before.displayName,
      unit: tag.unit,
      unit_before: before.unit,
      systems: systems?.join(","),
      systems_before: before.systems?.join(","),
      last_before: since.lastBefore,
      event_id: id,
    },
    time,
  };
}

/** Yields one point for the report, and one for each finding. */
export function* sensorPoints({ id, data }: Event<"silent-sensors">): Generator<Omit<Parts, "time">> {
  const { counts, findings, part } = data;
  yield {
    measurement: "silent_sensors",
    tags: { part: String(part) },
    fields: {
      tags: data.tags,
      judged: data.judged,
      watched_hours: data.watchedHours,
      never_moved: counts["never-moved"],
      always_null: counts["always-null"],
      log_differs: counts["log-differs"],
      log_clock_off: counts["log-clock-off"],
      from: data.from,
      parts: data.parts,
      event_id: id,
    },
  };
  for (const { finding, tag, message, readings, value, logged, pairs, lagMs, resolution } of findings)
    yield {
      measurement: "silent_sensor",
      tags: { tag_id: tag.id, finding },
      fields: {
        display_name: tag.displayName,
        unit: tag.unit,
        message,
        readings,
        value,
        logged,
        pairs,
        lag_ms: lagMs,
        resolution,
        event_id: id,
      },
    };
}

export function completePoint({ id, time, data }: Event<"history-complete">): Parts {
  const common = { measurement: "history_complete", time };
  const tags = { resolution: data.resolution, time_zone: data.timeZone, total: String(data.total) };
  if ("site" in data) {
    const { from, until, series, waitingCount } = data;
    return { ...common, tags, fields: { from, until, series, waiting: waitingCount, event_id: id } };
  }
  const { firstDate, lastDate } = data;
  return {
    ...common,
    tags: { ...tags, tag_id: data.tag.id },
    fields: { first_date: firstDate, last_date: lastDate, ...accountFields(data), event_id: id },
  };
}

/** Point of a complete day, at its start, so that a revision overwrites the earlier one. */
export function sealedPoint({ id, time, data }: Event<"day-sealed">): Parts {
  const { date, revision, revised, series } = data;
  return {
    measurement: "day_sealed",
    tags: {},
    fields: { revision, revised, series, ...accountFields(data), sealed_at: time, event_id: id },
    time: `${date}T00:00:00Z`,
  };
}

function accountFields(account: DayAccount): PointParts["fields"] {
  return {
    expected: account.expected,
    had: account.had,
    null: account.null,
    absent: account.absent,
    without_log: account.withoutLog,
    refused: account.refused,
    pending: account.pending,
    not_wanted: account.notWanted,
  };
}
