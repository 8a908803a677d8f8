import type { TagScalar } from "../building.ts";
import type { Clock } from "../clock.ts";
import type { Accept } from "../connector.ts";
import { type Service, Stopping } from "../lifecycle.ts";
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import type { Source } from "../source/source.ts";
import type { Store } from "../store/store.ts";
import { viewOf } from "./building-view.ts";
import type { CommandsConfig } from "./config.ts";
import { createIntake } from "./intake.ts";
import { type Journal, openJournal } from "./journal.ts";
import { createKillSwitch, type KillSwitch } from "./kill-switch.ts";
import { createReadBack, type ReadBack } from "./read-back.ts";
import { createWriter, type Writer } from "./writer.ts";

/**
 * The way back into the building: accept (gate and journal) → writer → read-back → result.
 *
 * At a start nothing is written by itself: a command that was accepted but had not left ends as `expired`, and
 * one that may have left is read back.
 */
export interface Commands extends Service {
  readonly accept: Accept;
  readonly killSwitch: KillSwitch;
  status(): CommandsStatus;
}

export interface CommandsStatus {
  readonly enabled: boolean;
  readonly rehearsal: boolean;
  readonly stopped: boolean;
  readonly writable: number;
  readonly waiting: number;
}

export interface CommandsOptions {
  readonly config: CommandsConfig;
  readonly sources: readonly { readonly source: Source; readonly timeZone: string }[];
  readonly store: Store;
  readonly stateFolder: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** Finished commands are forgotten once an hour. */
const TIDY_EVERY_MS = 3_600_000;

export async function createCommands(options: CommandsOptions): Promise<Commands> {
  const { clock, config, metrics, store } = options;
  const journal = await openJournal(store, clock);
  const killSwitch = createKillSwitch(options.stateFolder);
  const view = viewOf(store);
  const count = (outcome: string, reason: string | null) =>
    metrics.commands.inc({ outcome, reason: reason ?? "none" });

  const lines = new Map<string, { readonly writer: Writer; readonly readBack: ReadBack }>();
  for (const { source, timeZone } of options.sources) {
    const log = options.log.child({ source: source.name });
    const settleMs = config.read_back_after;
    const onFinished = (outcome: string) => count(outcome, null);
    const readBack = createReadBack({ source, journal, clock, log, settleMs, onFinished });
    const shared = { config, view, journal, killSwitch, readBack, clock, log, onFinished: count };
    lines.set(source.name, { readBack, writer: createWriter({ source, timeZone, ...shared }) });
  }

  const accept = createIntake({
    config,
    sourceNames: [...lines.keys()],
    view,
    journal,
    killSwitch,
    dispatch: (accepted) => lines.get(accepted.command.source)?.writer.add(accepted),
    onRefused: (reason) => count("rejected", reason),
  });

  const stopping = new AbortController();
  let running: Promise<unknown> = Promise.resolve();

  return {
    name: "commands",
    accept,
    killSwitch,
    status: () => ({
      enabled: config.enabled,
      rehearsal: config.rehearsal,
      stopped: killSwitch.thrown(),
      writable: config.allow.length,
      waiting: [...lines.values()].reduce((sum, line) => sum + line.writer.waiting(), 0),
    }),
    async start(signal) {
      await recover(journal, lines);
      const both = AbortSignal.any([signal, stopping.signal]);
      const loops = [...lines.values()].flatMap((line) => [line.writer.run(both), line.readBack.run(both)]);
      running = Promise.all([...loops, tidying(journal, clock, options.log, both)]);
    },
    async stop(deadlineMs) {
      stopping.abort(new Stopping());
      await Promise.race([running, clock.sleep(deadlineMs)]);
    },
  };
}

async function recover(
  journal: Journal,
  lines: ReadonlyMap<string, { readonly readBack: ReadBack }>,
): Promise<void> {
  for (const { command, state } of journal.open()) {
    const line = lines.get(command.source);
    if (state === "accepted" || line === undefined) {
      const message = "The worker stopped before the command left; nothing was written.";
      await journal.finish(command, { outcome: "expired", reason: "restarted", message });
    } else {
      line.readBack.add([{ command, sent: "in-doubt", complaint: null, before: null }]);
    }
  }
}

async function tidying(journal: Journal, clock: Clock, log: Log, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      await journal.tidy();
      await clock.sleep(TIDY_EVERY_MS, signal);
    } catch (error) {
      if (signal.aborted) return;
      log.warn({ err: error }, "old commands could not be forgotten");
      await clock.sleep(60_000, signal).catch(() => undefined);
    }
  }
}

/** A command as the operator on the command line gives it, in the form of an arrival. */
export function operatorArrival(fields: {
  readonly id: string;
  readonly source: string | null;
  readonly tagId: string;
  readonly value: TagScalar;
  readonly receivedAtMs: number;
}) {
  const { id, value } = fields;
  return {
    via: "operator",
    topic: "command line",
    tagId: fields.tagId,
    source: fields.source,
    payload: new TextEncoder().encode(JSON.stringify({ id, value })),
    retained: false,
    duplicate: false,
    expirySeconds: null,
    replyTo: null,
    correlation: null,
    properties: {},
    receivedAtMs: fields.receivedAtMs,
  };
}
