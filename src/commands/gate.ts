import { DateTime } from "luxon";
import type { Gateway, Tag, TagScalar, TagValue } from "../building.ts";
import type { Held, HeldValue } from "../sync/snapshot.ts";
import type { Refusal } from "./command.ts";
import type { AllowedTag } from "./config.ts";
import type { Request } from "./payload.ts";

/**
 * The gate: pure checks in one fixed order; the first that fails answers with its own reason.
 *
 * 1. on arrival (`checkArrival`): time to live, retained, allow-list, type, range. Nothing here needs the service.
 * 2. before sending (`checkDispatch`): expected value and step against a fresh value, rate, hours, gateway.
 *
 * Size, parsing, schema and duplicates come before, where the message is read; the journal comes after.
 */
export interface Refusing {
  readonly reason: Refusal;
  readonly message: string;
}

/** What the gate looks at in a reading. */
export type FreshValue = Pick<HeldValue, "value" | "quality" | "time">;

/** A value older than this is not fresh enough to measure a step against. */
export const FRESH_MS = 60_000;

/** A sender's clock may be ahead of ours by this much before its `issued_at` is taken for nonsense. */
const CLOCK_TOLERANCE_MS = 30_000;
const DAY_MS = 86_400_000;

export interface ArrivalFacts {
  readonly request: Request;
  readonly retained: boolean;
  readonly expirySeconds: number | null;
  readonly via: string;
  readonly receivedAtMs: number;
  readonly defaultTtlMs: number;
  readonly maxTtlMs: number;
  readonly entry: AllowedTag | undefined;
  readonly held: Held<Tag> | undefined;
}

export type ArrivalVerdict = { readonly expiresAtMs: number } | { readonly refused: Refusing };

export function checkArrival(facts: ArrivalFacts): ArrivalVerdict {
  const { request, entry, held } = facts;
  const life = timeToLive(facts);
  if ("refused" in life) return life;
  if (facts.retained) {
    return refuse(
      "retained",
      "Retained commands are refused: the broker would repeat them at every reconnect.",
    );
  }
  if (entry === undefined) {
    return refuse("not-allowed", `Tag ${request.tagId} is not on the list of tags that may be written.`);
  }
  if (entry.from !== undefined && !entry.from.includes(facts.via)) {
    return refuse("not-allowed", `Tag ${request.tagId} may not be written from ${facts.via}.`);
  }
  if (held === undefined || held.siteId !== entry.site_id) {
    return refuse("not-allowed", `Tag ${request.tagId} is not known at site ${entry.site_id}.`);
  }
  if (entry.unit !== undefined && held.value.unit !== entry.unit) {
    return refuse("not-allowed", `Tag ${request.tagId} has the unit ${held.value.unit}, not ${entry.unit}.`);
  }
  return checkValue(request.value, entry) ?? life;
}

function timeToLive(facts: ArrivalFacts): ArrivalVerdict {
  const { request, receivedAtMs } = facts;
  const issued = request.issuedAtMs ?? receivedAtMs;
  if (issued > receivedAtMs + CLOCK_TOLERANCE_MS) {
    return refuse("clock-skew", "issued_at lies in the future; set the sender's clock.");
  }
  const asked = Math.min(request.ttlMs ?? facts.defaultTtlMs, facts.maxTtlMs);
  const byBroker = facts.expirySeconds === null ? Infinity : receivedAtMs + facts.expirySeconds * 1000;
  const expiresAtMs = Math.min(issued + asked, byBroker);
  if (expiresAtMs <= receivedAtMs) return refuse("expired", "The command is older than its time to live.");
  return { expiresAtMs };
}

function checkValue(value: TagScalar, entry: AllowedTag): { readonly refused: Refusing } | null {
  const wrongType = typeof value !== entry.type || (typeof value === "number" && !Number.isFinite(value));
  if (wrongType) return refuse("wrong-type", `Tag ${entry.tag_id} takes a ${entry.type}.`);
  if (entry.type === "number" && typeof value === "number" && (value < entry.min || value > entry.max)) {
    return refuse("out-of-range", `${value} is outside ${entry.min} to ${entry.max}.`);
  }
  return null;
}

