import { buildReceipt, type Receipt } from "../../src/core/connector.ts";
import { Retryable } from "../../src/core/errors/errors.ts";
import type { EncodedInfluxLines } from "./line-protocol.ts";

export type EventLines = EncodedInfluxLines & { readonly owner: number };

export const countLines = (lines: readonly EventLines[]): number =>
  lines.reduce((sum, { count = 1 }) => sum + count, 0);

export interface PointsBeyondRetention {
  readonly points: number;
  readonly reason: string;
}

export type WriteOutcome =
  | { readonly kind: "stored"; readonly tooOld: PointsBeyondRetention | null }
  | { readonly kind: "too-large" }
  /** The server refuses at least one line for good; if `all` is true, the server refuses every line. */
  | { readonly kind: "poison"; readonly reason: string; readonly all: boolean }
  | { readonly kind: "failed"; readonly error: unknown };

/** Maximum lines of a request. Above 5,000 lines the throughput of servers stops growing. */
const MAX_REQUEST_LINES = 5_000;
const MAX_REQUEST_CHARACTERS = 4_000_000;

/** Maximum requests per write. By bisection, 14 requests find one faulty line among 5,000. */
const MAX_REQUESTS_PER_WRITE = 200;

/** Stores lines. Splits a request that is too large or has a faulty line until the faulty event is found. */
export async function storeLines(
  lines: Iterable<EventLines>,
  send: (lines: readonly EventLines[]) => Promise<WriteOutcome>,
): Promise<Receipt> {
  const rejectReasons = new Map<number, string>();
  let requestCount = 0;

  for (const request of groupIntoRequests(lines)) {
    const pendingRequestParts = [request];
    for (let chunk = pendingRequestParts.pop(); chunk !== undefined; chunk = pendingRequestParts.pop()) {
      const firstEventIndex = chunk[0]?.owner ?? 0;
      if (requestCount >= MAX_REQUESTS_PER_WRITE && firstEventIndex > 0) {
        const error = new Retryable("More faulty points than one write can sort out; the rest follows.");
        return buildReceipt(rejectReasons, { from: firstEventIndex, error });
      }
      requestCount += 1;
      const outcome = await send(chunk);
      if (outcome.kind === "failed")
        return buildReceipt(rejectReasons, { from: firstEventIndex, error: outcome.error });
      if (outcome.kind === "stored") continue;
      const [left, right] = outcome.kind === "too-large" ? halveProtocolLines(chunk) : halveAtEventBoundary(chunk);
      if (right.length > 0 && !(outcome.kind === "poison" && outcome.all)) {
        pendingRequestParts.push(right, left);
        continue;
      }
      const reason = outcome.kind === "poison" ? outcome.reason : "A single point is larger than the server takes.";
      for (const { owner } of chunk) if (!rejectReasons.has(owner)) rejectReasons.set(owner, reason);
    }
    for (const { free } of request) free?.();
  }
  return buildReceipt(rejectReasons);
}

function* groupIntoRequests(lines: Iterable<EventLines>): Generator<readonly EventLines[]> {
  let request: EventLines[] = [];
  let count = 0;
  let characters = 0;
  for (const line of lines) {
    count += line.count ?? 1;
    characters += line.text.length;
    if (request.length > 0 && (count > MAX_REQUEST_LINES || characters > MAX_REQUEST_CHARACTERS)) {
      yield request;
      request = [];
      count = line.count ?? 1;
      characters = line.text.length;
    }
    request.push(line);
  }
  if (request.length > 0) yield request;
}

type ProtocolLineHalves = readonly [left: readonly EventLines[], right: readonly EventLines[]];

function halveProtocolLines(part: readonly EventLines[]): ProtocolLineHalves {
  const [singleLine] = part;
  if (singleLine !== undefined && part.length === 1 && (singleLine.count ?? 1) > 1) return halveEventLines(singleLine);
  const middleIndex = Math.ceil(part.length / 2);
  return [part.slice(0, middleIndex), part.slice(middleIndex)];
}

function halveEventLines({ owner, text, count = 1 }: EventLines): ProtocolLineHalves {
  const half = Math.ceil(count / 2);
  let end = -1;
  for (let n = 0; n < half; n++) end = text.indexOf("\n", end + 1);
  const slice = (from: number, to?: number) =>
    typeof text === "string" ? text.slice(from, to) : text.subarray(from, to);
  return [[{ owner, text: slice(0, end), count: half }], [{ owner, text: slice(end + 1), count: count - half }]];
}

/** Splits between two events, close to the middle; the right half is empty for a single event. */
function halveAtEventBoundary(part: readonly EventLines[]): ProtocolLineHalves {
  const middleIndex = Math.floor(part.length / 2);
  const isEventBoundary = (at: number) => at > 0 && at < part.length && part[at]?.owner !== part[at - 1]?.owner;
  for (let indexOffset = 0; indexOffset <= part.length; indexOffset += 1) {
    for (const at of [middleIndex - indexOffset, middleIndex + indexOffset]) {
      if (isEventBoundary(at)) return [part.slice(0, at), part.slice(at)];
    }
  }
  return [part, []];
}
