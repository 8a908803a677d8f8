import { DateTime } from "luxon";
import type { Gateway, Tag, TagScalar, TagValue, TokenInfo } from "../../core/model/building.ts";
import { type ClockDifference, DIFFERENCE_BOUND_MS } from "../../core/runtime/clock-check.ts";
import type { Listed, StoredValue } from "../sync/snapshot.ts";
import type { CommandRefusal } from "./command.ts";
import type { AllowedTag } from "./config.ts";
import type { Request } from "./payload.ts";
import { isFurther } from "./step.ts";

/**
 * The gate: pure checks in one fixed order (`REFUSALS`); the first that fails answers with its own reason.
 *
 * 1. on arrival (`checkArrival`): time to live, retained, allow-list, type, range, and already the rate, because a
 *    loop must not fill the journal with commands that can never leave. Nothing here asks the service.
 * 2. before sending (`checkDispatch`): expected value and step against a fresh value, rate, hours, gateway.
 *
 * Size, parsing, schema and duplicates come before, where the message is read; the journal comes after.
 */
export interface Refusing {
  readonly reason: CommandRefusal;
  readonly message: string;
}

type Refused = { readonly refused: Refusing };

/** Fields of a reading that the gate checks. */
export type FreshValue = Pick<StoredValue, "value" | "quality" | "time">;

/** A value older than this is not fresh enough to measure a step against. */
export const FRESH_MS = 60_000;

/** A reading further in the future than this is older than a clock step, so its age is unknown; milliseconds. */
const AHEAD_MS = 1_000;

const DAY_MS = 86_400_000;

export interface PastWrites {
  /** Wall times of the tag's writes within the last 24 hours, ascending. */
  readonly ofTag: readonly number[];
  /** Writes of all tags of the source within the last hour. */
  readonly lastHour: number;
}

/** How often may be written. */
export interface RateFacts {
  readonly entry: AllowedTag;
  readonly forMs: number | null;
  readonly past: PastWrites;
  readonly maxPerHour: number;
  readonly nowMs: number;
}

export interface ArrivalFacts {
  readonly request: Request;
  readonly retained: boolean;
  readonly expirySeconds: number | null;
  readonly via: string;
  readonly receivedAtMs: number;
  readonly defaultTtlMs: number;
  readonly maxTtlMs: number;
  readonly maxPerHour: number;
  readonly maxRestoreAfterMs: number;
  /** Our clock minus the service's, in milliseconds; null when unknown. */
  readonly clockSkewMs: number | null;
  /** A step of our clock that no service has agreed to yet. */
  readonly clockStep: ClockDifference | null;
  readonly entry: AllowedTag | undefined;
  readonly held: Listed<Tag> | undefined;
  readonly token: TokenInfo | undefined;
  readonly past: PastWrites;
}

export type ArrivalVerdict = { readonly expiresAtMs: number } | Refused;

export function checkArrival(facts: ArrivalFacts): ArrivalVerdict {
  const { request, entry } = facts;
  const life = timeToLive(facts);
  if ("refused" in life) return life;
  if (facts.retained) {
    return refuse("retained", "Retained commands are refused: the broker would repeat them at every reconnect.");
  }
  if (entry === undefined) {
    return refuse("not-allowed", `Tag ${request.tagId} is not on the list of tags that may be written.`);
  }
  if (entry.from !== undefined && !entry.from.includes(facts.via)) {
    return refuse("not-allowed", `Tag ${request.tagId} may not be written from ${facts.via}.`);
  }
  const rate = checkRate({ ...facts, entry, forMs: request.forMs, nowMs: facts.receivedAtMs });
  return (
    checkTag(facts, entry) ??
    checkToken(facts, entry) ??
    checkValue(request.value, entry) ??
    checkTimed(request.forMs, entry, facts.maxRestoreAfterMs) ??
    (rate === null ? life : { refused: rate })
  );
}

function timeToLive(facts: ArrivalFacts): ArrivalVerdict {
  const { request, receivedAtMs } = facts;
  const issued = request.issuedAtMs ?? receivedAtMs;
  if (issued > receivedAtMs + DIFFERENCE_BOUND_MS) {
    return refuse("clock-skew", "issued_at lies in the future; set the sender's clock.");
  }
  const wrongClock = checkClock(facts.clockSkewMs, facts.clockStep);
  if (wrongClock !== null) return { refused: wrongClock };
  const asked = Math.min(request.ttlMs ?? facts.defaultTtlMs, facts.maxTtlMs);
  const byBroker = facts.expirySeconds === null ? Infinity : receivedAtMs + facts.expirySeconds * 1000;
  const expiresAtMs = Math.min(Math.min(issued, receivedAtMs) + asked, byBroker);
  if (expiresAtMs <= receivedAtMs) return refuse("expired", "The command is older than its time to live.");
  return { expiresAtMs };
}

