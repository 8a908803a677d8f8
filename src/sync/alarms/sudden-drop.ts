import type { Log } from "../../log.ts";
import type { HeldAlarm } from "../snapshot.ts";

/** How many alarms left the list at once, of how many that were active, and where. */
export interface Drop {
  readonly siteIds: ReadonlySet<number>;
  readonly gone: number;
  readonly of: number;
}

/**
 * From how many alarms on that go at once without a word a drop is suspicious. Below it is everyday life: one of one is
 * gone, two of three. Five that go together, none of them resolved by the service's word, are rarely deleted one by one;
 * more often the answer came from a cache, a replica or an index that was being built.
 */
const LEAST = 5;
/** Polls in a row that must show the same drop: five minutes at one poll per 30 s, the life of a usual cache. */
const READINGS = 10;

/**
 * Whether more than half of what was active left the list at once, at one site or at all of them together. Pure.
 *
 * What was missed once already does not count as active: its absence has been confirmed.
 */
export function dropIn(
  held: ReadonlyMap<string, HeldAlarm>,
  isThere: (known: HeldAlarm) => boolean,
  isObserved: (siteId: number) => boolean,
): Drop | null {
  const counts = new Map<number, { siteId: number; gone: number; of: number }>();
  for (const known of held.values()) {
    const siteId = known.alarm.site.id;
    if (known.state !== "active" || !isObserved(siteId)) continue;
    const count = counts.get(siteId) ?? { siteId, gone: 0, of: 0 };
    counts.set(siteId, count);
    count.of += 1;
    if (!isThere(known)) count.gone += 1;
  }
  const sites = [...counts.values()];
  const all = { gone: sumOf(sites, "gone"), of: sumOf(sites, "of") };
  const dropped = isDrop(all) ? sites.filter((site) => site.gone > 0) : sites.filter(isDrop);
  if (dropped.length === 0) return null;
  const siteIds = new Set(dropped.map((site) => site.siteId));
  return { siteIds, gone: sumOf(dropped, "gone"), of: sumOf(dropped, "of") };
}

function isDrop({ gone, of }: { readonly gone: number; readonly of: number }): boolean {
  return gone >= LEAST && 2 * gone > of;
}

function sumOf(
  sites: readonly { readonly gone: number; readonly of: number }[],
  what: "gone" | "of",
): number {
  return sites.reduce((sum, site) => sum + site[what], 0);
}

export interface DropDoubt {
  /** The sites of whose list no absence is believed now, for what is left unexplained of a drop; and a sentence. */
  judge(drop: Drop | null, isObserved: (siteId: number) => boolean): Doubted;
  /** Whether the list of a site has dropped and was not confirmed yet: then each reading of it counts. */
  isOpen(siteId: number): boolean;
}

interface Doubted {
  readonly siteIds: ReadonlySet<number>;
  readonly remark: string | null;
}

/**
 * Keeps the alarms of a dropped list as they are until ten polls in a row have shown the same; then they count as
 * missing, as any other alarm would. The drop is measured against the alarms that the store holds as active, so it is
 * found again after a restart, and the count begins anew.
 */
export function createDropDoubt(log: Pick<Log, "info" | "warn">): DropDoubt {
  const readings = new Map<number, number>();

  return {
    isOpen: (siteId) => readings.has(siteId),
    judge(drop, isObserved) {
      const over = [...readings.keys()].filter((siteId) => isObserved(siteId) && !drop?.siteIds.has(siteId));
      for (const siteId of over) readings.delete(siteId);
      if (over.length > 0) log.info({ sites: over }, "a list of alarms that had dropped counts again");

      const began = [...(drop?.siteIds ?? [])].filter((siteId) => !readings.has(siteId));
      for (const siteId of drop?.siteIds ?? []) readings.set(siteId, (readings.get(siteId) ?? 0) + 1);
      if (drop === null) return { siteIds: new Set(), remark: null };
      const { gone, of } = drop;
      if (began.length > 0) {
        log.warn(
          { sites: began, gone, of, readings: READINGS },
          "more than half of the active alarms left the list at once: held until it is confirmed or explained",
        );
      }
      const siteIds = new Set([...drop.siteIds].filter((siteId) => (readings.get(siteId) ?? 0) <= READINGS));
      const confirmed = [...drop.siteIds].filter((siteId) => readings.get(siteId) === READINGS + 1);
      if (confirmed.length > 0)
        log.warn({ sites: confirmed }, "the drop is confirmed: what left the list is missing");
      const where = `site ${[...siteIds].join(", ")}`;
      const remark = `${gone} of ${of} active alarms left the list at once (${where}) without a word of the service: they are held until ${READINGS} polls have shown the same.`;
      return { siteIds, remark: siteIds.size === 0 ? null : remark };
    },
  };
}
