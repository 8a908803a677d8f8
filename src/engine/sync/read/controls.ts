import { type Failure, Malformed, Retryable } from "../../../core/errors/errors.ts";

const FAILURES_IN_A_ROW_MAX = 3;
/** Refusals in a row after which control tags are read: in idle slots, and in the slots of bisection groups. */
const REFUSALS_BEFORE_CONTROL = { idle: 3, search: 6 };
const REFUSED_CONTROLS_MAX = 3;
/** Refusals in a row that concern all tags if no tag was ever read, so that there is no control tag. */
const REFUSALS_WITHOUT_CONTROL_MAX = 8;

interface ControlState {
  readonly mode: "working" | "trying";
  readonly failures: number;
  readonly refusals: number;
  readonly controlsRefused: number;
}

type ControlEvent = "started" | "read" | "failed" | "failed for all" | "refused" | "control refused";

const WORKING_STATE: ControlState = { mode: "working", failures: 0, refusals: 0, controlsRefused: 0 };

/** A refusal that concerns all tags resets the count of refusals to 0. */
function nextControlState(state: ControlState, event: ControlEvent, hasControl: () => boolean): ControlState {
  switch (event) {
    case "started":
      return { ...WORKING_STATE, mode: state.mode };
    case "read":
      return WORKING_STATE;
    case "failed":
    case "failed for all": {
      const failures = state.failures + 1;
      const isForAll = event === "failed for all" || failures >= FAILURES_IN_A_ROW_MAX;
      return { ...state, failures, controlsRefused: 0, mode: isForAll ? "trying" : state.mode };
    }
    case "refused":
    case "control refused": {
      const refusals = state.refusals + 1;
      const controlsRefused = state.controlsRefused + (event === "control refused" ? 1 : 0);
      const isForAll =
        controlsRefused >= REFUSED_CONTROLS_MAX || (refusals >= REFUSALS_WITHOUT_CONTROL_MAX && !hasControl());
      return isForAll
        ? { ...WORKING_STATE, failures: state.failures, mode: "trying" }
        : { ...state, refusals, controlsRefused };
    }
  }
}

/**
 * Detects that reads fail for a reason that concerns all tags: the service is down or refuses every request.
 *     working ── 3 refusals in a row ──► checking: reads control tags in spare slots ── any read ──► working
 *     checking ── 3 controls refused ──► trying: one control tag at a time ──────────── any read ──► working
 *     working ── failure of token, quota or service, or 3 failures in a row ──► trying
 * A control is a single tag that was read recently: a refused group of 20 proves nothing.
 */
export function createControlReads(pickControl: (tried: readonly string[]) => string | undefined) {
  let state = WORKING_STATE;
  let tried: readonly string[] = [];
  let underWay: readonly string[] | null = null;
  const apply = (event: ControlEvent) => {
    state = nextControlState(state, event, () => pickControl([]) !== undefined);
  };

  return {
    isTrying: () => state.mode === "trying",
    /** True if a control tag may use the slot. Bisection often succeeds in between, so its slots wait longer. */
    mayUse: (slot: "idle" | "search") => state.mode === "trying" || state.refusals >= REFUSALS_BEFORE_CONTROL[slot],
    isUnderWay: () => underWay !== null,
    next(): readonly string[] {
      if (underWay !== null) return [];
      const untried = pickControl(tried);
      const control = untried ?? pickControl([]);
      if (control === undefined) return [];
      tried = [...(untried === undefined ? [] : tried), control];
      underWay = [control];
      return underWay;
    },
    succeeded(): void {
      apply("read");
      tried = [];
    },
    isTrial: (group: readonly string[]) => state.mode === "trying" && group === underWay,
    failed(failure: Failure): boolean {
      apply(mayConcernOneGateway(failure) ? "failed" : "failed for all");
      return state.mode === "trying";
    },
    refused(group: readonly string[]): boolean {
      apply(group === underWay ? "control refused" : "refused");
      return state.refusals === 0;
    },
    returned(group: readonly string[]): void {
      if (group === underWay) underWay = null;
    },
    restart(): void {
      apply("started");
      underWay = null;
    },
  };
}

/** True if a failure may concern one gateway; false for failures of the token, the quota or the service. */
export function mayConcernOneGateway(failure: Failure): boolean {
  return failure instanceof Retryable || failure instanceof Malformed;
}