export interface DispatchFacts {
  readonly value: TagScalar;
  readonly expect: TagScalar | null;
  readonly entry: AllowedTag;
  readonly current: FreshValue | undefined;
  /** Wall times of the writes of the last 24 hours. */
  readonly writesAtMs: readonly number[];
  /** All gateways of the site, and the tag's own where the entry names it. */
  readonly gateways: readonly Held<Gateway>[];
  readonly timeZone: string;
  readonly nowMs: number;
}

export function checkDispatch(facts: DispatchFacts): Refusing | null {
  return checkStep(facts) ?? checkRate(facts) ?? checkHours(facts) ?? checkGateway(facts);
}

/** Whether a check needs to know the present value of the tag. */
export function needsFreshValue(entry: AllowedTag, expect: TagScalar | null): boolean {
  return expect !== null || (entry.type === "number" && entry.max_step !== undefined);
}

/** The present value when it is good and at most a minute old. */
export function freshValue(current: FreshValue | undefined, nowMs: number): TagValue {
  if (current === undefined || current.quality !== "good") return null;
  return nowMs - Date.parse(current.time) <= FRESH_MS ? current.value : null;
}

function checkStep(facts: DispatchFacts): Refusing | null {
  const { entry, expect, value } = facts;
  if (!needsFreshValue(entry, expect)) return null;
  const present = freshValue(facts.current, facts.nowMs);
  if (present === null) {
    return {
      reason: "value-unknown",
      message: "The present value could not be read, so the change cannot be judged.",
    };
  }
  if (expect !== null && present !== expect) {
    return { reason: "value-unknown", message: `The tag holds ${present}, not the expected ${expect}.` };
  }
  if (entry.type === "number" && entry.max_step !== undefined) {
    const step = Math.abs(Number(value) - Number(present));
    if (typeof present !== "number" || step > entry.max_step) {
      return {
        reason: "step-too-large",
        message: `From ${present} to ${value} is more than ${entry.max_step}.`,
      };
    }
  }
  return null;
}

function checkRate(facts: DispatchFacts): Refusing | null {
  const { entry, writesAtMs, nowMs } = facts;
  const last = writesAtMs.at(-1);
  if (last !== undefined && nowMs - last < entry.min_interval) {
    const seconds = Math.ceil((entry.min_interval - (nowMs - last)) / 1000);
    return { reason: "too-soon", message: `The tag was written a moment ago; try again in ${seconds} s.` };
  }
  if (writesAtMs.filter((at) => at > nowMs - DAY_MS).length >= entry.max_per_day) {
    return { reason: "too-many", message: `The tag was written ${entry.max_per_day} times within 24 hours.` };
  }
  return null;
}

function checkHours(facts: DispatchFacts): Refusing | null {
  if (facts.entry.hours === undefined) return null;
  const [from = "", to = ""] = facts.entry.hours.split("-");
  const now = DateTime.fromMillis(facts.nowMs, { zone: facts.timeZone }).toFormat("HH:mm");
  const inside = from <= to ? now >= from && now < to : now >= from || now < to;
  if (inside) return null;
  return { reason: "outside-hours", message: `The tag may be written from ${from} to ${to} only.` };
}

/**
 * The interface does not say behind which gateway a tag sits. Where the entry names it, that one counts;
 * otherwise the write is refused only when every gateway of the site is offline.
 */
function checkGateway(facts: DispatchFacts): Refusing | null {
  const named = facts.gateways.filter((held) => held.value.id === facts.entry.gateway_id);
  const relevant = facts.entry.gateway_id === undefined ? facts.gateways : named;
  const present = relevant.filter((held) => held.missingSince === null);
  if (present.length === 0 || present.some((held) => held.value.online)) return null;
  const names = present.map((held) => held.value.displayName).join(", ");
  return { reason: "gateway-offline", message: `The gateway is offline: ${names}.` };
}

function refuse(reason: Refusal, message: string): { readonly refused: Refusing } {
  return { refused: { reason, message } };
}
