import { DateTime } from "luxon";
import type { CommandMessage } from "../../core/connector.ts";
import type { Gateway, Tag, TagScalar, TagValue, TokenInfo } from "../../core/model/building.ts";
import { type ClockDifference, MAX_CLOCK_DIFFERENCE_MS } from "../../core/runtime/clock-check.ts";
import type { StoredObject, StoredValue } from "../sync/stored-documents.ts";
import type { CommandRefusal } from "./command.ts";
import type { TagWriteRequest } from "./command-payload.ts";
import type { AllowedTag } from "./config.ts";

/** Reason why a command is refused: the first check that fails, in the order of `COMMAND_REFUSAL_REASONS`. */
export interface WriteRefusal {
  readonly reason: CommandRefusal;
  readonly message: string;
}

export type TimedTagValue = Pick<StoredValue, "value" | "quality" | "time">;

export const MAX_TAG_VALUE_AGE_MS = 60_000;
/** Maximum time by which a reading may be newer than our clock. A larger lead means that our clock was set back. */
const MAX_TAG_VALUE_LEAD_MS = 1_000;
const DAY_MS = 86_400_000;

export interface PastTagWrites {
  readonly writeTimesMs: readonly number[];
  readonly writesLastHour: number;
}

export interface WriteRateInput {
  readonly allowedTag: AllowedTag;
  readonly forMs: number | null;
  readonly pastWrites: PastTagWrites;
  readonly maxPerHour: number;
  readonly nowMs: number;
}

export interface ArrivalInput extends Pick<CommandMessage, "retained" | "expirySeconds" | "via" | "receivedAtMs"> {
  readonly request: TagWriteRequest;
  readonly defaultTtlMs: number;
  readonly maxTtlMs: number;
  readonly maxPerHour: number;
  readonly maxRestoreAfterMs: number;
  /** Our clock minus the clock of the monitoring service; null if unknown. */
  readonly clockSkewMs: number | null;
  readonly clockStep: ClockDifference | null;
  readonly allowedTag: AllowedTag | undefined;
  readonly storedTag: StoredObject<Tag> | undefined;
  readonly tokenInfo: TokenInfo | undefined;
  readonly lockRefusal: WriteRefusal | null;
  readonly pastWrites: PastTagWrites;
}

export type CommandArrivalVerdict = { readonly expiresAtMs: number } | { readonly refused: WriteRefusal };

export function checkCommandArrival(input: ArrivalInput): CommandArrivalVerdict {
  const expiresAtMs = commandExpiryTimeMs(input);
  const refusal = checkCommandTimes(input, expiresAtMs) ?? checkWriteRequest(input);
  return refusal === null ? { expiresAtMs } : { refused: refusal };
}

function commandIssueTimeMs({ request, receivedAtMs }: ArrivalInput): number {
  return request.issuedAtMs ?? receivedAtMs;
}

function commandExpiryTimeMs(input: ArrivalInput): number {
  const { expirySeconds, receivedAtMs, request } = input;
  const ttlMs = Math.min(request.ttlMs ?? input.defaultTtlMs, input.maxTtlMs);
  const brokerExpiryMs = expirySeconds === null ? Infinity : receivedAtMs + expirySeconds * 1000;
  return Math.min(Math.min(commandIssueTimeMs(input), receivedAtMs) + ttlMs, brokerExpiryMs);
}

function checkCommandTimes(input: ArrivalInput, expiresAtMs: number): WriteRefusal | null {
  const { receivedAtMs } = input;
  if (commandIssueTimeMs(input) > receivedAtMs + MAX_CLOCK_DIFFERENCE_MS)
    return refuse("clock-skew", "issued_at lies in the future; set the sender's clock.");
  const clockRefusal = checkClocksForWriting(input.clockSkewMs, input.clockStep);
  if (clockRefusal !== null || expiresAtMs > receivedAtMs) return clockRefusal;
  return refuse("expired", "The command is older than its time to live.");
}

