import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createPlainTableFormat } from "#connectors/parquet/plain-table-format.ts";
import { loadSinkState, type StagedCommit } from "#connectors/parquet/sink-state.ts";
import { createStagedCommits } from "#connectors/parquet/staged-commits.ts";
import { valueEvent } from "../../sample-events.ts";
import { testFolder } from "../../test-resources.ts";
import { createVirtualClock } from "../../virtual-clock.ts";
import { contextFor, never } from "../context.ts";
import { createMemoryStore } from "./delta/memory-store.ts";
import { committedAt, createEngine } from "./engine.ts";

function createStage({ stagedCommits = [] as readonly StagedCommit[], maxRows = 2, maxAgeMs = 60_000 } = {}) {
  const store = createMemoryStore();
  const clock = createVirtualClock(0);
  const { sinkState } = contextFor("lake");
  const staged = createStagedCommits({
    state: { writerId: "writer", stagedCommits },
    format: createPlainTableFormat(store, { sinkState, clock }),
    uploaded: new Map(),
    ...{ store, sinkState, clock, maxRows, maxAgeMs },
  });
  return {
    ...{ staged, clock, sinkState },
    add: (n: number) => staged.addEvent(valueEvent(n), n, committedAt(n), never()),
    commit: () => staged.commit(never()),
    files: () => [...store.objects.keys()].filter((key) => key.endsWith(".parquet")),
  };
}

test("staged commits are settled only when all added events are in files", async () => {
  const { files, staged, commit, add } = createStage();
  expect([staged.isSettled(), staged.settleCommits()]).toEqual([true, null]);
  await add(1);
  await commit();
  expect([staged.isSettled(), staged.settleCommits(), files()]).toEqual([true, null, []]);
  await add(2);
  await commit();
  expect([staged.isSettled(), files().length]).toEqual([false, 1]);
  await add(3);
  expect([staged.isSettled(), staged.settleCommits()]).toEqual([false, null]);
  await add(4);
  await commit();
  expect(files()).toHaveLength(2);
  expect(staged.settleCommits()?.completeDays).toEqual([]);
  expect([staged.isSettled(), staged.settleCommits()]).toEqual([true, null]);
});

test("the files of an interrupted commit are written again from the same events", async () => {
  const stagedCommits = [{ from: 1, through: 3, keys: [] }];
  const { files, staged, commit, sinkState, add } = createStage({ stagedCommits });
  expect([staged.isSettled(), staged.hasPosition(1)]).toEqual([false, false]);
  for (const n of [1, 2]) await add(n);
  await commit();
  expect(files()).toEqual([]);
  await add(3);
  expect([staged.hasPosition(3), staged.hasPosition(4)]).toEqual([true, false]);
  await commit();
  expect(files()).toEqual(["value/date=2026-11-02/site=1/writer-000000000001-000000000003.parquet"]);
  expect((await sinkState.all()).get("landings")).toEqual([{ from: 1, through: 3, keys: files() }]);
  expect([staged.isSettled(), staged.settleCommits() === null, staged.isSettled()]).toEqual([false, false, true]);
});

test("an interrupted commit is split when max_age ends before all of its events are redelivered", async () => {
  const stagedCommits = [{ from: 1, through: 4, keys: [] }];
  const { clock, files, staged, commit, add } = createStage({ stagedCommits });
  for (const n of [1, 2]) await add(n);
  await clock.advance(60_000);
  await commit();
  const name = (range: string) => `value/date=2026-11-02/site=1/writer-${range}.parquet`;
  const first = name("000000000001-000000000002");
  expect([files(), staged.settleCommits()]).toEqual([[first], null]);
  for (const n of [3, 4]) await add(n);
  await commit();
  expect(files()).toEqual([first, name("000000000003-000000000004")]);
  expect(staged.settleCommits()).not.toBeNull();
});

test.each([
  ["kept when the last event position in the lake is the same", { through: 7 }, true],
  ["kept when the last event position in the lake is earlier", { through: 6 }, true],
  ["replaced when the last event position in the lake is later, so the state is an old copy", { through: 8 }, false],
  ["kept when the lake contains no event position", {}, true],
])("the writer id in the sink state is %s", async (_, there, goesOn) => {
  const store = createMemoryStore();
  const context = contextFor("lake");
  await context.sinkState.put(new Map([["life", { id: "abc", through: 7 }]]));
  store.write("_lives/abc.json", JSON.stringify(there));
  const { writerId } = await loadSinkState(context, store, never());
  expect(writerId === "abc").toBe(goesOn);
  await context.sinkState.put(new Map([["life", { id: "def", through: 0 }]]));
  store.write("_lives/def.json", "{}");
  expect((await loadSinkState(context, store, never())).writerId).toBe("def");
});

test("a day is finalized only after the last interrupted commit is completed", async () => {
  const folder = testFolder();
  const seal = { site: "1", day: "2026-11-02", revision: 1, account: {} };
  const remembered = new Map<string, unknown>([
    ["life", { id: "abc", through: 0 }],
    ["landings", [{ from: 1, through: 3, keys: [] }]],
    ["seal 2026-11-02 1", seal],
  ]);
  const engine = createEngine({ folder }, remembered);
  const isSealed = () => existsSync(join(folder, "_manifests/site=1/date=2026-11-02.json"));
  engine.log.push(...[1, 2, 3].map((n) => valueEvent(n)));
  await engine.offer(2);
  await engine.tick();
  expect(isSealed()).toBe(false);
  await engine.offer(1);
  await engine.tick();
  expect([engine.cursor, isSealed()]).toEqual([3, true]);
});
