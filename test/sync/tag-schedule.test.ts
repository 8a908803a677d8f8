import { expect, test } from "vitest";
import type { PlannedTags } from "#src/engine/sync/plan/next-read-group.ts";
import { ReadClass } from "#src/engine/sync/read/config.ts";
import { createTagSchedule, type TagSchedule, type TagScheduleContext } from "#src/engine/sync/read/tag-schedule.ts";
import type { WatchedTag } from "#src/engine/sync/read/value-event.ts";
import { type SeededRandom, seededRandom } from "../commands/seeded-random.ts";
import { replay, seed } from "../seed.ts";

const TAGS = 60;
const SITES = [1, 2, 3];
const CLASSES = ["1m", "5m", "1h"].map((every) => ReadClass.parse({ name: every, every }));
const SUSPECT = { label: "suspects", timing: "patient", isSuspect: true } as const;
const ids = Array.from({ length: TAGS }, (_, n) => `tag-${n}`);

function watchedTags(random: SeededRandom): readonly WatchedTag[] {
  return ids
    .filter(() => random.chance(0.9))
    .map((id) => ({
      tag: { id, displayName: id, description: "", unit: null },
      siteId: SITES[Number(id.slice(4)) % SITES.length] ?? 1,
      systemIds: [],
      readClass: random.pick(CLASSES),
    }));
}

function listRows(planned: PlannedTags) {
  return Array.from({ length: planned.count }, (_, row) => ({
    id: planned.ids[row],
    intervalMs: planned.intervalMs[row],
    lastMs: planned.ageStartMs[row],
    sinceMs: planned.scheduledSinceMs[row],
    underWay: planned.isUnderWay[row],
    earliestAge: planned.earliestReadAge[row],
    isolation: planned.isolated.get(row) ?? null,
  }));
}

interface Surroundings {
  readonly offline: Set<number>;
  readonly unseen: Set<number>;
  readonly isolated: Map<string, number>;
}

function changeSurroundings(random: SeededRandom, nowMs: number, { offline, unseen, isolated }: Surroundings): void {
  const toggle = (sites: Set<number>, site: number) => sites.delete(site) || sites.add(site);
  random.pick<() => unknown>([
    () => toggle(offline, random.pick(SITES)),
    () => toggle(unseen, random.pick(SITES)),
    () => isolated.set(random.pick(ids), nowMs + random.below(30_000)),
    () => isolated.clear(),
  ])();
}

function randomUpdate(random: SeededRandom, nowMs: number): (schedule: TagSchedule) => void {
  const some = ids.filter(() => random.chance(0.1));
  const one = random.pick(ids);
  const answer = random.pick(["value", "value", "null", "absent"] as const);
  const tags = watchedTags(random);
  const share = random.pick([0.97, 0.01]);
  const storedReads = { values: new Map(), quarantines: new Map(), nowMs, toMonotonic: Date.parse };
  const updates: readonly (readonly [weight: number, (schedule: TagSchedule) => void])[] = [
    [2, (schedule) => schedule.setWatchedTags(tags, storedReads)],
    [6, (schedule) => schedule.requestSent(some, nowMs)],
    [6, (schedule) => some.forEach((id) => void schedule.recordReading(id, answer, nowMs))],
    [3, (schedule) => schedule.requestFailed([one], nowMs)],
    [3, (schedule) => schedule.requestFailed(some, nowMs)],
    [4, (schedule) => schedule.requestEnded(some)],
    [1, (schedule) => schedule.setQuarantine(one, nowMs + 60_000)],
    [1, (schedule) => some.forEach((id) => void schedule.setQuarantine(id, null))],
    [1, (schedule) => void schedule.updateOverloadFactors(3_000, share, 0)],
  ];
  return random.pick(updates.flatMap(([weight, update]) => Array.from({ length: weight }, () => update)));
}

test(`the tag schedule after small updates equals the tag schedule rebuilt from scratch (${replay})`, () => {
  let rowCount = 0;
  for (let round = 0; round < 40; round += 1) {
    const random = seededRandom(seed + round);
    const around: Surroundings = { offline: new Set(), unseen: new Set(), isolated: new Map() };
    const contextOf = (writesAll: boolean): TagScheduleContext => ({
      isGatewayOffline: (site) => around.offline.has(site),
      canSeeSite: (site) => !around.unseen.has(site),
      wallOffsetMs: () => 1_767_225_600_000,
      hasIsolatedTags: () => writesAll || around.isolated.size > 0,
      isolationOf(id) {
        const notBeforeMs = around.isolated.get(id);
        return notBeforeMs === undefined ? null : { ...SUSPECT, notBeforeMs };
      },
    });
    const schedules = [false, true].map((writesAll) => createTagSchedule(contextOf(writesAll)));
    let nowMs = 1_000_000;
    for (let step = 0; step < 200; step += 1) {
      if (random.chance(0.13)) changeSurroundings(random, nowMs, around);
      else schedules.forEach(randomUpdate(random, nowMs));
      nowMs += random.below(20_000);
      if (random.chance(0.3)) continue;
      const [updatedRows, rebuiltRows] = schedules.map((schedule) => listRows(schedule.planTags(nowMs)));
      expect(updatedRows, `round ${round}, step ${step}: ${replay}`).toEqual(rebuiltRows);
      rowCount += updatedRows?.length ?? 0;
    }
  }
  expect(rowCount, replay).toBeGreaterThan(0);
});

test("a tag is read at its interval again when its gateway came back while the worker was stopped", () => {
  const schedule = createTagSchedule({
    ...{ isGatewayOffline: () => false, canSeeSite: () => true, hasIsolatedTags: () => false, isolationOf: () => null },
    wallOffsetMs: () => 0,
  });
  const [readClass] = CLASSES;
  if (readClass === undefined) throw new Error("There is no class.");
  const tag = { id: "tag-1", displayName: "tag-1", description: "", unit: null };
  const bad = { value: null, quality: "bad", time: "2026-06-01T00:00:00.000Z", told: "this", nulls: 14 } as const;
  schedule.setWatchedTags([{ tag, siteId: 1, systemIds: [], readClass }], {
    ...{ values: new Map([[tag.id, { ...bad, behindGateway: "7" }]]), quarantines: new Map() },
    ...{ nowMs: 60_000, toMonotonic: () => 0 },
  });
  expect(schedule.planTags(60_000).intervalMs[0]).toBe(readClass.every);
});
