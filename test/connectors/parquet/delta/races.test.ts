import fc from "fast-check";
import { expect, test } from "vitest";
import type { DeltaTable } from "#connectors/parquet/delta/table.ts";
import { Retryable } from "#src/core/errors/errors.ts";
import { replay, seed } from "../../../seed.ts";
import { createMemoryStore, type Fault, type MemoryStore } from "./memory-store.ts";
import { ADDED, openMeter, REARRANGED, reading, writtenFile } from "./meter-table.ts";
import { checkDeltaTable } from "./strict-checker.ts";

/** Two writers have the same id, as after a move to another machine where the old worker still runs. */
const RUNS = Number(process.env.DELTA_RUNS ?? 60);
const signal = new AbortController().signal;

const fault = fc.oneof(
  { weight: 8, arbitrary: fc.constant<Fault>("none") },
  fc.constantFrom<Fault>("refused", "answer lost", "denied"),
);

interface Writer {
  readonly appId: string;
  readonly machine: number;
  readonly batches: number;
}

const writers = fc.record({
  one: fc.integer({ min: 1, max: 6 }),
  twin: fc.integer({ min: 0, max: 6 }),
  other: fc.integer({ min: 0, max: 6 }),
  compactions: fc.integer({ min: 0, max: 4 }),
  checkpointEvery: fc.integer({ min: 1, max: 4 }),
});

const numberOf = (appId: string, batch: number) => (appId === "a" ? 1_000 : 2_000) + batch;

type Open = () => { readonly table: DeltaTable; readonly isCrashed: () => boolean };

test(`a Delta table contains every batch once with concurrent writers and lost responses (${RUNS} runs, seed ${seed})`, async () => {
  await fc.assert(
    fc.asyncProperty(
      writers,
      fc.infiniteStream(fault),
      fc.infiniteStream(fc.nat(3)),
      fc.infiniteStream(fc.nat(3)),
      async ({ one, twin, other, compactions, checkpointEvery }, faults, pauses, crashes) => {
        let isCalm = false;
        const store = createMemoryStore(
          () => (isCalm ? "none" : (faults.next().value ?? "none")),
          async () => {
            for (let ticks = pauses.next().value ?? 0; ticks > 0; ticks -= 1) await Promise.resolve();
          },
        );
        const contents = new Map<string, readonly number[]>();
        const open: Open = () => ({
          table: openMeter(store, { checkpointEvery }),
          isCrashed: () => crashes.next().value === 0,
        });
        await Promise.all([
          write(store, contents, open, { appId: "a", machine: 1, batches: one }),
          write(store, contents, open, { appId: "a", machine: 2, batches: twin }),
          write(store, contents, open, { appId: "b", machine: 3, batches: other }),
          compact(store, contents, open, { machine: 4, times: compactions }),
          compact(store, contents, open, { machine: 5, times: compactions }),
        ]);
        isCalm = true;
        const objects = new Map([...store.objects].map(([key, bytes]) => [key.slice("meter/".length), bytes]));
        const verdict = checkDeltaTable(objects);
        expect(verdict.faults).toEqual([]);
        const rows = [...verdict.files.keys()].flatMap((path) => contents.get(`meter/${decodeURIComponent(path)}`));
        const wanted = [
          ...Array.from({ length: Math.max(one, twin) }, (_, n) => numberOf("a", n + 1)),
          ...Array.from({ length: other }, (_, n) => numberOf("b", n + 1)),
        ];
        expect(rows.toSorted()).toEqual(wanted);
        expect(new Set(verdict.txns).size, "each (appId, version) stands once").toBe(verdict.txns.length);
        const { files, version } = await openMeter(store).readActiveFiles(signal);
        expect(version).toBe(verdict.version);
        expect(files.map(({ key }) => key).toSorted()).toEqual(
          [...verdict.files.keys()].map((path) => `meter/${decodeURIComponent(path)}`).toSorted(),
        );
      },
    ),
    { numRuns: RUNS, seed },
  );
});

async function write(
  store: MemoryStore,
  contents: Map<string, readonly number[]>,
  open: Open,
  { appId, machine, batches }: Writer,
): Promise<void> {
  let { table, isCrashed } = open();
  let tries = 0;
  for (let batch = 1; batch <= batches; ) {
    tries += 1;
    const number = numberOf(appId, batch);
    try {
      const file = await writtenFile(store, `${appId}-${machine}-${batch}-${tries}`, [reading(number)]);
      contents.set(file.key, [number]);
      const txn = { appId, version: batch };
      const outcome = await table.commit({ ...ADDED, add: [file], txn }, signal);
      expect(["committed", "done-before"], replay).toContain(outcome);
      if (isCrashed()) ({ table, isCrashed } = open());
      else batch += 1;
    } catch (error) {
      if (!(error instanceof Retryable)) throw error;
      if (isCrashed()) ({ table, isCrashed } = open());
    }
  }
}

async function compact(
  store: MemoryStore,
  contents: Map<string, readonly number[]>,
  open: Open,
  { machine, times }: { readonly machine: number; readonly times: number },
): Promise<void> {
  const { table } = open();
  for (let tries = 0; tries < times; tries += 1) {
    try {
      const keys = (await table.readActiveFiles(signal)).files.map(({ key }) => String(key));
      const numbers = keys.flatMap((key) => contents.get(key) ?? []);
      if (keys.length < 2) continue;
      const file = await writtenFile(store, `compact-${machine}-${tries}`, numbers.map(reading));
      contents.set(file.key, numbers);
      await table.commit({ ...REARRANGED, add: [file], remove: keys }, signal);
    } catch (error) {
      if (!(error instanceof Retryable)) throw error;
    }
  }
}