/** Refuses commands while the wall clock may be wrong: after it was set back, an old command looks new. */
export function checkClocksForWriting(skewMs: number | null, step: ClockDifference | null): WriteRefusal | null {
  if (step !== null) return refuse("clock-skew", step.message);
  if (skewMs === null || Math.abs(skewMs) <= MAX_CLOCK_DIFFERENCE_MS) return null;
  const seconds = Math.round(Math.abs(skewMs) / 1000);
  return refuse(
    "clock-skew",
    `Our clock and the service's differ by ${seconds} s; nothing is written until it is set.`,
  );
}

function checkWriteRequest(input: ArrivalInput): WriteRefusal | null {
  const { allowedTag, storedTag: listedTag, request, tokenInfo } = input;
  const { forMs, tagId, value } = request;
  if (input.retained)
    return refuse("retained", "Retained commands are refused: the broker would repeat them at every reconnect.");
  if (allowedTag === undefined)
    return refuse("not-allowed", `Tag ${tagId} is not on the list of tags that may be written.`);
  if (allowedTag.from !== undefined && !allowedTag.from.includes(input.via))
    return refuse("not-allowed", `Tag ${tagId} may not be written from ${input.via}.`);
  if (request.isPlain && !allowedTag.plain)
    return refuse("not-allowed", `Tag ${tagId} takes no bare value (plain: true at its entry); send JSON with an id.`);
  if (input.lockRefusal !== null) return input.lockRefusal;
  if (listedTag === undefined || listedTag.siteId !== allowedTag.site_id || listedTag.missingSince !== null)
    return refuse("unknown-tag", `Tag ${tagId} is not known at site ${allowedTag.site_id}.`);
  if (allowedTag.unit !== undefined && listedTag.value.unit !== allowedTag.unit)
    return refuse("wrong-unit", `Tag ${tagId} has the unit ${listedTag.value.unit ?? "none"}, not ${allowedTag.unit}.`);
  // While the permissions (abilities) of the token are unknown, let the service accept or reject the write.
  if (tokenInfo?.abilities.includes("write:tags") === false)
    return refuse("no-ability", "The token lacks the ability write:tags; use one that has it.");
  if (tokenInfo?.sites.some((site) => site.id === allowedTag.site_id) === false)
    return refuse("no-ability", `The token does not reach site ${allowedTag.site_id}.`);
  if (!isValueOfTagType(value, allowedTag))
    return refuse("wrong-type", `Tag ${allowedTag.tag_id} takes a ${allowedTag.type}.`);
  if (allowedTag.type === "number" && !isWithinLimits(value, allowedTag))
    return refuse("out-of-range", `${value} is outside ${allowedTag.min} to ${allowedTag.max}.`);
  const rateInput = { ...input, allowedTag, forMs, nowMs: input.receivedAtMs };
  return (
    checkRestoreTime(forMs, allowedTag, input.maxRestoreAfterMs) ??
    (allowedTag.coalesce ? null : checkWriteInterval(rateInput)) ??
    checkWriteCounts(rateInput)
  );
}

function isValueOfTagType(value: TagScalar, allowedTag: AllowedTag): boolean {
  return typeof value === allowedTag.type && (typeof value === "boolean" || Number.isFinite(value));
}

export function isWithinLimits(value: TagScalar, allowedTag: AllowedTag): boolean {
  if (!isValueOfTagType(value, allowedTag)) return false;
  return allowedTag.type === "boolean" || (Number(value) >= allowedTag.min && Number(value) <= allowedTag.max);
}

function checkRestoreTime(forMs: number | null, allowedTag: AllowedTag, maxDelayMs: number): WriteRefusal | null {
  if (forMs === null) return null;
  if (!allowedTag.restore)
    return refuse("not-restorable", `Tag ${allowedTag.tag_id} is not open for writes that end by themselves.`);
  const minDelayMs = Math.max(1000, allowedTag.min_interval);
  if (forMs >= minDelayMs && forMs <= maxDelayMs) return null;
  return refuse("not-restorable", `for_s must be between ${Math.ceil(minDelayMs / 1000)} and ${maxDelayMs / 1000}.`);
}

