import type { Metrics } from "../../metrics.ts";
import type { HeldAlarm } from "../snapshot.ts";

/** Shows in the metrics how many alarms of each site and priority are held to be active. */
export function createActiveCounts(source: string, metrics: Pick<Metrics, "alarmsActive">) {
  /** By site, the priorities of which a count was shown. */
  const shown = new Map<number, Set<string>>();

  return (held: ReadonlyMap<string, HeldAlarm>): void => {
    const counts = new Map<number, Map<string, number>>();
    for (const { state, alarm } of held.values()) {
      if (state !== "active" && state !== "missing") continue;
      const ofSite = counts.get(alarm.site.id) ?? new Map<string, number>();
      counts.set(alarm.site.id, ofSite);
      const { priority } = alarm.trigger;
      ofSite.set(priority, (ofSite.get(priority) ?? 0) + 1);
    }
    // A count that was shown once goes to 0.
    for (const [site, priorities] of shown) {
      for (const priority of priorities)
        if (counts.get(site)?.get(priority) === undefined)
          metrics.alarmsActive.set({ source, site: String(site), priority }, 0);
    }
    for (const [site, ofSite] of counts) {
      const priorities = shown.get(site) ?? new Set();
      shown.set(site, priorities);
      for (const [priority, count] of ofSite) {
        priorities.add(priority);
        metrics.alarmsActive.set({ source, site: String(site), priority }, count);
      }
    }
  };
}
