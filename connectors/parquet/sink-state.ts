import { randomBytes } from "node:crypto";
import type { ConnectorContext, SinkStateChange } from "../../src/core/connector.ts";
import type { AnyEvent, Event } from "../../src/core/model/event.ts";
import type { ObjectStore } from "./object-store.ts";
import { lifeOf } from "./paths.ts";

/**
 * What the sink remembers, so that what is repeated after a crash overwrites what was there and nothing else.
 *
 * A landing is written down before its first object is put: which positions it holds, and under which keys. It counts
 * as settled when the cursor has passed it, which is the same transaction. After a crash in between, events are offered
 * from the cursor on, and gathered into the very same landings:
 *
 *     cursor 100    landings 101–200, 201–350    offered 101 102 … → land at 200, land at 350, go on as usual
 */
export interface Book {
  /** Random, and part of every name: what one state has landed, no other overwrites. */
  readonly life: string;
  /** Landings that were begun and are not settled, by position. */
  readonly landings: readonly Landing[];
  /** Days to be sealed, oldest first. */
  readonly seals: readonly Seal[];
  /** Compactions that were begun. */
  readonly compactions: readonly Compaction[];
  /** Days whose files are to be compacted, by `dayKey`. */
  readonly loose: ReadonlyMap<string, LooseDay>;
  /** When files were compacted last, wall time in milliseconds; null where that never happened. */
  readonly compactedAtMs: number | null;
}

/** A day of a site that has files which no compaction has seen. */
export interface LooseDay {
  /** Null for facts about no single site. */
  readonly site: string | null;
  readonly day: string;
  /** Names of the tables. */
  readonly tables: readonly string[];
  /** When the first and the last of these files landed, wall time in milliseconds. */
  readonly sinceMs: number;
  readonly lastMs: number;
}

export interface Landing {
  readonly from: number;
  readonly through: number;
  /** What was, or shall be, put. */
  readonly keys: readonly string[];
}

export interface Compaction {
  readonly result: string;
  readonly sources: readonly string[];
}

const LIFE = "life";
const LANDINGS = "landings";
const COMPACTION = "compaction";
const SEAL = "seal ";
const LOOSE = "loose ";
const COMPACTED = "compacted";

interface Life {
  readonly id: string;
  /** Last position that is settled. */
  readonly through: number;
}

/**
 * What is remembered. A new life begins where there is none, and where the lake shows that this one has landed more than
 * is remembered here: the state is an older copy, and its positions mean other events from here on.
 */
export async function openBook(
  { memory, log }: Pick<ConnectorContext, "memory" | "log">,
  store: ObjectStore,
  signal: AbortSignal,
): Promise<Book> {
  const all = await memory.all<unknown>();
  const landings = (all.get(LANDINGS) ?? []) as readonly Landing[];
  const seals = [...all].filter(([key]) => key.startsWith(SEAL)).map(([, seal]) => seal as Seal);
  const rest = {
    seals: seals.toSorted((a, b) => (a.day < b.day ? -1 : 1)),
    // A version before this one had one at a time.
    compactions: [(all.get(COMPACTION) ?? []) as Compaction | readonly Compaction[]].flat(),
    loose: new Map(
      [...all]
        .filter(([key]) => key.startsWith(LOOSE))
        .map(([key, day]) => [key.slice(LOOSE.length), day as LooseDay]),
    ),
    compactedAtMs: (all.get(COMPACTED) ?? null) as number | null,
  };
  const known = all.get(LIFE) as Life | undefined;
  if (known !== undefined) {
    const landed = await landedThrough(known.id, store, signal);
    if (landed <= Math.max(known.through, landings.at(-1)?.through ?? 0)) {
      return { life: known.id, landings, ...rest };
    }
    log.warn(
      { remembered: known.through, landed },
      "the lake has more than this state remembers, so the state is an older copy; what is told again lies there twice, with the same event_id",
    );
  }
  const life: Life = { id: randomBytes(6).toString("hex"), through: 0 };
  await memory.put(
    new Map<string, unknown>([
      [LIFE, life],
      [LANDINGS, null],
    ]),
  );
  return { life: life.id, landings: [], ...rest };
}

async function landedThrough(life: string, store: ObjectStore, signal: AbortSignal): Promise<number> {
  const bytes = await store.get(lifeOf(life), signal);
  if (bytes === null) return 0;
  const { through } = JSON.parse(Buffer.from(bytes).toString()) as { through?: unknown };
  return typeof through === "number" ? through : 0;
}

/** Says in the lake how far a life goes, before anything of it is put. */
export async function tellLife(
  { life, store }: { readonly life: string; readonly store: ObjectStore },
  through: number,
  signal: AbortSignal,
): Promise<void> {
  await store.put(lifeOf(life), Buffer.from(`${JSON.stringify({ through })}\n`), signal);
}

/** Landings that are begun. */
export function begun(landings: readonly Landing[]): SinkStateChange {
  return new Map([[LANDINGS, landings]]);
}

/** All of them are in the lake, and the cursor passes them; days are to be sealed. */
export function settled(life: string, through: number, seals: readonly Seal[]): SinkStateChange {
  const known: Life = { id: life, through };
  return new Map<string, unknown>([[LIFE, known], [LANDINGS, null], ...toSeal(seals)]);
}

export function toSeal(seals: readonly Seal[]): SinkStateChange {
  return new Map(seals.map((seal) => [keyOf(seal), seal]));
}

/** Of two seals of a day the later one counts. */
export function withSeals(seals: readonly Seal[], more: readonly Seal[]): readonly Seal[] {
  return [...new Map([...seals, ...more].map((seal) => [keyOf(seal), seal])).values()];
}

export function compacting(compactions: readonly Compaction[]): SinkStateChange {
  return new Map([[COMPACTION, compactions.length === 0 ? null : compactions]]);
}

/** A compaction was begun, and has to be completed or undone before the next. */
export async function isCompacting(memory: Pick<ConnectorContext["memory"], "get">): Promise<boolean> {
  return ((await memory.get(COMPACTION)) ?? null) !== null;
}

/** These days have files to be compacted; null where a day has none any more. */
export function toCompact(days: ReadonlyMap<string, LooseDay | null>): SinkStateChange {
  return new Map([...days].map(([key, day]) => [`${LOOSE}${key}`, day]));
}

export function compactedAt(wallMs: number): SinkStateChange {
  return new Map([[COMPACTED, wallMs]]);
}

export function dayKey(day: string, site: string | null): string {
  return `${day} ${site ?? ""}`;
}

export function sealed(seal: Seal): SinkStateChange {
  return new Map([[keyOf(seal), null]]);
}

function keyOf({ site, day }: Seal): string {
  return `${SEAL}${dayKey(day, site)}`;
}

/** A UTC day of a site of which the worker's ledger says that all is known. */
export interface Seal {
  readonly site: string | null;
  /** Such as `2026-11-21`. */
  readonly day: string;
  /** 1, and one more each time when something of the day has changed afterwards. */
  readonly revision: number;
  /** What the ledger says of the day, as the event has it. */
  readonly account: unknown;
}

/** The seal that an event tells; null for any other event. */
export function sealIn(event: Event): Seal | null {
  const told = event as AnyEvent;
  if (told.type !== "day-sealed") return null;
  const { date, revision } = told.data;
  return { site: told.siteid ?? null, day: date, revision, account: told.data };
}
