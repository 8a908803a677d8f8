import type { ConnectorContext, SinkStateChange } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { type Book, begun, type Landing, settled, tellLife } from "./book.ts";
import { createHand, type Hand } from "./hand.ts";
import type { ObjectStore } from "./object-store.ts";
import { landedName, type Partition } from "./paths.ts";
import { type Seal, sealIn } from "./sealed-day.ts";
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