/**
 * Lives and limits are stated in the time of a wall clock, so nothing is written while ours is in doubt: a command from
 * an hour ago, meant for a minute, looks fresh to a clock that was set back by an hour.
 */
export function checkClock(skewMs: number | null, step: ClockDifference | null): Refusing | null {
  if (step !== null) return { reason: "clock-skew", message: step.message };
  if (skewMs === null || Math.abs(skewMs) <= DIFFERENCE_BOUND_MS) return null;
  const seconds = Math.round(Math.abs(skewMs) / 1000);
  const message = `Our clock and the service's differ by ${seconds} s; nothing is written until it is set.`;
  return { reason: "clock-skew", message };
}

function checkTag({ request, held }: ArrivalFacts, entry: AllowedTag): Refused | null {
  if (held === undefined || held.siteId !== entry.site_id || held.missingSince !== null) {
    return refuse("unknown-tag", `Tag ${request.tagId} is not known at site ${entry.site_id}.`);
  }
  if (entry.unit !== undefined && held.value.unit !== entry.unit) {
    const unit = held.value.unit ?? "none";
    return refuse("wrong-unit", `Tag ${request.tagId} has the unit ${unit}, not ${entry.unit}.`);
  }
  return null;
}

/** Before the token information was read once, the service itself decides. */
function checkToken({ token }: ArrivalFacts, entry: AllowedTag): Refused | null {
  if (token === undefined) return null;
  if (!token.abilities.includes("write:tags")) {
    return refuse("no-ability", "The token lacks the ability write:tags; use one that has it.");
  }
  if (!token.sites.some((site) => site.id === entry.site_id)) {
    return refuse("no-ability", `The token does not reach site ${entry.site_id}.`);
  }
  return null;
}

function checkValue(value: TagScalar, entry: AllowedTag): Refused | null {
  if (!isOfType(value, entry)) return refuse("wrong-type", `Tag ${entry.tag_id} takes a ${entry.type}.`);
  if (isLawful(value, entry) || entry.type === "boolean") return null;
  return refuse("out-of-range", `${value} is outside ${entry.min} to ${entry.max}.`);
}

function isOfType(value: TagScalar, entry: AllowedTag): boolean {
  return typeof value === entry.type && (typeof value === "boolean" || Number.isFinite(value));
}

/** Whether a value has the type and lies in the range of an entry. */
export function isLawful(value: TagScalar, entry: AllowedTag): boolean {
  if (!isOfType(value, entry)) return false;
  return entry.type === "boolean" || (Number(value) >= entry.min && Number(value) <= entry.max);
}

function checkTimed(forMs: number | null, entry: AllowedTag, longestMs: number): Refused | null {
  if (forMs === null) return null;
  if (!entry.restore) {
    return refuse("not-restorable", `Tag ${entry.tag_id} is not open for writes that end by themselves.`);
  }
  if (forMs < Math.max(1000, entry.min_interval) || forMs > longestMs) {
    const from = Math.ceil(Math.max(1000, entry.min_interval) / 1000);
    return refuse("not-restorable", `for_s must be between ${from} and ${longestMs / 1000}.`);
  }
  return null;
}

export interface DispatchFacts extends RateFacts {
  readonly value: TagScalar;
  readonly expect: TagScalar | null;
  /** The latest reading since our own last write of the tag. */
  readonly current: FreshValue | undefined;
  /** All gateways of the site, and the tag's own where the entry names it. */
  readonly gateways: readonly Listed<Gateway>[];
  readonly timeZone: string;
}

export function checkDispatch(facts: DispatchFacts): Refusing | null {
  return checkStep(facts) ?? checkRate(facts) ?? checkHours(facts) ?? checkGateway(facts);
}

/** Whether a check needs to know the present value of the tag. */
export function needsFreshValue(
  entry: AllowedTag,
  { expect, forMs }: { readonly expect: TagScalar | null; readonly forMs: number | null },
): boolean {
  return expect !== null || forMs !== null || (entry.type === "number" && entry.max_step !== undefined);
}

/** The present value when it is good and at most a minute old. */
export function freshValue(current: FreshValue | undefined, nowMs: number): TagValue {
  if (current === undefined || current.quality !== "good" || isFromBefore(current, nowMs)) return null;
  return nowMs - Date.parse(current.time) <= FRESH_MS ? current.value : null;
}

/** Whether a reading was made before the clock was set back. */
export function isFromBefore({ time }: FreshValue, nowMs: number): boolean {
  return Date.parse(time) > nowMs + AHEAD_MS;
}

