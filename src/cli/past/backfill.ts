import { randomBytes } from "node:crypto";
import { type Command, InvalidArgumentError, Option } from "commander";
import { planSettings } from "../../app/build-sync.ts";
import type { SourceEntry } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { RESOLUTIONS, type Resolution } from "../../core/model/building.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { isBehind } from "../../engine/delivery/back-pressure.ts";
import type { StateConfig } from "../../engine/store/config.ts";
import type { Store } from "../../engine/store/store.ts";
import { factsFromState, pastFromState } from "../../engine/sync/facts-for-plan.ts";
import { hasEnded } from "../../engine/sync/history/backfills.ts";
import { type PlanReport, planReport } from "../../engine/sync/plan/report.ts";
import { type StoredBackfill, type StoredPause, syncSet } from "../../engine/sync/snapshot.ts";
import { type CliContext, chooseSource } from "../shell/context.ts";
import { findWorkerFor } from "../shell/find-worker.ts";
import { refuseUnknown } from "../shell/known-ids.ts";
import { parseTime, type SelectionOptions, selectionOf, selectionOptions, timeOption } from "../shell/options.ts";
import { withState } from "../shell/state-access.ts";

interface BackfillOptions extends SelectionOptions {
  readonly source?: string;
  readonly from?: string;
  readonly to: string;
  readonly resolution: Resolution;
  readonly detach?: boolean;
  readonly pause?: boolean;
  readonly resume?: boolean;
  readonly cancel?: string;
}

/** Stores backfill requests in the state; the running worker fetches them in idle slots. */
export function define(command: Command, context: CliContext): void {
  command
    .argument("[tag...]", "only these tags; with no selection at all, every tag")
    .option("--source <name>", "which source, when there are several")
    .option("--from <time>", "start: ISO 8601, or an age such as 365d; without it, shows how far it is", parseTime)
    .addOption(timeOption("--to <time>", "end: ISO 8601, or an age", "0s"))
    .addOption(new Option("--resolution <size>", "interval of the series").choices(RESOLUTIONS).default("5m"));
  selectionOptions(command)
    .option("--detach", "do not wait for the end")
    .option("--pause", "pause fetching the past; live reads continue")
    .option("--resume", "resume it")
    .option("--cancel <id>", "cancel a request; events that were emitted stay")
    .addHelpText(
      "after",
      "\nCtrl-C ends the waiting, not the backfill. Readings that were emitted are not emitted again.\n" +
        "\nExamples:\n  plenum backfill --from 365d --site 1\n  plenum backfill --pause",
    )
    .action(async (tagIds: string[], options: BackfillOptions) => {
      const config = context.config();
      const [name, entry] = chooseSource(config, options.source);
      await withState({ config, source: name }, false, async (store) => {
        // A worker that responds slowly still reads the request from the state.
        const running = (await findWorkerFor({ config, source: name }, context.signal)).kind !== "none";
        const work = { context, store, name, entry, running, state: config.state };
        if (options.pause === true || options.resume === true) await setPause(work, options.pause === true);
        else if (options.cancel !== undefined) await cancel(work, options.cancel);
        else if (options.from === undefined) await show(work);
        else await requestBackfill(work, tagIds, { ...options, from: options.from });
      });
    });
}

interface Work {
  readonly context: CliContext;
  readonly store: Store;
  readonly name: string;
  readonly entry: SourceEntry;
  readonly running: boolean;
  readonly state: StateConfig;
}

const NO_WORKER = "No worker is running on this state folder; it is done once one runs (`plenum run`).";
const LOOK_EVERY_MS = 2_000;

