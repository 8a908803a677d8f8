import { expect, test } from "vitest";
import type { PlannedTags } from "#src/engine/sync/plan/group.ts";
import { ReadClass } from "#src/engine/sync/read/config.ts";
import { createTagSchedule, type ScheduleContext, type TagSchedule } from "#src/engine/sync/read/tag-schedule.ts";
import type { WatchedTag } from "#src/engine/sync/read/value-event.ts";
import { type SeededRandom, seededRandom } from "../commands/seeded-random.ts";
import { replay, seed } from "../seed.ts";

const TAGS = 60;
const SITES = [1, 2, 3];
const CLASSES = ["1m", "5m", "1h"].map((every) => ReadClass.parse({ name: every, every }));
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

function rowsOf(planned: PlannedTags) {
  return Array.from({ length: planned.count }, (_, row) => ({
    id: planned.ids[row],
    intervalMs: planned.intervalMs[row],
    lastMs: planned.lastMs[row],
    sinceMs: planned.sinceMs[row],
    underWay: planned.underWay[row],
    isolation: planned.isolated.get(row) ?? null,
  }));
}

interface Around {
  readonly offline: number[];
  readonly unseen: number[];
  readonly isolated: Map<string, number>;
}

function something(random: SeededRandom, nowMs: number, around: Around) {
  const some = ids.filter(() => random.chance(0.1));
  const one = random.pick(ids);
  const toggled = (sites: number[]) => {
    const site = random.pick(SITES);
    if (!sites.includes(site)) sites.push(site);
    else sites.splice(sites.indexOf(site), 1);
  };
  const answer = random.pick(["value", "value", "null", "absent"] as const);
  const tags = watchedTags(random);
  const share = random.pick([0.97, 0.01]);
  const change = (make: (board: TagSchedule) => void) => () => make;
  const surroundings = (make: () => unknown) => () => {
    make();
    return () => undefined;
  };
  const known = { values: new Map(), quarantines: new Map(), nowMs, toMonotonic: Date.parse };
  const kinds: readonly (readonly [weight: number, () => (board: TagSchedule) => void])[] = [
    [2, change((board) => board.watch(tags, known))],
    [6, change((board) => board.sent(some, nowMs))],
    [6, change((board) => some.forEach((id) => void board.answered(id, answer, nowMs)))],
    [3, change((board) => board.failed([one], nowMs))],
    [3, change((board) => board.failed(some, nowMs))],
    [4, change((board) => board.returned(some))],
    [1, change((board) => board.quarantine(one, nowMs + 60_000))],
    [1, change((board) => some.forEach((id) => void board.release(id)))],
    [1, change((board) => void board.stretch(3_000, 20, share, 0))],
    [1, surroundings(() => toggled(around.offline))],
    [1, surroundings(() => toggled(around.unseen))],
    [1, surroundings(() => around.isolated.set(one, nowMs + random.below(30_000)))],
    [1, surroundings(() => around.isolated.clear())],
  ];
  return random.pick(kinds.flatMap(([weight, make]) => Array.from({ length: weight }, () => make)))();
}

test(`columns of the tag schedule updated per slot equal columns rebuilt from scratch (${replay})`, () => {
  let shown = 0;
  for (let round = 0; round < 40; round += 1) {
    const random = seededRandom(seed + round);
    const around: Around = { offline: [], unseen: [], isolated: new Map() };
    const surroundings = (writesAll: boolean): ScheduleContext => ({
      gatewayOffline: (site) => around.offline.includes(site),
      sees: (site) => !around.unseen.includes(site),
      anyIsolated: () => writesAll || around.isolated.size > 0,
      isolationOf(id) {
        const notBeforeMs = around.isolated.get(id);
        return notBeforeMs === undefined
          ? null
          : { label: "suspects", timing: "patient", isSuspect: true, notBeforeMs };
      },
    });
    const boards = [createTagSchedule(surroundings(false)), createTagSchedule(surroundings(true))] as const;
    let nowMs = 1_000_000;
    for (let step = 0; step < 200; step += 1) {
      const change = something(random, nowMs, around);
      for (const board of boards) change(board);
      nowMs += random.below(20_000);
      if (random.chance(0.3)) continue;
      const [kept, anew] = boards.map((board) => rowsOf(board.planned(nowMs)));
      expect(kept, `round ${round}, step ${step}: ${replay}`).toEqual(anew);
    }
    shown += boards[0].planned(nowMs).count;
  }
  expect(shown, replay).toBeGreaterThan(0);
});
