import { type Failure, Malformed, Retryable } from "../../../core/errors/errors.ts";

const FAILURES_IN_A_ROW_MAX = 3;
/** Refusals in a row after which control tags are read: in idle slots, and in the slots of bisection groups. */
const REFUSALS_BEFORE_CONTROL = { idle: 3, search: 6 };
const REFUSED_CONTROLS_MAX = 3;
/** Refusals in a row that concern all tags if no tag was ever read, so that there is no control tag. */
const REFUSALS_WITHOUT_CONTROL_MAX = 8;

const WORKING_STATE = { isTrying: false, failures: 0, refusals: 0, controlsRefused: 0 };

/**
 * Detects that reads fail for a reason that concerns all tags: the service is down or refuses every request.
 *     working ── 3 refusals in a row ──► checking: reads control tags in spare slots ── any read ──► working
 *     checking ── 3 controls refused ──► trying: one control tag at a time ──────────── any read ──► working
 *     working ── failure of token, quota or service, or 3 failures in a row ──► trying
 * A control is a single tag that was read recently: a refused group of 20 proves nothing.
 */
export function createControlReads(pickControl: (tried: readonly string[]) => string | undefined) {
  let state = WORKING_STATE;
  let triedControls: readonly string[] = [];
  let underWay: readonly string[] | null = null;

  return {
    isTrying: () => state.isTrying,
    /** True if a control tag may use the slot. Bisection often succeeds in between, so its slots wait longer. */
    mayUse: (slot: "idle" | "search") => state.isTrying || state.refusals >= REFUSALS_BEFORE_CONTROL[slot],
    isUnderWay: () => underWay !== null,
    next(): readonly string[] {
      if (underWay !== null) return [];
      const untriedControl = pickControl(triedControls);
      const control = untriedControl ?? pickControl([]);
      if (control === undefined) return [];
      triedControls = [...(untriedControl === undefined ? [] : triedControls), control];
      underWay = [control];
      return underWay;
    },
    succeeded(): void {
      state = WORKING_STATE;
      triedControls = [];
    },
    isTrial: (group: readonly string[]) => state.isTrying && group === underWay,
    failed(failure: Failure): boolean {
      const failures = state.failures + 1;
      const isForAll = !mayConcernOneGateway(failure) || failures >= FAILURES_IN_A_ROW_MAX;
      state = { ...state, failures, controlsRefused: 0, isTrying: isForAll || state.isTrying };
      return state.isTrying;
    },
    refused(group: readonly string[]): boolean {
      const refusals = state.refusals + 1;
      const controlsRefused = state.controlsRefused + (group === underWay ? 1 : 0);
      const isWithoutControl = refusals >= REFUSALS_WITHOUT_CONTROL_MAX && pickControl([]) === undefined;
      const isForAll = controlsRefused >= REFUSED_CONTROLS_MAX || isWithoutControl;
      if (isForAll) state = { ...WORKING_STATE, failures: state.failures, isTrying: true };
      else state = { ...state, refusals, controlsRefused };
      return isForAll;
    },
    returned(group: readonly string[]): void {
      if (group === underWay) underWay = null;
    },
    restart(): void {
      state = { ...WORKING_STATE, isTrying: state.isTrying };
      underWay = null;
    },
  };
}

export const mayConcernOneGateway = (failure: Failure) => failure instanceof Retryable || failure instanceof Malformed;