async function requestBackfill(work: Work, tagIds: readonly string[], options: BackfillOptions & { from: string }) {
  const { context, store, name, running } = work;
  const terminal = context.terminal();
  if (options.from >= options.to) throw new InvalidArgumentError("--from has to be before --to.");
  const select = selectionOf(tagIds, options);
  await refuseUnknown(store, [name], "tag", select.ids ?? []);
  await refuseUnknown(store, [name], "site", (select.sites ?? []).map(String));
  const held: StoredBackfill = {
    from: options.from,
    to: options.to,
    resolution: options.resolution,
    select,
    askedAt: isoUtc(systemClock.now()),
    doneAt: null,
  };
  const id = randomBytes(4).toString("hex");
  const set = syncSet("backfill", name);
  await store.commit({ documents: [{ set, insert: [[id, held]] }] });
  const first = await remaining(work, id);
  if (first.tags === 0) {
    await store.commit({ documents: [{ set, remove: [id] }] });
    throw new ConfigError("No known tag fits this selection.", {
      hint: "`plenum plan` says how many tags are known; names are patterns, * is any text.",
    });
  }
  if (terminal.json || options.detach === true || !running) {
    terminal.object({ ...held, ...first }, remainingLines([first]));
    if (!running) terminal.say(NO_WORKER);
    return;
  }
  terminal.say(`Order ${id}. Ctrl-C ends the waiting, not the backfill.`);
  await terminal.progress("Backfilling", async (update) => {
    do {
      const now = await remaining(work, id);
      if (now.doneAt !== null) return;
      update(barLine(now));
    } while (await sleepFor(systemClock, LOOK_EVERY_MS, context.signal));
    context.signal.throwIfAborted();
  });
  const { withoutLog } = await remaining(work, id);
  terminal.say(`Order ${id} is done${withoutLogText(withoutLog)}.`);
}

async function show(work: Work): Promise<void> {
  const terminal = work.context.terminal();
  const all = await allRemaining(work);
  terminal.object(all, remainingLines(all));
  if (!work.running) terminal.say(NO_WORKER);
}

async function setPause({ context, store, name, running }: Work, paused: boolean): Promise<void> {
  const held: StoredPause = { pausedAt: paused ? isoUtc(systemClock.now()) : null };
  await store.commit({ documents: [{ set: syncSet("backfill-pause", name), put: [["pause", held]] }] });
  context
    .terminal()
    .object(held, [
      paused
        ? "Nothing of the past is fetched until `plenum backfill --resume`; the worker follows within seconds."
        : "The past is fetched again; the worker follows within seconds.",
    ]);
  if (!running) context.terminal().say(NO_WORKER);
}

async function cancel({ context, store, name }: Work, id: string): Promise<void> {
  const set = syncSet("backfill", name);
  if ((await store.document(set, id)) === undefined) {
    throw new ConfigError(`There is no order ${id}.`, { hint: "`plenum backfill` lists them." });
  }
  await store.commit({ documents: [{ set, remove: [id] }] });
  context.terminal().object({ cancelled: id }, [`Order ${id} is cancelled; events that were emitted stay.`]);
}

async function remaining(work: Work, id: string): Promise<BackfillProgress> {
  const found = (await allRemaining(work)).find((each) => each.id === id);
  if (found === undefined) throw new ConfigError(`Order ${id} was given up.`);
  return found;
}