export interface DispatchInput extends WriteRateInput {
  readonly value: TagScalar;
  readonly expect: TagScalar | null;
  readonly currentReading: TimedTagValue | undefined;
  readonly gateways: readonly StoredObject<Gateway>[];
  readonly timeZone: string;
}

export function checkDispatch(input: DispatchInput): WriteRefusal | null {
  return (
    checkValueStep(input) ??
    checkWriteInterval(input) ??
    checkWriteCounts(input) ??
    checkHours(input) ??
    checkGateway(input)
  );
}

export function needsFreshValue(
  allowedTag: AllowedTag,
  { expect, forMs }: { readonly expect: TagScalar | null; readonly forMs: number | null },
): boolean {
  return expect !== null || forMs !== null || (allowedTag.type === "number" && allowedTag.max_step !== undefined);
}

export function tagValueIfFresh(current: TimedTagValue | undefined, nowMs: number): TagValue {
  if (current === undefined || current.quality !== "good" || isFromFuture(current, nowMs)) return null;
  return nowMs - Date.parse(current.time) <= MAX_TAG_VALUE_AGE_MS ? current.value : null;
}

export function isFromFuture({ time }: TimedTagValue, nowMs: number): boolean {
  return Date.parse(time) > nowMs + MAX_TAG_VALUE_LEAD_MS;
}

/** Relative error of a number that a device stores in single precision, e.g. 22.1 as 22.100000381. */
const SINGLE_PRECISION_TOLERANCE = 2 ** -22;
/** Rounding error of a unit conversion around 0, e.g. 4e-15 for 32 °F. */
const ZERO_TOLERANCE = 1e-9;

/** True if a device may store both values alike, because it stores numbers in single precision and true as 1. */
export function isSameValue(a: TagValue, b: TagValue): boolean {
  if (a === null || b === null || (typeof a === "boolean") === (typeof b === "boolean")) {
    if (typeof a !== "number" || typeof b !== "number") return a === b;
    return Math.abs(a - b) <= Math.max(ZERO_TOLERANCE, SINGLE_PRECISION_TOLERANCE * Math.max(Math.abs(a), Math.abs(b)));
  }
  return Number(a) === Number(b);
}

/** True if writing the value would change nothing. Stricter than `isSameValue`: 1,000,000.2 may replace 1,000,000. */
export function isValueSetAlready(currentValue: TagValue, value: TagScalar): boolean {
  if (typeof currentValue !== "number" || typeof value !== "number") return isSameValue(currentValue, value);
  return currentValue === value || currentValue === Math.fround(value);
}

function checkValueStep(input: DispatchInput): WriteRefusal | null {
  const { allowedTag, expect, value } = input;
  if (!needsFreshValue(allowedTag, input)) return null;
  const tagValue = tagValueIfFresh(input.currentReading, input.nowMs);
  if (tagValue === null)
    return refuse("value-unknown", "The present value could not be read, so the change cannot be judged.");
  if (expect !== null && !isSameValue(tagValue, expect))
    return refuse("unexpected-value", `The tag holds ${tagValue}, not the expected ${expect}.`);
  if (input.forMs !== null && !isWithinLimits(tagValue, allowedTag))
    return refuse("not-restorable", `The tag holds ${tagValue}, which may not be written back.`);
  if (allowedTag.type !== "number" || allowedTag.max_step === undefined) return null;
  const isStepSmall =
    typeof tagValue === "number" &&
    typeof value === "number" &&
    !differsByMoreThan(tagValue, value, allowedTag.max_step);
  return isStepSmall
    ? null
    : refuse("step-too-large", `From ${tagValue} to ${value} is more than ${allowedTag.max_step}.`);
}

