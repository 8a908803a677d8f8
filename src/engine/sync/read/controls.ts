import { type Failure, Malformed, Retryable } from "../../../core/errors/errors.ts";

/**
 * Whether the reads fail for a reason that concerns all tags, so that nobody may be blamed for it: a service that is
 * away, a token that was taken back, an answer that is refused whatever is asked for.
 *
 * A refused group of 20 does not tell: with a third of the tags refused nearly every group is. So after some refusals
 * in a row a *control* is asked, one tag alone that was answered lately, in a slot that no promise needs; when up to
 * three of them, each of another site where there is one, are refused too, it is about no single tag. Then, as after a
 * failure that concerns all, one control at a time *tries* until something is read.
 */
export interface Controls {
  /** A failure concerned all, and nothing has been read since: only one request at a time tries, for one tag. */
  isTrying(): boolean;
  /**
   * Whether a control is worth a slot: while it is trying, or after some refusals in a row; more of them where the slot
   * would be a search's, which mostly has an answer in between.
   */
  isWorth(slot: "idle" | "search"): boolean;
  /** Whether one is on its way. */
  isOut(): boolean;
  /** The control to be asked now; empty while one is on its way, and where there is no tag that could tell. */
  next(): readonly string[];
  /** These were read: nothing concerns all. */
  answered(): void;
  /** Whether a failure can be due to the tags of its request; one of the quota, of the token or of the service cannot. */
  mayBlame(failure: Failure): boolean;
  /** Whether this is the control that tries: what it meets is about no tag, for it was answered lately. */
  isTrial(group: readonly string[]): boolean;
  /** A request failed for a reason that need not be its tags'. Answers whether it concerns all. */
  failed(failure: Failure): boolean;
  /** A request was refused, and what the token may see does not say why. Answers whether it concerns all. */
  refused(group: readonly string[]): boolean;
  /** The request for these is over, however it ended. */
  returned(group: readonly string[]): void;
  /** The work begins again: failures in a row are counted from here on. */
  begin(): void;
}

/** Failures in a row after which it is the service, not a gateway. */
const FAILURES_MAX = 3;
/** Refusals in a row after which controls are asked in slots that nobody wants. */
const REFUSALS_IN_DOUBT = 3;
/** So many controls refused: it is about no single tag. */
const CONTROLS = 3;
/** The same instead of a search: with the controls and one on its way, ten requests to what is refused altogether. */
const REFUSALS_FOR_SEARCH = 6;
/** Where no tag was ever read, so many say that it is about no single tag. */
const REFUSALS_UNREAD = 8;

/** `pick` answers a tag that was read lately and is none of those given, or undefined; see `Board.control`. */
export function createControls(pick: (tried: readonly string[]) => string | undefined): Controls {
  let trying = false;
  let failures = 0;
  let refusals = 0;
  /** Controls that were refused in a row: one may be of a site that is refused, three are of three. */
  let controlsRefused = 0;
  /** Controls that were asked since anything was read. */
  let tried: readonly string[] = [];
  let out: readonly string[] | null = null;

  return {
    isTrying: () => trying,
    isWorth: (slot) => trying || refusals >= (slot === "idle" ? REFUSALS_IN_DOUBT : REFUSALS_FOR_SEARCH),
    isOut: () => out !== null,
    next() {
      if (out !== null) return [];
      const untried = pick(tried);
      const control = untried ?? pick([]);
      if (control === undefined) return [];
      tried = [...(untried === undefined ? [] : tried), control];
      out = [control];
      return out;
    },
    answered() {
      trying = false;
      failures = 0;
      refusals = 0;
      controlsRefused = 0;
      tried = [];
    },
    mayBlame: mayBeOneGateway,
    isTrial: (group) => trying && group === out,
    failed(failure) {
      failures++;
      controlsRefused = 0;
      trying ||= !mayBeOneGateway(failure) || failures >= FAILURES_MAX;
      return trying;
    },
    refused(group) {
      refusals++;
      if (group === out) controlsRefused++;
      const isControlled = controlsRefused >= CONTROLS;
      const neverRead = refusals >= REFUSALS_UNREAD && pick([]) === undefined;
      if (!isControlled && !neverRead) return false;
      refusals = 0;
      controlsRefused = 0;
      trying = true;
      return true;
    },
    returned(group) {
      if (group === out) out = null;
    },
    begin() {
      failures = 0;
      refusals = 0;
      controlsRefused = 0;
      out = null;
    },
  };
}

/** Trouble that a single gateway or a single reply can cause; the rest concerns the token, the quota, the service. */
function mayBeOneGateway(failure: Failure): boolean {
  return failure instanceof Retryable || failure instanceof Malformed;
}
