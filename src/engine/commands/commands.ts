import type { Clock } from "../../core/runtime/clock.ts";
import type { ClockCheck } from "../../core/runtime/clock-check.ts";
import { OrderlyStop, type WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { endsWithin, runLoop } from "../../core/runtime/waiting.ts";
import { type Source, TAGS_PER_REQUEST } from "../source/source.ts";
import type { Store } from "../store/store.ts";
import { createTagAllowList, toWritableTag, type WritableTag } from "./allow-list.ts";
import { createWriteApprovalGuard } from "./approval/approval-guard.ts";
import { collectWriteRules, type RuleSet } from "./approval/check-approval.ts";
import { createAuditLogSpace } from "./audit/audit-log-space.ts";
import { createCommandIntake } from "./command-intake.ts";
import { createCommandEndingRecorder } from "./command-outcomes.ts";
import type { CommandsConfig } from "./config.ts";
import { createFreshTagValues } from "./fresh-tag-values.ts";
import { checkClocksForWriting } from "./gate.ts";
import { type AcceptedCommand, openCommandJournal } from "./journal.ts";
import { createWriteReadBack, type WriteReadBack } from "./read-back.ts";
import { createRefusalReporter } from "./refusal-reporter.ts";
import { type EstimateCost, estimateCost, quotaWaitMs } from "./request-cost-of-message.ts";
import { createValueRestores } from "./restore-old-values.ts";
import { createStoredBuildingReader } from "./stored-building-reader.ts";
import { type CommandWriter, createCommandWriter, WORKER_STOPPED_ENDING } from "./tag-command-writer.ts";
import { openWriteArming } from "./write-arming.ts";
import { createWriteBlockers } from "./write-blocking-conditions.ts";
import { openWriteLocks } from "./write-locks.ts";
import type { WritingGuards } from "./writing-guards.ts";

export type WriteCommandService = Awaited<ReturnType<typeof createWriteCommandService>>;
export type WriteCommandsStatus = ReturnType<WriteCommandService["status"]>;

interface SourceCommandWriter {
  readonly source: Source;
  readonly writer: CommandWriter;
  readonly readBack: WriteReadBack;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const FINAL_REFUSAL_FLUSH_MS = 100;
const HOURLY_TASK_BACKOFF = { firstMs: 60_000, maxMs: 600_000 };

/** Executes commands that write tags: message → checks and journal → writer → read-back → result. */
export async function createWriteCommandService(options: {
  readonly config: CommandsConfig;
  readonly sources: readonly { readonly source: Source; readonly timeZone: string }[];
  readonly store: Store;
  readonly guards: WritingGuards;
  readonly armAtStart?: boolean;
  readonly around?: RuleSet;
  readonly approvedConfig?: CommandsConfig;
  readonly clock: Clock;
  readonly clockCheck: Pick<ClockCheck, "latestStep">;
  readonly log: Log;
  readonly metrics: Metrics;
}) {
  const { around = {}, clock, clockCheck, guards, log, metrics, store } = options;
  const { killSwitch } = guards;
  let currentConfig = options.config;
  const config = () => currentConfig;
  const allowList = createTagAllowList(
    currentConfig,
    options.sources.map(({ source }) => source.name),
  );
  const sourceWriters = new Map<string, SourceCommandWriter>();
  const estimateMessageCost: EstimateCost = (commands) => {
    const sourceWriter = sourceWriters.get(commands[0]?.command.source ?? "");
    if (sourceWriter === undefined) return { waitsMs: [], requestCount: 0, totalSeconds: 0 };
    const { source, writer } = sourceWriter;
    const writeTimesMs = journal.writeCounts.timesOfTagMs;
    return estimateCost(commands, { source, queueSize: writer.waiting(), config: currentConfig, writeTimesMs, clock });
  };
  const journal = await openCommandJournal({
    store,
    clock,
    rehearsal: currentConfig.rehearsal,
    estimateCost: estimateMessageCost,
  });
  const approval = createWriteApprovalGuard({
    config: currentConfig.approval ?? null,
    rules: collectWriteRules(options.approvedConfig ?? currentConfig, around),
    approverStore: guards.approverStore,
    clock,
  });
  const arming = await openWriteArming({ store, guards, armAtStart: options.armAtStart ?? false, journal, clock, log });
  const auditSpace = createAuditLogSpace({
    size: journal.auditSize,
    maxBytes: currentConfig.audit_max_bytes,
    freeDiskBytes: guards.freeDiskBytes,
    metrics,
    log,
  });
  const blockers = createWriteBlockers({ config, killSwitch, arming, approval, auditSpace, journal, clock, log });
  const view = createStoredBuildingReader(store);
  const locks = await openWriteLocks({ store, journal, view, clock });
  const countOutcome = (outcome: string, reason: string | null) =>
    metrics.commands.inc({ outcome, reason: reason ?? "none" });
  const dispatch = (acceptedCommand: AcceptedCommand) =>
    sourceWriters.get(acceptedCommand.command.source)?.writer.add(acceptedCommand);
  const findClockRefusal = (source: Source) => checkClocksForWriting(source.clockSkewMs(), clockCheck.latestStep());
  const isSourceClockTrusted = (source: Source) => source.clockSkewMs() !== null && findClockRefusal(source) === null;
  function isClockTrusted(name: string): boolean {
    const sourceWriter = sourceWriters.get(name);
    return sourceWriter !== undefined && isSourceClockTrusted(sourceWriter.source);
  }
  const valueRestores = createValueRestores({ journal, allowList, view, clock, isClockTrusted, log, dispatch });
  const endings = createCommandEndingRecorder({
    journal,
    clock,
    log,
    countOutcome,
    postponeIfTemporary: valueRestores.postponeIfTemporary,
  });
  const refusalReporter = createRefusalReporter(journal, clock, log);

  for (const { source, timeZone } of options.sources) {
    const sourceContext = {
      source,
      view,
      journal,
      locks,
      endings,
      clock,
      log: log.child({ source: source.name }),
    };
    const values = createFreshTagValues(sourceContext);
    const readBack = createWriteReadBack({
      ...sourceContext,
      values,
      readBackAfterMs: () => currentConfig.read_back_after,
    });
    const findWritingRefusal = () => blockers.findRefusal() ?? findClockRefusal(source);
    const writer = createCommandWriter({
      ...sourceContext,
      timeZone,
      config,
      isStillAllowed: allowList.isStillAllowed,
      values,
      findWritingRefusal,
      readBack,
    });
    sourceWriters.set(source.name, { source, readBack, writer });
  }
  const acceptCommandMessage = createCommandIntake({
    config,
    allowList,
    buildingReader: view,
    journal,
    refusalReporter,
    killSwitch,
    clock,
    clockCheck,
    dispatch,
    countOutcome,
    ...{ findWritingRefusal: blockers.findRefusal, locks, estimateCost: estimateMessageCost },
    clockSkewMs: (name) => sourceWriters.get(name)?.source.clockSkewMs() ?? null,
    onSecondApproval: (name) => sourceWriters.get(name)?.writer.wake(),
  });
  const stopController = new AbortController();
  const forcedStopController = new AbortController();
  let runPromise: Promise<unknown> | null = null;
  let stopPromise: Promise<void> | null = null;

  async function pruneJournal(): Promise<number> {
    // Keep command ids while a clock is wrong: a clock a week ahead would delete ids that senders may still repeat.
    if (![...sourceWriters.values()].every(({ source }) => isSourceClockTrusted(source))) return MINUTE_MS;
    await journal.deleteOldCommands();
    return HOUR_MS;
  }

  async function publishAuditHead(): Promise<number> {
    await journal.publishAuditHead();
    return HOUR_MS;
  }

  async function recoverOpenCommands(signal: AbortSignal): Promise<void> {
    for (const { command, state, changedAt } of journal.listOpenCommands()) {
      const sourceWriter = sourceWriters.get(command.source);
      if (state === "accepted") {
        // A command that puts an old value back stays open and is executed as soon as possible.
        if (journal.findRestoreOfCommand(command.id) === undefined)
          await endings.end(command, WORKER_STOPPED_ENDING, signal);
      } else if (sourceWriter === undefined) {
        const message = `Source ${command.source} is no longer configured, so the tag cannot be read back.`;
        await endings.end(command, { outcome: "unknown", reason: "in-doubt", message }, signal);
      } else {
        const sentAtMs = Date.parse(changedAt);
        sourceWriter.readBack.add([{ command, sendResult: "in-doubt", failureText: null, before: null, sentAtMs }]);
      }
    }
  }

  async function stopCommands(deadlineMs: number): Promise<void> {
    const stopDeadlineMs = clock.monotonic() + deadlineMs;
    stopController.abort(new OrderlyStop());
    await endsWithin(clock, deadlineMs, runPromise ?? Promise.resolve());
    forcedStopController.abort(new OrderlyStop());
    const flushPromise = refusalReporter.flush().catch((error: unknown) => {
      log.error({ err: error }, "refusals could not be recorded");
    });
    await endsWithin(clock, Math.max(FINAL_REFUSAL_FLUSH_MS, stopDeadlineMs - clock.monotonic()), flushPromise);
  }

  const lifecycle: WorkerService = {
    name: "commands",
    async start(signal) {
      if (runPromise !== null || stopController.signal.aborted) return;
      const stopSignal = AbortSignal.any([signal, stopController.signal]);
      const forcedStopSignal = AbortSignal.any([signal, forcedStopController.signal]);
      const runHourly = (task: () => Promise<number>, problem: string) => {
        const onFault = (error: unknown) => log.warn({ err: error }, problem);
        return runLoop({ clock, signal: stopSignal, step: task, onFault, backoff: HOURLY_TASK_BACKOFF });
      };
      runPromise = Promise.allSettled([
        recoverOpenCommands(forcedStopSignal),
        ...[...sourceWriters.values()].flatMap(({ writer, readBack }) => [
          writer.runSending(stopSignal, forcedStopSignal),
          readBack.runVerification(stopSignal),
        ]),
        refusalReporter.runReporting(stopSignal),
        valueRestores.runRestores(endings, stopSignal),
        runHourly(pruneJournal, "old commands could not be forgotten"),
        runHourly(publishAuditHead, "the head of the audit log could not be published"),
        blockers.watchBlockers(stopSignal),
      ]);
    },
    stop(deadlineMs) {
      stopPromise ??= stopCommands(deadlineMs);
      return stopPromise;
    },
  };

  return {
    ...lifecycle,
    accept: acceptCommandMessage,
    killSwitch,
    notices: () => [...blockers.notices(), ...valueRestores.notices()],
    status: () => ({
      enabled: currentConfig.enabled,
      rehearsal: currentConfig.rehearsal,
      stopped: killSwitch.isOn(),
      writable: currentConfig.allow.length,
      locks: locks.active(),
      waiting: [...sourceWriters.values()].reduce((sum, sourceWriter) => sum + sourceWriter.writer.waiting(), 0),
    }),
    /** Applies new rules of writing. Ends queued commands whose tag has other rules now. */
    changeConfig(next: CommandsConfig, nextOtherRules: RuleSet): void {
      allowList.replaceRules(next);
      approval.replaceRules({ config: next.approval ?? null, rules: collectWriteRules(next, nextOtherRules) });
      auditSpace.setMaxBytes(next.audit_max_bytes);
      currentConfig = next;
      for (const { writer } of sourceWriters.values()) writer.wake();
    },
    changeLock: locks.changeLock,
    async findWritableTag(name: string, tagId: string): Promise<WritableTag | null> {
      const allowedTag = allowList.findEntry(name, tagId);
      const sourceWriter = sourceWriters.get(name);
      if (allowedTag === undefined || sourceWriter === undefined) return null;
      const operatorWrite = { source: name, siteId: allowedTag.site_id, tagId, via: "operator" };
      const refusal =
        blockers.findRefusal() ?? findClockRefusal(sourceWriter.source) ?? (await locks.findRefusal(operatorWrite));
      return toWritableTag(allowedTag, currentConfig.rehearsal, refusal);
    },
    /** Returns how long the request quota would delay a new command; null selects the only source. */
    expectedWaitMs(sourceName: string | null): number {
      const sourceWriter = sourceWriters.get(allowList.resolveSource(sourceName) ?? "");
      if (sourceWriter === undefined) return 0;
      const requestCountBefore = Math.floor(sourceWriter.writer.waiting() / TAGS_PER_REQUEST);
      return currentConfig.group_window + quotaWaitMs(sourceWriter.source, requestCountBefore, clock);
    },
  };
}
