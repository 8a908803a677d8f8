import { existsSync } from "node:fs";
import { join } from "node:path";
import { planSettings } from "../../app/build-sync.ts";
import type { Config, SourceEntry } from "../../app/config/config.ts";
import { createWorker, type Worker } from "../../app/worker.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Event } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { loop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { documentSet, type QuotaStore, type Store } from "../../engine/store/store.ts";
import { factsFromState, ledgersOfRequest, pastFromState } from "../../engine/sync/facts-for-plan.ts";
import { type BackfillRequest, backfillOf } from "../../engine/sync/history/backfills.ts";
import {
  gapsIn,
  type HistoryGap,
  type HistoryGapReason,
  type LedgerOf,
} from "../../engine/sync/history/progress.ts";
import { planReport } from "../../engine/sync/plan/report.ts";
import { Selection } from "../../engine/sync/select.ts";
import {
  type StoredBackfill,
  type StoredPause,
  type StoredPoll,
  syncSet,
} from "../../engine/sync/snapshot.ts";
import { requestReport } from "../../ui/operator/remote.ts";
import { refuseUnknown } from "../shell/known-things.ts";
import { paceOf } from "./backfill.ts";
import { barLine } from "./backfill-lines.ts";
import { EXPORT_SINK, type ExportStep, exportConfig } from "./export-config.ts";
import { exportedDays } from "./export-days.ts";
import type { ExportOutcome } from "./export-lines.ts";

/** What is asked for. */
export interface ExportRequest {
  readonly order: StoredBackfill;
  /** The same as it was typed, by which a repetition is known. */
  readonly asked: string;
}

export interface ExportRun {
  readonly config: Config;
  readonly source: string;
  readonly entry: SourceEntry;
  /** The lake. */
  readonly folder: string;
  /** Where the export remembers how far it is. */
  readonly stateFolder: string;
  readonly request: ExportRequest;
  /** Where what is sent counts. */
  readonly quotaMemory: QuotaStore;
  readonly signal: AbortSignal;
  /** Hears how far it is. */
  update(text: string): void;
}

const LOOK_EVERY_MS = 1_000;
const STOP_WITHIN_MS = 8_000;
/** Documents of the export's own state: what was typed (`request`). */
const SET = "export";
const ORDER = "export";
const LISTS = ["sites", "systems", "tags", "gateways", "hosts"] as const;

/** What is answered, or cannot be asked for now. */
const REFUSED: ReadonlySet<HistoryGapReason> = new Set(["refused", "unreadable"]);
const SETTLED: ReadonlySet<HistoryGapReason> = new Set([
  "no-log",
  "null",
  "out-of-scope",
  "not-listed",
  ...REFUSED,
]);

/**
 * Lists, fetches and writes; goes on where an earlier run of the same export stopped. A ConfigError is the
 * answer, before anything was fetched, where no tag fits, or a tag or a site is named that there is not.
 *
 * Two workers do it, one after the other, on the state of the export. The first fetches, and writes files as soon as
 * they are large. When all is known, the second asks the service for nothing, writes the rest and seals the days.
 */
export async function runExport(run: ExportRun): Promise<ExportOutcome | ConfigError> {
  const order = await within(run, "fetching", async (worker) => {
    const { store } = worker;
    const held = await begin(run, store);
    await preflight(run, worker);
    await worker.start();
    await waitUntil(run, async () => {
      run.update(`Listing tags${await troubleOf(run)}`);
      return (await polls(run, store)).get("tags")?.lastSuccess != null;
    });
    const unknown = await unknownIn(run, store);
    if (unknown !== null) return unknown;
    const set = syncSet("backfill", run.source);
    if ((await store.document(set, ORDER)) === undefined)
      await store.commit({ documents: [{ set, put: [[ORDER, held]] }] });
    const asked = backfillOf(ORDER, held);
    if (asked === null) throw new Error("an order that was just made cannot be read");
    if ((await ledgersOf(run, store, asked)).length === 0)
      return new ConfigError("No tag fits this selection.", {
        hint: "`plenum sites` lists the sites; names are patterns, * is any text.",
      });
    await waitUntil(run, async () => {
      run.update(await fetching(run, store));
      const holes = await holesOf(run, store, asked);
      const isFetched = holes.every((hole) => !isToBeAsked(hole, systemClock.now()));
      const listed = await polls(run, store);
      return isFetched && LISTS.every((name) => listed.has(name));
    });
    return asked;
  });
  if (order instanceof ConfigError) return order;
  return within(run, "landing", async (worker) => {
    const { store } = worker;
    await pause(run, store, true);
    run.update("Counting days");
    const nowMs = systemClock.now();
    const ledgers = await ledgersOf(run, store, order);
    const days = await exportedDays({ store, source: run.source, order, ledgers, nowMs });
    await store.commit({ events: days.seals });
    await worker.start();
    const unsealed = new Set(days.seals);
    await waitUntil(run, async () => {
      const left = (await store.outbox.lag()).reduce((sum, { depth }) => sum + depth, 0);
      for (const seal of unsealed) if (existsSync(join(run.folder, manifestOf(seal)))) unsealed.delete(seal);
      run.update(`Writing: ${left} events, ${unsealed.size} days to be sealed${await troubleOf(run)}`);
      return left === 0 && unsealed.size === 0;
    });
    const holes = gapsIn(ledgers, { open: [order], paused: true }, nowMs);
    const troubles = await troublesOf(run, store);
    const isMissing = holes.some(({ why }) => why !== "no-log");
    return {
      complete: !isMissing && troubles.length === 0,
      from: order.stored.from,
      to: order.stored.to,
      tags: ledgers.length,
      had: days.had,
      null: days.null,
      sealedDays: days.seals.length,
      holes,
      troubles,
    };
  });
}

