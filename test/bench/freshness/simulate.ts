import { planGroup } from "#src/engine/sync/plan/group.ts";
import { computeOverload } from "#src/engine/sync/plan/overload.ts";
import { columnsOf, type PlannedTag } from "../../sync/planned-tags.ts";

export type Class = readonly [tags: number, everySeconds: number];

/** Parses classes of tags: `25@10 90@60` is 25 tags every 10 s and 90 tags every 60 s. */
const parseClasses = (text: string): readonly Class[] =>
  text.split(" ").map((part) => part.split("@").map(Number) as unknown as Class);

export const FOUR_CLASSES = parseClasses("25@10 90@60 450@300 1500@3600");
export const ELEVEN_CLASSES = parseClasses(
  "23@20 13@45 57@60 19@90 97@120 41@180 121@300 171@600 83@900 531@1800 1371@3600",
);
export const LONG_CLASSES = parseClasses("129@60 644@300 967@900 3222@3600");
export const OVERLOAD = parseClasses("40@10 130@60 600@300 3000@3600");

export function scaled(classes: readonly Class[], by: number): readonly Class[] {
  return classes.map(([count, seconds]) => [Math.round(count * by), seconds]);
}

export function loadOf(classes: readonly Class[]): number {
  return classes.reduce((sum, [count, seconds]) => sum + (count * SLOT_MS) / (seconds * 1_000 * SIZE), 0);
}

/** The same with each interval rounded down to whole slots: the minimum of any plan that is never late. */
export function loadInSlots(classes: readonly Class[]): number {
  return classes.reduce((sum, [count, seconds]) => sum + count / (SIZE * Math.floor((seconds * 1_000) / SLOT_MS)), 0);
}

/** Minimum of the worst age relative to its interval in overload. */
export function leastStretch(classes: readonly Class[]): number {
  const slotsOf = (seconds: number, by: number) => Math.max(1, Math.floor((seconds * 1_000 * by) / SLOT_MS + 1e-9));
  const candidates = classes.flatMap(([, seconds]) =>
    Array.from({ length: 4 * Math.ceil((seconds * 1_000) / SLOT_MS) }, (_, i) => ((i + 1) * SLOT_MS) / seconds / 1_000),
  );
  const fits = (by: number) =>
    classes.reduce((sum, [count, seconds]) => sum + count / (SIZE * slotsOf(seconds, by)), 0) <= 1;
  return Math.min(...candidates.filter((by) => by >= 1 && fits(by)));
}

export type Policy = (tags: readonly PlannedTag[], nowMs: number) => readonly string[];

export const SLOT_MS = 3_000;
export const SIZE = 20;

/** Runs a policy (by default the planner) slot by slot, with instant replies. */
export function simulate(
  classes: readonly Class[],
  options: { eager: boolean; hours: number; warmUpHours: number; policy?: Policy },
) {
  const rules = { slotMs: SLOT_MS, size: SIZE, leadMs: 0, eager: options.eager };
  const wishes = classes.map(([tags, seconds], which) => {
    return { name: String(which), tags, everyMs: seconds * 1_000, firm: false, importance: 1 };
  });
  const { factors } = computeOverload(wishes, SLOT_MS, SIZE);
  const factor = (which: number) => (options.policy === undefined ? (factors.get(String(which)) ?? 1) : 1);
  const tags = classes.flatMap(([count, seconds], which) =>
    Array.from({ length: count }, (_, i) => ({
      ...{ id: `${which}-${String(i).padStart(5, "0")}`, which, label: null, lastMs: null as number | null },
      ...{ wishMs: seconds * 1_000, intervalMs: seconds * 1_000 * factor(which) },
    })),
  );
  const places = new Map(tags.map(({ id }, place) => [id, place]));
  const columns = columnsOf(tags, 0);
  const planned = (nowMs: number) => {
    columns.sinceMs.fill(nowMs);
    return planGroup(columns, nowMs, rules).group;
  };
  const worst = classes.map(() => 0);
  let slots = 0;
  let used = 0;
  let filled = 0;
  let late = 0;
  const measuredFrom = options.warmUpHours * 3_600_000;
  for (let nowMs = 0; nowMs < measuredFrom + options.hours * 3_600_000; nowMs += SLOT_MS) {
    const group = options.policy?.(tags, nowMs) ?? planned(nowMs);
    const measured = nowMs >= measuredFrom;
    if (measured) slots++;
    if (measured && group.length > 0) {
      used++;
      filled += group.length;
    }
    for (const id of group) {
      const place = places.get(id) ?? -1;
      const tag = tags[place];
      if (tag === undefined) throw new Error(`the policy returned the unknown tag ${id}`);
      if (tag.lastMs !== null && measured) {
        const ageMs = nowMs - tag.lastMs;
        worst[tag.which] = Math.max(worst[tag.which] ?? 0, ageMs / tag.wishMs);
        if (ageMs > tag.wishMs) late++;
      }
      tag.lastMs = nowMs;
      columns.lastMs[place] = nowMs;
    }
  }
  return { load: loadOf(classes), used: used / slots, fill: filled / (used * SIZE), late, worst };
}
