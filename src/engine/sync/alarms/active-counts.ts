import type { StoredAlarm } from "../snapshot.ts";

export type ActiveCounts = ReadonlyMap<number, ReadonlyMap<string, number>>;

export function createActiveCounts() {
  const counts = new Map<number, Map<string, number>>();

  function add(held: StoredAlarm | undefined, by: 1 | -1): void {
    if (held?.state !== "active" && held?.state !== "missing") return;
    const { site, trigger } = held.alarm;
    const ofSite = counts.get(site.id) ?? new Map<string, number>();
    counts.set(site.id, ofSite);
    const count = (ofSite.get(trigger.priority) ?? 0) + by;
    if (count === 0) ofSite.delete(trigger.priority);
    else ofSite.set(trigger.priority, count);
    if (ofSite.size === 0) counts.delete(site.id);
  }

  return {
    counts: counts as ActiveCounts,
    changed(before: StoredAlarm | undefined, after: StoredAlarm | undefined): void {
      add(before, -1);
      add(after, 1);
    },
  };
}