/** What the selection names and the lists do not have; null where they have it all. */
async function unknownIn({ request, source }: ExportRun, store: Store): Promise<ConfigError | null> {
  const { ids = [], sites = [] } = Selection.parse(request.order.select);
  try {
    await refuseUnknown(store, [source], "tag", ids);
    await refuseUnknown(store, [source], "site", sites.map(String));
    return null;
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
}

/** A worker on the state of the export, which is stopped whatever happens. */
async function within<T>(run: ExportRun, step: ExportStep, use: (worker: Worker) => Promise<T>): Promise<T> {
  const worker = await createWorker({
    config: exportConfig({ ...run, step }),
    quotaMemory: run.quotaMemory,
  });
  try {
    return await use(worker);
  } finally {
    await worker.stop(STOP_WITHIN_MS);
  }
}

/** The order of this export: as it was begun, where it was. */
async function begin(run: ExportRun, store: Store): Promise<StoredBackfill> {
  const known = await store.document<ExportRequest>(SET, "request");
  if (known !== undefined && known.asked !== run.request.asked) {
    throw new ConfigError(`Another export was begun in ${run.folder}, and is not complete.`, {
      hint: "Repeat that one with the same options, or name another folder.",
    });
  }
  if (known === undefined) await store.commit({ documents: [{ set: SET, put: [["request", run.request]] }] });
  await pause(run, store, false);
  return (known ?? run.request).order;
}

async function pause({ source }: ExportRun, store: Store, isPaused: boolean): Promise<void> {
  const held: StoredPause = { pausedAt: isPaused ? isoUtc(systemClock.now()) : null };
  await store.commit({ documents: [{ set: syncSet("backfill-pause", source), put: [["pause", held]] }] });
}

/** What would be refused for ever is said before anything is fetched. */
async function preflight({ signal, source }: ExportRun, worker: Worker): Promise<void> {
  const token = await worker.sources.get(source)?.me(signal);
  if (token?.abilities.includes("read:tags") !== false) return;
  throw new ConfigError(`The token of ${source} lacks read:tags, without which there is no history.`, {
    hint: "Make one in the user profile of the service that has it.",
  });
}

async function waitUntil({ signal }: ExportRun, isSo: () => Promise<boolean>): Promise<void> {
  await loop({
    clock: systemClock,
    signal,
    turn: async () => ((await isSo()) ? null : LOOK_EVERY_MS),
    fault(error) {
      throw error;
    },
  });
  signal.throwIfAborted();
}

const settingsOf = ({ source, entry, config }: ExportRun) =>
  planSettings(source, { ...entry, read: [], history: [] }, config.state);

const ledgersOf = (run: ExportRun, store: Store, order: BackfillRequest): Promise<readonly LedgerOf[]> =>
  ledgersOfRequest(store, settingsOf(run), order, systemClock.now());

async function holesOf(run: ExportRun, store: Store, order: BackfillRequest): Promise<readonly HistoryGap[]> {
  const ledgers = await ledgersOf(run, store, order);
  return gapsIn(ledgers, { open: [order], paused: false }, systemClock.now());
}

function isToBeAsked({ why, againAt }: HistoryGap, nowMs: number): boolean {
  return !SETTLED.has(why) || (REFUSED.has(why) && Date.parse(againAt ?? "") <= nowMs);
}

const polls = ({ source }: ExportRun, store: Store) =>
  store.documents<StoredPoll>(documentSet("poll", source));

/** How far the fetching is, and when it will be done by the plan. */
async function fetching(run: ExportRun, store: Store): Promise<string> {
  const settings = settingsOf(run);
  const nowMs = systemClock.now();
  const [{ progress, orders }, facts] = await Promise.all([
    pastFromState(store, settings, nowMs),
    factsFromState(store, settings, systemClock, null),
  ]);
  const [open] = progress.orders;
  if (open === undefined) return "Listing what is left";
  const requestsLeft = open.requestsLeft + Math.ceil(open.unproven / 20);
  const expectedAt = isoUtc(nowMs + (requestsLeft / paceOf(planReport(facts))) * 60_000);
  const waiting = { paused: orders.paused, sinksBehind: false, doneAt: null, withoutLog: null };
  return `${barLine({ ...open, ...waiting, requestsLeft, expectedAt })}${await troubleOf(run)}`;
}

/** Why it does not go on, where the worker says so; begins with a semicolon. */
async function troubleOf({ stateFolder, signal }: ExportRun): Promise<string> {
  const { notices, sinks } = await requestReport({ stateFolder }, signal);
  const sink = sinks.find(({ sink: name }) => name === EXPORT_SINK);
  const problem = sink?.problem ?? notices[0] ?? null;
  return problem === null ? "" : `; ${problem}`;
}

async function troublesOf(run: ExportRun, store: Store): Promise<readonly string[]> {
  const listed = await polls(run, store);
  const lists = LISTS.flatMap((name) => {
    const problem = listed.get(name)?.problem;
    return problem == null ? [] : [`The list of ${name} was not to be had: ${problem}`];
  });
  const dead = await store.outbox.deadLetters(EXPORT_SINK, 1);
  return [...lists, ...dead.map(({ reason }) => `Something could not be written: ${reason}`)];
}

/** Where the lake says that a day is sealed; connectors/parquet/README.md. */
function manifestOf({ siteid = "none", data: { date } }: Event<"day-sealed">): string {
  return join("_manifests", `site=${siteid}`, `date=${date}.json`);
}
