import { randomBytes } from "node:crypto";
import type { ConnectorContext, SinkStateChange } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { placeOf, type Table } from "../shared/lake/table.ts";
import { type Columns, createColumns } from "./columns.ts";
import type { ObjectStore } from "./object-store.ts";
import { readParquet } from "./parquet-file.ts";
import { landedName, type Partition } from "./paths.ts";
import { createHand, type Hand, type Portion } from "./row-buffer.ts";
import { type Book, begun, type Landing, type Seal, sealIn, settled, tellLife } from "./sink-state.ts";
import type { Arrived, TableFormat } from "./table-format.ts";

/** Characters of different words that are held at most, whatever the number of rows: 32 MB in the worst case. */
const MAX_CHARACTERS = 16_000_000;

/** Events on their way into the lake, from the cursor on. */
export interface Gathering {
  /** No file in the lake may have to be made again. */
  readonly isSettled: boolean;
  /** Whether an event of this position was taken already, so that the engine has begun anew. */
  hasTaken(position: number): boolean;
  /** Takes an event, after what was begun before a crash and is complete has landed. Throws `Untold`. */
  take(event: Event, position: number, committedAt: string, signal: AbortSignal): Promise<void>;
  /** Nothing more comes just now: what is complete or worth a file lands. */
  land(signal: AbortSignal): Promise<void>;
  /** Where all that was taken is in the lake: what goes with the settlement, what landed, and days to be sealed afterwards. */
  settle(): {
    readonly remember: SinkStateChange;
    readonly partitions: readonly Partition[];
    readonly seals: readonly Seal[];
  } | null;
}

export function createGathering(options: {
  readonly book: Pick<Book, "life" | "landings">;
  readonly store: ObjectStore;
  readonly format: TableFormat;
  readonly memory: ConnectorContext["memory"];
  readonly clock: ConnectorContext["clock"];
  readonly arrived: Arrived;
  readonly maxRows: number;
  readonly maxAgeMs: number;
}): Gathering {
  const { arrived, book, clock, format, memory, store } = options;
  const { life } = book;
  /** Landings of before a crash, to be made again from the same events. */
  let unfinished = book.landings;
  /** Landings that are in the lake and not settled. */
  let landed: readonly Landing[] = [];
  /** By folder; those that got rows by these landings. */
  const partitions = new Map<string, Partition>();
  let hand: Hand = createHand();
  let sinceMs = 0;
  let through = 0;
  let seals: readonly Seal[] = [];

  function isOld(): boolean {
    return hand.events > 0 && clock.monotonic() - sinceMs >= options.maxAgeMs;
  }

  function isWorthAFile(): boolean {
    const isMuch = hand.rows >= options.maxRows || hand.characters >= MAX_CHARACTERS;
    return hand.events > 0 && (isMuch || isOld() || seals.length > 0);
  }

  /** Lands what is in the hand, as the positions that `landing` names. */
  async function landAs(landing: Landing, signal: AbortSignal): Promise<void> {
    const { from, keys: before, through: last } = landing;
    const name = format.nameOf(landedName(life, from, last));
    const rows = { portions: hand.portions(), changes: hand.changes() };
    const all = [...new Set([...before, ...format.keysOf(rows, name)])];
    const rest = unfinished.filter((each) => each !== landing);
    await memory.put(begun([...landed, { ...landing, keys: all }, ...rest]));
    await tellLife({ life, store }, last, signal);
    const positions = { life, through: last, isRepeated: unfinished.includes(landing) };
    const made = new Set(await format.land({ ...rows, name, positions, arrived }, signal));
    const unused = all.filter((key) => !made.has(key));
    if (unused.length > 0) await format.discard(unused, signal);
    landed = [...landed, { ...landing, keys: all }];
    for (const { partition } of rows.portions) partitions.set(partition.folder, partition);
    unfinished = rest;
    hand = createHand();
    arrived.clear();
  }

  return {
    get isSettled() {
      return landed.length === 0 && unfinished.length === 0;
    },
    hasTaken: (position) => position <= through,

    async take(event, position, committedAt, signal) {
      for (let next = unfinished[0]; next !== undefined && next.through < position; next = unfinished[0]) {
        await landAs(next, signal);
      }
      if (hand.events === 0) sinceMs = clock.monotonic();
      through = position;
      hand.add(event, position, committedAt);
      const seal = sealIn(event);
      if (seal !== null) seals = [...seals, seal];
    },

    async land(signal) {
      const [next] = unfinished;
      if (next === undefined) {
        if (isWorthAFile()) await landAs({ from: hand.from, through: hand.through, keys: [] }, signal);
      } else if (next.through === hand.through || isOld()) await landAs(next, signal);
    },

    settle() {
      if (landed.length === 0 || unfinished.length > 0 || hand.events > 0) return null;
      const remember = settled(life, through, seals);
      const done = { remember, partitions: [...partitions.values()], seals };
      landed = [];
      partitions.clear();
      seals = [];
      return done;
    },
  };
}

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
