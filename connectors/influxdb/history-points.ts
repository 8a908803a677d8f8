import type { Event } from "../../src/core/model/event.ts";
import type { DayAccount } from "../../src/core/model/history-facts.ts";
import type { Parts, PointParts } from "./line.ts";

/** What is known of days of logged history, as points. */

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

/** Stands at the beginning of its day, so that a revision overwrites what was told before. */
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
