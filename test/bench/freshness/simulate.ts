import { planNextLiveRead } from "#src/engine/sync/plan/next-read-group.ts";
import { computeQuotaOverload } from "#src/engine/sync/plan/overload.ts";
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

export function scaleClasses(classes: readonly Class[], by: number): readonly Class[] {
  return classes.map(([count, seconds]) => [Math.round(count * by), seconds]);
}

export function computeLoad(classes: readonly Class[]): number {
  return classes.reduce((sum, [count, seconds]) => sum + (count * SLOT_MS) / (seconds * 1_000 * GROUP_SIZE), 0);
}

/** The same with each interval rounded down to whole slots: the minimum of any plan that is never late. */
export function loadInSlots(classes: readonly Class[]): number {
  const fullSlots = (seconds: number) => Math.floor((seconds * 1_000) / SLOT_MS);
  return classes.reduce((sum, [count, seconds]) => sum + count / (GROUP_SIZE * fullSlots(seconds)), 0);
}

/** Minimum of the worst age relative to its interval in overload. */
export function minOverload(classes: readonly Class[]): number {
  const countSlots = (seconds: number, by: number) => Math.max(1, Math.floor((seconds * 1_000 * by) / SLOT_MS + 1e-9));
  const candidates = classes.flatMap(([, seconds]) =>
    Array.from({ length: 4 * Math.ceil((seconds * 1_000) / SLOT_MS) }, (_, i) => ((i + 1) * SLOT_MS) / seconds / 1_000),
  );
  const fitsOverload = (by: number) =>
    classes.reduce((sum, [count, seconds]) => sum + count / (GROUP_SIZE * countSlots(seconds, by)), 0) <= 1;
  return Math.min(...candidates.filter((by) => by >= 1 && fitsOverload(by)));
}

export type Policy = (tags: readonly PlannedTag[], nowMs: number) => readonly string[];

export const SLOT_MS = 3_000;
export const GROUP_SIZE = 20;

/** Runs a policy (by default the planner) slot by slot, with instant replies. */
export function simulate(
  classes: readonly Class[],
  options: { eager: boolean; hours: number; warmUpHours: number; policy?: Policy },
) {
  const planRules = { slotMs: SLOT_MS, tagsPerRequest: GROUP_SIZE, expectedReplyMs: 0, isSpareSlot: options.eager };
  const targetIntervals = classes.map(([tags, seconds], which) => {
    return { name: String(which), tags, everyMs: seconds * 1_000, firm: false, importance: 1, fresher: true };
  });
  const { factors } = computeQuotaOverload(targetIntervals, SLOT_MS, GROUP_SIZE);
  const factor = (which: number) => (options.policy === undefined ? (factors.get(String(which)) ?? 1) : 1);
  const tags = classes.flatMap(([count, seconds], which) =>
    Array.from({ length: count }, (_, i) => ({
      ...{ id: `${which}-${String(i).padStart(5, "0")}`, which, label: null, lastMs: null as number | null },
      ...{ wishMs: seconds * 1_000, intervalMs: seconds * 1_000 * factor(which) },
    })),
  );
  const indexById = new Map(tags.map(({ id }, place) => [id, place]));
  const columns = columnsOf(tags, 0);
  const planSlot = (nowMs: number) => {
    columns.scheduledSinceMs.fill(nowMs);
    return planNextLiveRead(columns, nowMs, planRules).group;
  };
  const worstAges = classes.map(() => 0);
  let slots = 0;
  let usedSlots = 0;
  let readTags = 0;
  let lateReads = 0;
  const measuredFromMs = options.warmUpHours * 3_600_000;
  for (let nowMs = 0; nowMs < measuredFromMs + options.hours * 3_600_000; nowMs += SLOT_MS) {
    const group = options.policy?.(tags, nowMs) ?? planSlot(nowMs);
    const isMeasured = nowMs >= measuredFromMs;
    if (isMeasured) slots++;
    if (isMeasured && group.length > 0) {
      usedSlots++;
      readTags += group.length;
    }
    for (const id of group) {
      const tagIndex = indexById.get(id) ?? -1;
      const tag = tags[tagIndex];
      if (tag === undefined) throw new Error(`the policy returned the unknown tag ${id}`);
      if (tag.lastMs !== null && isMeasured) {
        const ageMs = nowMs - tag.lastMs;
        worstAges[tag.which] = Math.max(worstAges[tag.which] ?? 0, ageMs / tag.wishMs);
        if (ageMs > tag.wishMs) lateReads++;
      }
      tag.lastMs = nowMs;
      columns.ageStartMs[tagIndex] = nowMs;
    }
  }
  const fill = readTags / (usedSlots * GROUP_SIZE);
  return { load: computeLoad(classes), used: usedSlots / slots, fill, late: lateReads, worst: worstAges };
}
