import { randomBytes } from "node:crypto";
import { placeOf, type Table } from "../shared/lake/table.ts";
import { type Columns, createColumns } from "./columns.ts";
import type { Hand, Portion } from "./hand.ts";
import { readParquet } from "./parquet-file.ts";
import type { TableFormat } from "./table-format.ts";

/** Keys of rows that are kept in memory between batches; beyond, files are read anew. */
const MAX_KEYS = 200_000;

/**
 * Lands what was delivered before and is wanted once more, or stands nowhere in the log. It can not be gathered, and
 * nothing tells under which name it lies, so the rows that are there already are looked for and left out: a replay puts
 * back what the lake has lost, and nothing twice.
 */
export function createAlone(format: TableFormat, where: string) {
  /** By folder; of the files that were read last. */
  const known = new Map<string, Set<string>>();

  async function keysIn({ partition }: Portion, signal: AbortSignal): Promise<Set<string>> {
    const { folder, table } = partition;
    const before = known.get(folder);
    if (before !== undefined) return before;
    const there = new Set<string>();
    for (const { key } of await format.filesOf(partition, signal)) {
      const bytes = await format.read(key, signal);
      if (bytes === null) continue;
      const read = createColumns({ ...table, columns: keyColumns(table) });
      await readParquet(bytes, read, `${where}/${key}`);
      for (let row = 0; row < read.length; row++) there.add(keyOf(read, row));
    }
    if ([...known.values()].reduce((sum, { size }) => sum + size, there.size) > MAX_KEYS) known.clear();
    known.set(folder, there);
    return there;
  }

  return {
    /** Something else has been written, or taken away. */
    forget: () => known.clear(),

    async land(hand: Hand, signal: AbortSignal): Promise<void> {
      const name = `again-${randomBytes(8).toString("hex")}`;
      const portions: Portion[] = [];
      for (const portion of hand.portions()) {
        const { columns } = portion;
        const there = await keysIn(portion, signal);
        const mine = new Set<string>();
        const rows = (await portion.sorted()).filter((row) => {
          const key = keyOf(columns, row);
          if (there.has(key) || mine.has(key)) return false;
          mine.add(key);
          return true;
        });
        if (rows.length > 0) portions.push({ ...portion, sorted: async () => rows });
        for (const key of mine) there.add(key);
      }
      const changes = hand.changes();
      await format.land({ portions, changes, name, positions: null, arrived: new Map() }, signal);
    },
  };
}

function keyColumns(table: Table) {
  return table.columns.filter(({ name }) => table.key.includes(name));
}

function keyOf({ table, cell }: Columns, row: number): string {
  return JSON.stringify(table.key.map((name) => cell(placeOf(table, name), row)));
}
