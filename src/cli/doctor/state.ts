import { sentence } from "../../core/errors/errors.ts";
import { isTelemetry, KINDS } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { checkState, isIntact, type StateReport } from "../../engine/store/check.ts";
import { refuseWritableByOthers } from "../../engine/store/folder.ts";
import { Damaged } from "../../engine/store/sqlite.ts";
import type { Store } from "../../engine/store/store.ts";
import { documentSet } from "../../engine/store/store.ts";
import type { StoredToken } from "../../engine/sync/snapshot.ts";
import { lookAtFolder } from "../shell/look-at-state.ts";
import { filesIn } from "./machine.ts";

export interface StateFacts {
  readonly folder: string;
  readonly found: "good" | "none" | "damaged" | "unusable";
  /** Why it is not good, a sentence each. */
  readonly problems: readonly string[];
  readonly files: readonly object[];
  /** Everything in it compared with its checksums; null where there is none, or it is too large to wait for. */
  readonly check: StateReport | null;
  readonly content: StateContent | null;
}

export interface StateContent {
  readonly schemaVersion: number;
  readonly bytes: number;
  readonly log: { readonly bytes: number; readonly pendingBytes: number };
  /** The latest events besides telemetry, newest first: what happened, and to what. */
  readonly events: readonly {
    readonly at: string;
    readonly kind: string;
    readonly source: string;
    readonly subject: string;
  }[];
  readonly deadLetters: readonly {
    readonly sink: string;
    readonly at: string;
    readonly kind: string | null;
    readonly reason: string;
  }[];
  readonly gaps: readonly object[];
  /** Sites and abilities that the token of a source had and has not now. */
  readonly lost: readonly { readonly source: string; readonly what: string; readonly since: string }[];
  /** When the latest event of all was committed; null when there is none. */
  readonly lastCommittedAt: string | null;
}

/** A state larger than this is not read through: it takes a second for every 100 MiB, and somebody waits. */
const CHECKED_BYTES = 512 * 1024 ** 2;
const EVENTS = 50;
const DEAD_LETTERS = 20;

export async function lookAtStateFolder(folder: string, sources: readonly string[]): Promise<StateFacts> {
  const files = safely(() => filesIn(folder), []);
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  if (!files.some(({ name }) => name.startsWith("plenum.db"))) {
    return { folder, found: "none", problems: refusals(folder), files, check: null, content: null };
  }
  try {
    refuseWritableByOthers(folder);
    const check = bytes > CHECKED_BYTES ? null : checkState(folder);
    if (check !== null && check.trouble.length > 0) {
      return { folder, found: "damaged", problems: check.trouble, files, check, content: null };
    }
    const content = await lookAtFolder(folder, (store) => contentOf(store, sources));
    const found = check === null || isIntact(check) ? "good" : "damaged";
    return { folder, found, problems: damagedRows(check), files, check, content };
  } catch (error) {
    const found = error instanceof Damaged ? "damaged" : "unusable";
    return { folder, found, problems: [sentence(error)], files, check: null, content: null };
  }
}

function refusals(folder: string): readonly string[] {
  try {
    refuseWritableByOthers(folder);
    return [];
  } catch (error) {
    return [sentence(error)];
  }
}

function damagedRows(check: StateReport | null): readonly string[] {
  return (check?.tables ?? [])
    .filter(({ damaged }) => damaged > 0)
    .map(({ table, rows, damaged }) => `${damaged} of ${rows} rows of ${table} are damaged.`);
}

async function contentOf(store: Store, sources: readonly string[]): Promise<StateContent> {
  const [{ schemaVersion, bytes }, pressure, facts, [last], deadLetters, gaps] = await Promise.all([
    store.describe(),
    store.outbox.pressure(),
    store.outbox.latest(
      EVENTS,
      KINDS.filter((kind) => !isTelemetry(kind) && kind !== "worker-alive"),
    ),
    store.outbox.latest(1),
    store.outbox.deadLetters(undefined, DEAD_LETTERS),
    store.outbox.gaps(),
  ]);
  const tokens = await Promise.all(
    sources.map(async (source) => {
      const held = await store.document<StoredToken>(documentSet("token", source), "token");
      return Object.entries(held?.lost ?? {}).map(([what, since]) => ({ source, what, since }));
    }),
  );
  return {
    schemaVersion,
    bytes,
    log: { bytes: pressure.bytes, pendingBytes: pressure.pendingBytes },
    events: facts.map(({ committedAt, event }) => ({
      at: committedAt,
      kind: event.type,
      source: event.source,
      subject: event.subject,
    })),
    deadLetters: deadLetters.map(({ sink, at, event, reason }) => ({
      sink,
      at,
      kind: event?.type ?? null,
      reason,
    })),
    gaps: gaps.slice(-DEAD_LETTERS),
    lost: tokens.flat(),
    lastCommittedAt: last?.committedAt ?? null,
  };
}

function safely<T>(look: () => T, otherwise: T): T {
  try {
    return look();
  } catch {
    return otherwise;
  }
}

/** How far the last commit may be ahead of the clock before the clock counts as wrong, in milliseconds. */
const AHEAD_MS = 60_000;

/** Whether the clock stands before something that has been remembered already. */
export function isClockBehind(content: StateContent | null, nowMs = systemClock.now()): boolean {
  const last = content?.lastCommittedAt ?? null;
  return last !== null && Date.parse(last) > nowMs + AHEAD_MS;
}
