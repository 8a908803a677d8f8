import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";

/**
 * Notices that much of what is known of live values changes at once: a fault of the service or of a gateway is then likelier
 * than that many devices changed. Values are published all the same, because a reading is never invented and never
 * suppressed: nulls as `bad`, a reply with changed types as `uncertain`.
 */
export interface SuddenChanges {
  /**
   * Takes the committed readings of one reply. Returns the sites of which many values have turned null: a reason to read
   * their lists of gateways now.
   */
  committed(readings: readonly JudgedReading[]): ReadonlySet<number>;
  /** Changes that neither a further reading nor the end of the nulls has settled yet. */
  current(): readonly SuddenChange[];
}

export interface JudgedReading {
  readonly id: string;
  readonly siteId: number;
  readonly isNull: boolean;
  /** True where the reading before was a value and this one is null. */
  readonly turnedNull: boolean;
  /** True where the tag has had a value before, and so has a known type. */
  readonly wasKnown: boolean;
  /** True for the first reading of a type that is not believed. */
  readonly isNewType: boolean;
  /** True while the type of its last value is not believed. */
  readonly isTypeInDoubt: boolean;
}

export interface SuddenChange {
  readonly what: "types" | "nulls";
  readonly siteIds: readonly number[];
  /** UTC. */
  readonly since: string;
  /** Tags that changed and are not settled yet. */
  readonly tags: number;
}

/** From so many tags on a change is sudden; fewer change together every day, with one device. */
const LEAST = 5;
/** Readings of a site that are compared: as many as one reply has. */
const LATEST = 20;

/** Whether more than a third of the known types in a reply, and 5 at least, change with it: 7 of 20, 5 of 14. */
export function isTypeUpset(readings: readonly Pick<JudgedReading, "wasKnown" | "isNewType">[]): boolean {
  const known = readings.filter(({ wasKnown }) => wasKnown).length;
  const changed = readings.filter(({ isNewType }) => isNewType).length;
  return changed >= LEAST && 3 * changed > known;
}

interface Open {
  readonly sinceMs: number;
  readonly siteIds: Set<number>;
  readonly ids: Set<string>;
  most: number;
}

export function createSuddenChanges(
  clock: Pick<Clock, "now">,
  log: Pick<Log, "info" | "warn">,
  isWatched: (id: string) => boolean,
): SuddenChanges {
  /** By site, its tags that were read last, the latest at the end, and whether each turned null just then. */
  const latest = new Map<number, Map<string, boolean>>();
  const nulls = new Map<number, Open>();
  let types: Open | null = null;

  const opened = (): Open => ({ sinceMs: clock.now(), siteIds: new Set(), ids: new Set(), most: 0 });

  function add(open: Open, siteId: number, id: string): void {
    open.siteIds.add(siteId);
    open.ids.add(id);
    open.most = Math.max(open.most, open.ids.size);
  }

  /** Removes the tags that are settled, and those that are not read any more. */
  function settle(open: Open | null, settled: readonly JudgedReading[]): void {
    for (const { id } of settled) open?.ids.delete(id);
    for (const id of open?.ids ?? []) if (!isWatched(id)) open?.ids.delete(id);
  }

  function noteTypes(readings: readonly JudgedReading[]): void {
    settle(
      types,
      readings.filter(({ isNull, isTypeInDoubt }) => !isNull && !isTypeInDoubt),
    );
    if (isTypeUpset(readings)) {
      const changed = readings.filter(({ isNewType }) => isNewType);
      types ??= opened();
      for (const { id, siteId } of changed) add(types, siteId, id);
      log.warn(
        { tags: changed.map(({ id }) => id), read: readings.length },
        "more than a third of the values of a reply changed between number and boolean: they are uncertain until a further reading confirms them",
      );
    } else if (types?.ids.size === 0) {
      types = null;
      log.info(
        {},
        "the values that changed their type at once are confirmed, or have their former type again",
      );
    }
  }

  /** Whether many of the tags of a site that were read last turned null: 5 of the last 20, or all where they are fewer. */
  function isNullUpset(siteId: number): boolean {
    const tags = [...(latest.get(siteId)?.values() ?? [])];
    return tags.filter(Boolean).length >= Math.max(2, Math.min(LEAST, tags.length));
  }

  function noteNulls(siteId: number, readings: readonly JudgedReading[]): boolean {
    const tags = latest.get(siteId) ?? new Map<string, boolean>();
    latest.set(siteId, tags);
    for (const { id, turnedNull } of readings) {
      tags.delete(id);
      tags.set(id, turnedNull);
    }
    for (const id of tags.keys()) if (tags.size > LATEST) tags.delete(id);
    const turned = readings.filter(({ turnedNull }) => turnedNull).map(({ id }) => id);
    const isUpset = turned.length > 0 && isNullUpset(siteId);
    const known = nulls.get(siteId);
    if (known !== undefined) {
      settle(
        known,
        readings.filter(({ isNull }) => !isNull),
      );
      for (const id of turned) add(known, siteId, id);
      if (2 * known.ids.size >= known.most) return isUpset;
      nulls.delete(siteId);
      log.info({ site: siteId }, "most of the values that turned null at once can be read again");
    } else if (isUpset) {
      const begun = opened();
      for (const [id, isTurned] of tags) if (isTurned) add(begun, siteId, id);
      nulls.set(siteId, begun);
      log.warn(
        { site: siteId, tags: [...begun.ids], read: tags.size },
        "many values of a site turned null at once: they are published as bad",
      );
    }
    return isUpset;
  }

  return {
    committed(readings) {
      noteTypes(readings);
      const bySite = Map.groupBy(readings, ({ siteId }) => siteId);
      return new Set([...bySite].flatMap(([siteId, own]) => (noteNulls(siteId, own) ? [siteId] : [])));
    },
    current() {
      const all = [
        ...(types === null ? [] : [["types", types] as const]),
        ...[...nulls.values()].map((open) => ["nulls", open] as const),
      ];
      return all.flatMap(([what, { sinceMs, siteIds, ids }]) => {
        const tags = [...ids].filter(isWatched).length;
        return tags === 0 ? [] : [{ what, siteIds: [...siteIds], since: isoUtc(sinceMs), tags }];
      });
    },
  };
}