/** Two steps of a number in single precision, as a part of it: 22.1 is 22.100000381 there. */
const SINGLE = 2 ** -22;
/** Rounding error of a unit conversion around 0, e.g. 4e-15 for 32 °F. */
const NOTHING = 1e-9;

/**
 * Whether two values are the same to a building: a device may hold a number in single precision (about seven
 * digits), and true as 1.
 */
export function sameValue(a: TagValue, b: TagValue): boolean {
  if (a === null || b === null || (typeof a === "boolean") === (typeof b === "boolean")) {
    if (typeof a !== "number" || typeof b !== "number") return a === b;
    return Math.abs(a - b) <= Math.max(NOTHING, SINGLE * Math.max(Math.abs(a), Math.abs(b)));
  }
  return Number(a) === Number(b);
}

/**
 * Whether writing would change nothing. Narrower than `sameValue`: of 1,000,000 and 1,000,000.2 one may be written over the
 * other, if the device can hold both.
 */
export function isSetAlready(present: TagValue, value: TagScalar): boolean {
  if (typeof present !== "number" || typeof value !== "number") return sameValue(present, value);
  return present === value || present === Math.fround(value);
}

function checkStep(facts: DispatchFacts): Refusing | null {
  const { entry, expect, value } = facts;
  if (!needsFreshValue(entry, facts)) return null;
  const present = freshValue(facts.current, facts.nowMs);
  if (present === null) {
    return {
      reason: "value-unknown",
      message: "The present value could not be read, so the change cannot be judged.",
    };
  }
  if (expect !== null && !sameValue(present, expect)) {
    return { reason: "unexpected-value", message: `The tag holds ${present}, not the expected ${expect}.` };
  }
  if (facts.forMs !== null && !isLawful(present, entry)) {
    const message = `The tag holds ${present}, which may not be written back.`;
    return { reason: "not-restorable", message };
  }
  if (entry.type === "number" && entry.max_step !== undefined) {
    if (typeof present !== "number" || typeof value !== "number" || isFurther(present, value, entry.max_step)) {
      return {
        reason: "step-too-large",
        message: `From ${present} to ${value} is more than ${entry.max_step}.`,
      };
    }
  }
  return null;
}

function checkRate({ entry, forMs, past, maxPerHour, nowMs }: RateFacts): Refusing | null {
  const last = past.ofTag.at(-1);
  if (last !== undefined && nowMs - last < entry.min_interval) {
    const seconds = Math.ceil((entry.min_interval - (nowMs - last)) / 1000);
    return { reason: "too-soon", message: `The tag was written a moment ago; try again in ${seconds} s.` };
  }
  // A write that ends by itself is two.
  const needed = forMs === null ? 1 : 2;
  if (past.ofTag.filter((at) => at > nowMs - DAY_MS).length + needed > entry.max_per_day) {
    return {
      reason: "too-many",
      message: `No more than ${entry.max_per_day} writes of this tag in 24 hours.`,
    };
  }
  if (past.lastHour + needed > maxPerHour) {
    return { reason: "too-many", message: `No more than ${maxPerHour} writes of all tags in one hour.` };
  }
  return null;
}

export function checkHours(facts: Pick<DispatchFacts, "entry" | "forMs" | "nowMs" | "timeZone">): Refusing | null {
  const { hours } = facts.entry;
  if (hours === undefined) return null;
  const [from = "", to = ""] = hours.split("-");
  const inside = (atMs: number) => {
    const at = DateTime.fromMillis(atMs, { zone: facts.timeZone }).toFormat("HH:mm");
    return from <= to ? at >= from && at < to : at >= from || at < to;
  };
  const message = `The tag may be written from ${from} to ${to} only`;
  if (!inside(facts.nowMs)) return { reason: "outside-hours", message: `${message}.` };
  if (facts.forMs !== null && !inside(facts.nowMs + facts.forMs)) {
    return { reason: "outside-hours", message: `${message}, and so has it to be put back.` };
  }
  return null;
}

/**
 * The interface does not say behind which gateway a tag sits. Where the entry names it, that one counts;
 * otherwise the write is refused only when every gateway of the site is offline. One that does not say is not.
 */
export function checkGateway(facts: Pick<DispatchFacts, "entry" | "gateways">): Refusing | null {
  const named = facts.gateways.filter((held) => held.value.id === facts.entry.gateway_id);
  const relevant = facts.entry.gateway_id === undefined ? facts.gateways : named;
  const present = relevant.filter((held) => held.missingSince === null);
  if (present.length === 0 || present.some((held) => held.value.online !== false)) return null;
  const names = present.map((held) => held.value.displayName).join(", ");
  return { reason: "gateway-offline", message: `The gateway is offline: ${names}.` };
}

function refuse(reason: CommandRefusal, message: string): Refused {
  return { refused: { reason, message } };
}
