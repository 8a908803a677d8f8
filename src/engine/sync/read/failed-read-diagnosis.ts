import { type Failure, Malformed, Retryable, Throttled } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";

const FAILURES_IN_A_ROW_MAX = 3;
/** Refusals in a row after which a control tag is read: in an idle slot, and in a slot of the bisection. */
const REFUSALS_BEFORE_CONTROL_READ = { idle: 3, search: 6 };
const REFUSED_CONTROL_TAGS_MAX = 3;
/** Refusals in a row after which all tags are concerned, if there is no control tag. */
const REFUSALS_WITHOUT_CONTROL_TAG = 8;

const WORKING_READ_STATE = { isTrying: false, failures: 0, refusals: 0, controlsRefused: 0 };

/**
 * Detects failures that concern all tags, by reading a control tag: a single tag that was read recently.
 *     working ── 3 refusals in a row ──► checking: reads control tags in spare slots ── any read ──► working
 *     checking ── 3 controls refused ──► trying: one control tag at a time ──────────── any read ──► working
 *     working ── failure of token, quota or service, or 3 failures in a row ──► trying
 */
export function createControlReads(pickControl: (tried: readonly string[]) => string | undefined) {
  let readState = WORKING_READ_STATE;
  let triedControlTags: readonly string[] = [];
  let controlTagsUnderWay: readonly string[] | null = null;

  return {
    isTrying: () => readState.isTrying,
    mayUse: (slot: "idle" | "search") => readState.isTrying || readState.refusals >= REFUSALS_BEFORE_CONTROL_READ[slot],
    isUnderWay: () => controlTagsUnderWay !== null,
    next(): readonly string[] {
      if (controlTagsUnderWay !== null) return [];
      const untriedControlTag = pickControl(triedControlTags);
      const controlTag = untriedControlTag ?? pickControl([]);
      if (controlTag === undefined) return [];
      triedControlTags = [...(untriedControlTag === undefined ? [] : triedControlTags), controlTag];
      controlTagsUnderWay = [controlTag];
      return controlTagsUnderWay;
    },
    succeeded(): void {
      readState = WORKING_READ_STATE;
      triedControlTags = [];
    },
    isTrial: (group: readonly string[]) => readState.isTrying && group === controlTagsUnderWay,
    failed(failure: Failure): boolean {
      const failures = readState.failures + 1;
      const concernsAllTags = !mayConcernOneGateway(failure) || failures >= FAILURES_IN_A_ROW_MAX;
      readState = { ...readState, failures, controlsRefused: 0, isTrying: concernsAllTags || readState.isTrying };
      return readState.isTrying;
    },
    refused(group: readonly string[]): boolean {
      const refusalCount = readState.refusals + 1;
      const refusedControlCount = readState.controlsRefused + (group === controlTagsUnderWay ? 1 : 0);
      const isWithoutControlTag = refusalCount >= REFUSALS_WITHOUT_CONTROL_TAG && pickControl([]) === undefined;
      const concernsAllTags = refusedControlCount >= REFUSED_CONTROL_TAGS_MAX || isWithoutControlTag;
      if (concernsAllTags) readState = { ...WORKING_READ_STATE, failures: readState.failures, isTrying: true };
      else readState = { ...readState, refusals: refusalCount, controlsRefused: refusedControlCount };
      return concernsAllTags;
    },
    returned(group: readonly string[]): void {
      if (group === controlTagsUnderWay) controlTagsUnderWay = null;
    },
    restart(): void {
      readState = { ...WORKING_READ_STATE, isTrying: readState.isTrying };
      controlTagsUnderWay = null;
    },
  };
}

export const mayConcernOneGateway = (failure: Failure) => failure instanceof Retryable || failure instanceof Malformed;

interface UnansweredReadOptions {
  readonly clock: Pick<Clock, "monotonic">;
  /** Time between two requests, in milliseconds. */
  readonly slotMs: () => number;
}

/**
 * A request counts as unanswered after two slots, or after twice the latency of the last reply, if no other reply arrived:
 * after 6 s at 20 requests a minute, after 80 s while replies take 40 s.
 */
const UNANSWERED_SLOTS = 2;
const UNANSWERED_LATENCIES = 2;

/**
 * Knows the tags whose reads the service fails, refuses or does not answer. A tag that is read late because the quota is
 * used up, or because replies are slow, is not among them.
 */
export function createUnansweredReads({ clock, slotMs }: UnansweredReadOptions) {
  const failedTagIds = new Set<string>();
  const sentMs = new Map<readonly string[], number>();
  let lastReplyMs = Number.NEGATIVE_INFINITY;
  let lastLatencyMs = 0;
  let lastFailureMs = Number.NEGATIVE_INFINITY;

  return {
    sent: (group: readonly string[]) => void sentMs.set(group, clock.monotonic()),
    returned: (group: readonly string[]) => void sentMs.delete(group),
    replied(group: readonly string[], latencyMs: number): void {
      lastReplyMs = clock.monotonic();
      lastLatencyMs = latencyMs;
      for (const id of group) failedTagIds.delete(id);
    },
    failed(group: readonly string[], failure: Failure): void {
      if (failure instanceof Throttled && failure.scope === "allowance") return;
      lastFailureMs = clock.monotonic();
      for (const id of group) failedTagIds.add(id);
    },
    includes(id: string): boolean {
      if (failedTagIds.has(id) || lastFailureMs > lastReplyMs) return true;
      const oldestSentMs = Math.min(...sentMs.values());
      const patienceMs = Math.max(UNANSWERED_SLOTS * slotMs(), UNANSWERED_LATENCIES * lastLatencyMs);
      return oldestSentMs > lastReplyMs && clock.monotonic() - oldestSentMs > patienceMs;
    },
  };
}