/** Lists every backfill request, then the configured backfill, in the order in which the worker fetches them. */
async function allRemaining({ store, name, entry, state }: Work): Promise<readonly BackfillProgress[]> {
  const settings = planSettings(name, entry, state);
  const nowMs = systemClock.now();
  const [{ orders, progress }, facts, held] = await Promise.all([
    pastFromState(store, settings, nowMs),
    factsFromState(store, settings, systemClock, null),
    store.documents<StoredBackfill>(syncSet("backfill", name)),
  ]);
  const perMinute = plannedRate(planReport(facts));
  const waiting = {
    paused: orders.paused,
    sinksBehind: isBehind(await store.outbox.pressure(), state.max_bytes, false),
  };
  let before = 0;
  const endOf = (requests: number) => {
    before += requests;
    return orders.paused ? null : isoUtc(nowMs + (before / perMinute) * 60_000);
  };
  const open = progress.orders.map((each): BackfillProgress => {
    const requestsLeft = each.requestsLeft + Math.ceil(each.unproven / 20);
    const expectedAt = endOf(requestsLeft);
    return { ...each, ...waiting, requestsLeft, doneAt: null, withoutLog: null, expectedAt };
  });
  const done = [...held].flatMap(([id, order]): readonly BackfillProgress[] => {
    const { from, to, resolution, doneAt, withoutLog = null } = order;
    if (!hasEnded(order)) return [];
    const end = { tags: 1, requestsLeft: 0, done: 1, paused: false, sinksBehind: false, expectedAt: null };
    return [{ id, from, to, resolution, doneAt, withoutLog, ...end }];
  });
  const configured = progress.resolutions.flatMap((each): readonly BackfillProgress[] => {
    if (each.total || each.pendingRanges === 0) return [];
    const { resolution, tags, requestsLeft, done: share } = each;
    const rest = { from: null, to: null, ...waiting, doneAt: null, withoutLog: null };
    return [{ id: null, ...rest, resolution, tags, requestsLeft, done: share, expectedAt: endOf(requestsLeft) }];
  });
  return [...done, ...open, ...configured];
}

/** Planned requests per minute for the past. */
export function plannedRate({ backfill, lanes, quota }: PlanReport): number {
  const spare = lanes.find(({ lane }) => lane === "spare")?.requestsPerMinute ?? 0;
  return backfill?.requestsPerMinute ?? Math.max(0.03 * quota.polls, spare);
}

/** Progress of one backfill. Times are UTC. */
export interface BackfillProgress {
  /** Null for the configured backfill. */
  readonly id: string | null;
  readonly from: string | null;
  readonly to: string | null;
  readonly resolution: Resolution;
  readonly tags: number;
  readonly requestsLeft: number;
  /** Fetched share, 0 to 1. */
  readonly done: number;
  readonly paused: boolean;
  /** True while it waits for the sinks to take more events. */
  readonly sinksBehind: boolean;
  readonly doneAt: string | null;
  /** Intervals without a log; null before the end, and for the configured backfill. */
  readonly withoutLog: StoredBackfill["withoutLog"] | null;
  /** Planned end; null while it is paused and when it is done. */
  readonly expectedAt: string | null;
}

const CELLS = 24;

export function barLine(remaining: BackfillProgress): string {
  const { done, requestsLeft } = remaining;
  const full = Math.floor(done * CELLS);
  const bar = `${"█".repeat(full)}${"░".repeat(CELLS - full)}`;
  return `${bar} ${percent(done)}, ${requestsLeft} requests left, ${endOf(remaining)}`;
}

function endOf({ paused, sinksBehind, expectedAt }: BackfillProgress): string {
  if (paused) return "paused";
  if (sinksBehind) return "waiting for the sinks (plenum outbox)";
  return expectedAt === null ? "" : `done about ${minute(expectedAt)}`;
}

function remainingLines(all: readonly BackfillProgress[]): readonly string[] {
  if (all.length === 0) return ["No history is left to fetch."];
  return all.map((each) => {
    const what =
      each.id === null
        ? "configured backfill"
        : `order ${each.id}, ${minute(each.from ?? "")} to ${minute(each.to ?? "")}`;
    if (each.doneAt !== null) {
      return `${what}, ${each.resolution}: done at ${minute(each.doneAt)}${withoutLogText(each.withoutLog)}`;
    }
    return `${what}, ${each.resolution}, ${each.tags} tags: ${barLine(each)}`;
  });
}

/** Names the intervals without a log in a finished request. */
function withoutLogText(withoutLog: BackfillProgress["withoutLog"]): string {
  if (!withoutLog || withoutLog.buckets === 0) return "";
  return `; the service has no log of ${withoutLog.buckets} intervals of ${withoutLog.tags} tags`;
}

/** Never 100 % before the end. */
function percent(share: number): string {
  return `${Math.min(99, Math.floor(share * 100))} %`;
}

function minute(time: string): string {
  return `${time.slice(0, 16)}Z`;
}
