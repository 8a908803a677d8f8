import { NEVER_READ_MS, type ReadPlanRules, type RequestIsolation } from "#src/engine/sync/plan/next-read-group.ts";
import { type SeededRandom, seededRandom } from "../../commands/seeded-random.ts";
import { type PlannedTag, planGroup } from "../planned-tags.ts";

interface Situation {
  readonly tags: readonly PlannedTag[];
  readonly nowMs: number;
  readonly rules: ReadPlanRules;
}

const ISOLATIONS: readonly (readonly [label: string, timing: RequestIsolation["timing"]])[] = [
  ["slow", null],
  ["site 3", "punctual"],
  ["site 4", "patient"],
  ["site 5", "patient"],
];

/** Returns the broken rules of the plan of this seed. */
export function judgePlan(seed: number): readonly string[] {
  const situation = situationOf(seededRandom(seed));
  const { group } = planGroup(situation.tags, situation.nowMs, situation.rules);
  return complaints(situation, group).map((complaint) => `${complaint} (replay with PLENUM_SEED=${seed})`);
}

/** Demand from 85 to 110 % of the capacity; intervals from 2 to 60 slots (6 s to 3 min with slots of 3 s). */
function situationOf(random: SeededRandom): Situation {
  const rules: ReadPlanRules = {
    slotMs: random.pick([2_000, 3_000, 6_000]),
    tagsPerRequest: 1 + random.below(20),
    expectedReplyMs: random.pick([0, 500, 1_500]),
    isSpareSlot: random.chance(0.3),
  };
  const nowMs = random.below(1e9);
  const load = 0.85 + 0.25 * random();
  const classes = 1 + random.below(4);
  const oldest = random.pick([0.3, 0.9, 1.05, 2.5]);
  const isolations = ISOLATIONS.filter(() => random.chance(0.4)).map(([label, timing]) => ({
    label,
    timing,
    oldest: random.pick([0.6, 1.05, 2.05, 3]),
  }));
  const isAnyUnderWay = random.chance(0.5);
  const tags = Array.from({ length: classes }, (_, index) => {
    const earliestAge = random.pick([0, 0.7, Number.POSITIVE_INFINITY]);
    const slots = 2 + random.below(59);
    const intervalMs = slots * rules.slotMs + random.below(rules.slotMs);
    const count = Math.ceil((load / classes) * rules.tagsPerRequest * slots);
    return Array.from({ length: count }, (_, i) => {
      const isolation = isolations.length > 0 && random.chance(0.05) ? random.pick(isolations) : null;
      const ageMs = Math.floor(random() * (isolation?.oldest ?? oldest) * intervalMs);
      return {
        id: `${index}-${i}`,
        intervalMs,
        lastMs: random.chance(0.002) ? null : nowMs - ageMs,
        label: isolation?.label ?? null,
        timing: isolation?.timing ?? null,
        earliestAge,
        siteRequestedMs: random.chance(0.2) ? NEVER_READ_MS : nowMs - random.below(600_000),
        underWay: isAnyUnderWay && random.chance(0.05),
      };
    });
  }).flat();
  return { tags: random.chance(0.1) ? tags.slice(0, random.below(4)) : tags, nowMs, rules };
}

function complaints({ tags, nowMs, rules }: Situation, group: readonly string[]): readonly string[] {
  const byId = new Map(tags.map((tag) => [tag.id, tag]));
  const chosen = group.map((id) => byId.get(id));
  const free = tags.filter(({ underWay }) => underWay !== true);
  const labels = new Set(chosen.map((tag) => tag?.label));
  const found: string[] = [];
  if (group.length > rules.tagsPerRequest) found.push(`${group.length} tags, and ${rules.tagsPerRequest} is the most`);
  if (new Set(group).size < group.length) found.push("a tag stands in it twice");
  if (chosen.some((tag) => tag === undefined || tag.underWay === true)) found.push("a tag that is not to be chosen");
  if (labels.size > 1) found.push(`isolated tags share a request: ${[...labels].join(", ")}`);

  const due = free.find((tag) => isDue(tag, free.length < tags.length, nowMs, rules));
  if (group.length === 0) return due === undefined ? found : [...found, `empty, and ${due.id} is due`];

  const [label] = labels;
  const companions = free.filter((tag) => tag.label === label && (label !== null || mayBeRead(tag, nowMs, rules)));
  if (chosen.some((tag) => tag !== undefined && tag.label === null && !mayBeRead(tag, nowMs, rules)))
    found.push("a tag is read before its last slot");
  if (group.length < Math.min(rules.tagsPerRequest, companions.length)) found.push("a place is left empty");
  if (label === null && free.some((tag) => isStarving(tag, nowMs))) found.push("an isolated tag starves");
  const late = companions.filter((tag) => label === null && isDueSoon(tag, nowMs, rules));
  if (late.length <= rules.tagsPerRequest && late.some(({ id }) => !group.includes(id)))
    found.push("a tag that will be late is left out, and there is room for it");
  return found;
}

function isDue(tag: PlannedTag, isAnyUnderWay: boolean, nowMs: number, rules: ReadPlanRules): boolean {
  if (tag.label === null) return tag.lastMs === null || isDueSoon(tag, nowMs, rules);
  if (tag.lastMs === null) return false;
  const age = (nowMs - tag.lastMs) / tag.intervalMs;
  if (tag.timing === "punctual" && age >= 0.5 && isDueSoon(tag, nowMs, rules)) return true;
  if (isStarving(tag, nowMs)) return true;
  // Tags under way may need the slot when their interval ends.
  return age >= 1 && !isAnyUnderWay;
}

const mayBeRead = (tag: PlannedTag, nowMs: number, rules: ReadPlanRules) =>
  tag.lastMs === null ||
  (nowMs - tag.lastMs) / tag.intervalMs >= (tag.earliestAge ?? 0) ||
  isDueSoon(tag, nowMs, rules);

function isStarving({ label, timing, lastMs, intervalMs }: PlannedTag, nowMs: number): boolean {
  return label !== null && timing !== "patient" && lastMs !== null && nowMs - lastMs >= 2 * intervalMs;
}

function isDueSoon({ lastMs, intervalMs }: PlannedTag, nowMs: number, rules: ReadPlanRules): boolean {
  return lastMs !== null && intervalMs - rules.expectedReplyMs - (nowMs - lastMs) < rules.slotMs;
}