/** Returns how much of `min_interval` is left since the last write of a tag. */
export function msUntilNextWrite(allowedTag: AllowedTag, writeTimesMs: readonly number[], nowMs: number): number {
  const lastWriteMs = writeTimesMs.at(-1);
  return lastWriteMs === undefined ? 0 : Math.max(0, allowedTag.min_interval - (nowMs - lastWriteMs));
}

function checkWriteInterval({ allowedTag, pastWrites: past, nowMs }: WriteRateInput): WriteRefusal | null {
  const waitMs = msUntilNextWrite(allowedTag, past.writeTimesMs, nowMs);
  if (waitMs === 0) return null;
  return refuse("too-soon", `The tag was written a moment ago; try again in ${Math.ceil(waitMs / 1000)} s.`);
}

function checkWriteCounts({
  allowedTag,
  forMs,
  pastWrites: past,
  maxPerHour,
  nowMs,
}: WriteRateInput): WriteRefusal | null {
  const neededWriteCount = forMs === null ? 1 : 2;
  if (past.writeTimesMs.filter((timeMs) => timeMs > nowMs - DAY_MS).length + neededWriteCount > allowedTag.max_per_day)
    return refuse("too-many", `No more than ${allowedTag.max_per_day} writes of this tag in 24 hours.`);
  if (past.writesLastHour + neededWriteCount <= maxPerHour) return null;
  return refuse("too-many", `No more than ${maxPerHour} writes of all tags in one hour.`);
}

export function checkHours(
  input: Pick<DispatchInput, "allowedTag" | "forMs" | "nowMs" | "timeZone">,
): WriteRefusal | null {
  const { hours } = input.allowedTag;
  if (hours === undefined) return null;
  const [from = "", to = ""] = hours.split("-");
  const isWithinWriteHours = (atMs: number) => {
    const timeOfDay = DateTime.fromMillis(atMs, { zone: input.timeZone }).toFormat("HH:mm");
    return from <= to ? timeOfDay >= from && timeOfDay < to : timeOfDay >= from || timeOfDay < to;
  };
  const message = `The tag may be written from ${from} to ${to} only`;
  if (!isWithinWriteHours(input.nowMs)) return refuse("outside-hours", `${message}.`);
  if (input.forMs === null || isWithinWriteHours(input.nowMs + input.forMs)) return null;
  return refuse("outside-hours", `${message}, and so has it to be put back.`);
}

export function checkGateway({
  allowedTag,
  gateways,
}: Pick<DispatchInput, "allowedTag" | "gateways">): WriteRefusal | null {
  const id = allowedTag.gateway_id;
  const gatewaysOfTag = gateways.filter(
    (each) => (id === undefined || each.value.id === id) && each.missingSince === null,
  );
  if (gatewaysOfTag.length === 0 || gatewaysOfTag.some((each) => each.value.online !== false)) return null;
  return refuse(
    "gateway-offline",
    `The gateway is offline: ${gatewaysOfTag.map((each) => each.value.displayName).join(", ")}.`,
  );
}

export function refuse(reason: CommandRefusal, message: string): WriteRefusal {
  return { reason, message };
}

/** Compares as decimals: 1.1 and 0.6 differ by 0.5, although their binary difference is 0.5000000000000001. */
export function differsByMoreThan(from: number, to: number, maxDifference: number): boolean {
  const decimals = [from, to, maxDifference].map(parseDecimal);
  const scale = Math.min(...decimals.map(({ exponent }) => exponent));
  const [a = 0n, b = 0n, limit = 0n] = decimals.map(({ digits, exponent }) => digits * 10n ** BigInt(exponent - scale));
  return (a > b ? a - b : b - a) > limit;
}

function parseDecimal(value: number) {
  const [mantissa = "", power = "0"] = value.toString().split("e");
  const [integerDigits = "", fractionDigits = ""] = mantissa.split(".");
  return { digits: BigInt(integerDigits + fractionDigits), exponent: Number(power) - fractionDigits.length };
}
