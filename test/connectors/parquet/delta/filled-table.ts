import type { ObjectStore } from "#connectors/parquet/object-store.ts";
import type { LakeRow } from "#connectors/shared/lake/table-model.ts";
import { ADDED, METER_WITH_UNIT, openMeter, REARRANGED, reading, START_MS, writtenFile } from "./meter-table.ts";

export const withUnit = (n: number): LakeRow => [...reading(n), n % 2 === 0 ? "°C" : null];

/** Days, sites, encoded names, a new column, compaction, vacuum, checkpoints. Returns the numbers of the readings. */
export async function fillTable(store: ObjectStore): Promise<readonly number[]> {
  const signal = new AbortController().signal;
  let nowMs = START_MS;
  const table = openMeter(store, { checkpointEvery: 4, now: () => nowMs });
  const places = [
    { date: "2026-11-21", site: "1" },
    { date: "2026-11-21", site: null },
    { date: "2026-11-22", site: "a/b c%" },
  ] as const;
  for (let n = 0; n < 6; n += 1) {
    const rows = [reading(10 * n), reading(10 * n + 1)];
    const add = [await writtenFile(store, `s-${n} #ø`, rows, places[n % 3])];
    await table.commit({ ...ADDED, add, txn: { appId: "worker", version: n } }, signal);
  }
  const { files } = await table.readActiveFiles(signal);
  const small = files.filter(({ partitionValues }) => partitionValues.site === "1");
  const compacted = await writtenFile(store, "compacted", [0, 1, 30, 31].map(reading));
  await table.commit({ ...REARRANGED, add: [compacted], remove: small.map(({ key }) => String(key)) }, signal);
  nowMs += 8 * 86_400_000;
  await table.vacuum(signal);
  const later = openMeter(store, { table: METER_WITH_UNIT, checkpointEvery: 4, now: () => nowMs });
  for (let n = 6; n < 12; n += 1) {
    const index = { table: METER_WITH_UNIT, ...places[n % 3] };
    const add = [await writtenFile(store, `s-${n}`, [withUnit(10 * n), withUnit(10 * n + 1)], index)];
    await later.commit({ ...ADDED, add, txn: { appId: "worker", version: n } }, signal);
  }
  return Array.from({ length: 12 }, (_, n) => [10 * n, 10 * n + 1]).flat();
}
