import type { Alarm } from "../../core/model/building.ts";
import { documentSet } from "../../engine/store/store.ts";
import type { StoredAlarm } from "../../engine/sync/snapshot.ts";
import { type CachedDocuments, WATCHED_MS } from "./cached-documents.ts";
import type { AlarmBrief } from "./responses.ts";
import { isShown } from "./rows.ts";

export function briefOf(source: string, { alarm, episode, state, since }: StoredAlarm): AlarmBrief {
  const isOver = state === "resolved" || state === "vanished";
  return { ...briefly(source, alarm, episode, state), endedAt: isOver ? (alarm.resolvedAt ?? since) : null };
}

/** Summary of an alarm event. */
export function briefly(source: string, alarm: Alarm, episode: string, state: string): AlarmBrief {
  return {
    source,
    id: alarm.id,
    episode,
    name: alarm.trigger.displayName,
    site: alarm.site.displayName,
    priority: alarm.trigger.priority,
    state,
    raisedAt: alarm.triggeredAt,
    endedAt: alarm.resolvedAt,
  };
}

/** The alarms of a source that are active, or may be: highest priority first, then the newest. */
export async function activeAlarms(
  remembered: CachedDocuments,
  source: string,
  fits: (alarm: Alarm) => boolean,
): Promise<readonly AlarmBrief[]> {
  const held = await remembered.documents<StoredAlarm>(documentSet("alarm", source), WATCHED_MS);
  return [...held.values()]
    .filter((each) => isShown(each) && fits(each.alarm))
    .map((each) => briefOf(source, each))
    .sort((a, b) => a.priority.localeCompare(b.priority) || Date.parse(b.raisedAt) - Date.parse(a.raisedAt));
}
