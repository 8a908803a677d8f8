import { type Failure, Malformed, Retryable, Throttled } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";

const FAILURES_IN_A_ROW_MAX = 3;
/** Refusals in a row after which a recently read tag is read as the control tag, by kind of request slot. */
const REFUSALS_BEFORE_CONTROL_READ = { idle: 3, search: 6 };
const REFUSED_CONTROL_TAGS_MAX = 3;
/** Refusals in a row that prove a failure of the service if no recently read tag can be read again as a control. */
const REFUSALS_WITHOUT_CONTROL_TAG = 8;

const WORKING_READ_STATE = { readsOnlyControlTags: false, failureCount: 0, refusalCount: 0, refusedControlCount: 0 };

/**
 * Detects failures that concern all tags, by reading a control tag: a single tag that was read recently.
 *     working ── 3 refusals in a row ──► checking: reads control tags in spare slots ── any read ──► working
 *     checking ── 3 controls refused ──► trying: one control tag at a time ──────────── any read ──► working
 *     working ── failure of token, quota or service, or 3 failures in a row ──► trying
 */
export function createControlReads(pickControlTag: (triedTags: readonly string[]) => string | undefined) {
  let readState = WORKING_READ_STATE;
  let triedControlTags: readonly string[] = [];
  let controlTagsUnderWay: readonly string[] | null = null;

  return {
    readsOnlyControlTags: () => readState.readsOnlyControlTags,
    mayReadInSlot: (slot: "idle" | "search") =>
      readState.readsOnlyControlTags || readState.refusalCount >= REFUSALS_BEFORE_CONTROL_READ[slot],
    isControlReadUnderWay: () => controlTagsUnderWay !== null,
    nextControlTags(): readonly string[] {
      if (controlTagsUnderWay !== null) return [];
      const untriedControlTag = pickControlTag(triedControlTags);
      const controlTag = untriedControlTag ?? pickControlTag([]);
      if (controlTag === undefined) return [];
      triedControlTags = [...(untriedControlTag === undefined ? [] : triedControlTags), controlTag];
      controlTagsUnderWay = [controlTag];
      return controlTagsUnderWay;
    },
    noteReadSuccess(): void {
      readState = WORKING_READ_STATE;
      triedControlTags = [];
    },
    isControlRead: (group: readonly string[]) => readState.readsOnlyControlTags && group === controlTagsUnderWay,
    noteReadFailure(failure: Failure): boolean {
      const failures = readState.failureCount + 1;
      const concernsAllTags = !mayConcernOneGateway(failure) || failures >= FAILURES_IN_A_ROW_MAX;
      readState = {
        ...readState,
        failureCount: failures,
        refusedControlCount: 0,
        readsOnlyControlTags: concernsAllTags || readState.readsOnlyControlTags,
      };
      return readState.readsOnlyControlTags;
    },
    noteReadRefusal(group: readonly string[]): boolean {
      const refusalCount = readState.refusalCount + 1;
      const refusedControlCount = readState.refusedControlCount + (group === controlTagsUnderWay ? 1 : 0);
      const isWithoutControlTag = refusalCount >= REFUSALS_WITHOUT_CONTROL_TAG && pickControlTag([]) === undefined;
      const concernsAllTags = refusedControlCount >= REFUSED_CONTROL_TAGS_MAX || isWithoutControlTag;
      if (concernsAllTags)
        readState = { ...WORKING_READ_STATE, failureCount: readState.failureCount, readsOnlyControlTags: true };
      else readState = { ...readState, refusalCount, refusedControlCount };
      return concernsAllTags;
    },
    noteReadEnd(group: readonly string[]): void {
      if (group === controlTagsUnderWay) controlTagsUnderWay = null;
    },
    restartDiagnosis(): void {
      readState = { ...WORKING_READ_STATE, readsOnlyControlTags: readState.readsOnlyControlTags };
      controlTagsUnderWay = null;
    },
  };
}

export const mayConcernOneGateway = (failure: Failure) => failure instanceof Retryable || failure instanceof Malformed;

/**
 * Slots and reply latencies after which a request counts as unanswered, if no other reply arrived: two slots are 6 s at
 * 20 requests a minute; twice the last latency is 80 s while replies take 40 s. The longer time applies.
 */
const UNANSWERED_AFTER_SLOTS = 2;
const UNANSWERED_AFTER_LATENCIES = 2;
/** Time without a reply after which one failed read counts for all tags, e.g. if tags are read once an hour. */
const NO_REPLY_MS = 60_000;
const NO_FAILURES = { count: 0, isReplyMissing: false };

/**
 * Tracks the tags whose reads fail, are refused or get no reply. A tag that is read late because the quota is used up,
 * or because replies are slow, does not count.
 */
export function createUnansweredReads(clock: Clock, slotMs: () => number) {
  const failedTagIds = new Set<string>();
  const sentMsByGroup = new Map<readonly string[], number>();
  let lastReplyMs = Number.NEGATIVE_INFINITY;
  let lastLatencyMs = 0;
  /** Failures since the last reply. `isReplyMissing`: at least one request failed without a refusal. */
  let failures = NO_FAILURES;

  return {
    requestSent: (group: readonly string[]) => void sentMsByGroup.set(group, clock.monotonic()),
    requestEnded: (group: readonly string[]) => void sentMsByGroup.delete(group),
    requestReplied(group: readonly string[], latencyMs: number): void {
      lastReplyMs = clock.monotonic();
      failures = NO_FAILURES;
      lastLatencyMs = latencyMs;
      for (const id of group) failedTagIds.delete(id);
    },
    requestFailed(group: readonly string[], failure: Failure, isRefusal: boolean): void {
      if (failure instanceof Throttled && failure.scope === "allowance") return;
      failures = { count: failures.count + 1, isReplyMissing: failures.isReplyMissing || !isRefusal };
      for (const id of group) failedTagIds.add(id);
    },
    /** Forgets the failures of all tags, or only of the affected tags. */
    forgetFailures(isAffected?: (id: string) => boolean): void {
      for (const id of failedTagIds) if (isAffected?.(id) !== false) failedTagIds.delete(id);
      if (isAffected === undefined || (!failures.isReplyMissing && failedTagIds.size === 0)) failures = NO_FAILURES;
    },
    isTagUnanswered(id: string): boolean {
      const hasNoReply = failures.isReplyMissing && clock.monotonic() - lastReplyMs >= NO_REPLY_MS;
      if (failedTagIds.has(id) || failures.count >= FAILURES_IN_A_ROW_MAX || hasNoReply) return true;
      const oldestSentMs = Math.min(...sentMsByGroup.values());
      const timeoutMs = Math.max(UNANSWERED_AFTER_SLOTS * slotMs(), UNANSWERED_AFTER_LATENCIES * lastLatencyMs);
      return oldestSentMs > lastReplyMs && clock.monotonic() - oldestSentMs > timeoutMs;
    },
  };
}
