import { buildReceipt, type Receipt } from "../../src/core/connector.ts";
import { Retryable } from "../../src/core/errors/errors.ts";
import type { EncodedInfluxLines } from "./line-protocol.ts";

/** Lines of one event, with the index of the event in its batch. */
export type EventLines = EncodedInfluxLines & { readonly eventIndex: number };

export const countLines = (lines: readonly EventLines[]): number =>
  lines.reduce((sum, { count = 1 }) => sum + count, 0);

export interface PointsBeyondRetention {
  readonly points: number;
  readonly reason: string;
}

export type WriteOutcome =
  | { readonly kind: "stored"; readonly droppedPoints: PointsBeyondRetention | null }
  | { readonly kind: "too-large" }
  /** The server refuses at least one line for good; if `refusesAllLines` is true, it refuses every line. */
  | { readonly kind: "poison"; readonly reason: string; readonly refusesAllLines: boolean }
  | { readonly kind: "failed"; readonly error: unknown };

/** Maximum lines of a request. Above 5,000 lines the throughput of servers stops growing. */
const MAX_REQUEST_LINES = 5_000;
const MAX_REQUEST_CHARACTERS = 4_000_000;

/** Maximum requests of one sink write. Bisection finds one faulty line among 5,000 with 27 requests. */
const MAX_REQUESTS_PER_WRITE = 200;

/** Stores lines. Splits a request that is too large or has a faulty line until the faulty event is found. */
export async function storeLines(
  lines: Iterable<EventLines>,
  sendLines: (lines: readonly EventLines[]) => Promise<WriteOutcome>,
): Promise<Receipt> {
  const rejectReasons = new Map<number, string>();
  let requestCount = 0;

  for (const request of groupIntoRequests(lines)) {
    const pendingRequestParts = [request];
    for (let chunk = pendingRequestParts.pop(); chunk !== undefined; chunk = pendingRequestParts.pop()) {
      const firstEventIndex = chunk[0]?.eventIndex ?? 0;
      if (requestCount >= MAX_REQUESTS_PER_WRITE && firstEventIndex > 0) {
        const error = new Retryable("More faulty points than one write can sort out; the rest follows.");
        return buildReceipt(rejectReasons, { from: firstEventIndex, error });
      }
      requestCount += 1;
      const outcome = await sendLines(chunk);
      if (outcome.kind === "failed")
        return buildReceipt(rejectReasons, { from: firstEventIndex, error: outcome.error });
      if (outcome.kind === "stored") continue;
      const [left, right] = outcome.kind === "too-large" ? halveProtocolLines(chunk) : halveAtEventBoundary(chunk);
      if (right.length > 0 && !(outcome.kind === "poison" && outcome.refusesAllLines)) {
        pendingRequestParts.push(right, left);
        continue;
      }
      const reason = outcome.kind === "poison" ? outcome.reason : "A single point is larger than the server takes.";
      for (const { eventIndex } of chunk) if (!rejectReasons.has(eventIndex)) rejectReasons.set(eventIndex, reason);
    }
    for (const { releaseBuffer } of request) releaseBuffer?.();
  }
  return buildReceipt(rejectReasons);
}

function* groupIntoRequests(lines: Iterable<EventLines>): Generator<readonly EventLines[]> {
  let request: EventLines[] = [];
  let lineCount = 0;
  let characterCount = 0;
  for (const line of lines) {
    lineCount += line.count ?? 1;
    characterCount += line.text.length;
    if (request.length > 0 && (lineCount > MAX_REQUEST_LINES || characterCount > MAX_REQUEST_CHARACTERS)) {
      yield request;
      request = [];
      lineCount = line.count ?? 1;
      characterCount = line.text.length;
    }
    request.push(line);
  }
  if (request.length > 0) yield request;
}

type ProtocolLineHalves = readonly [left: readonly EventLines[], right: readonly EventLines[]];

function halveProtocolLines(protocolLines: readonly EventLines[]): ProtocolLineHalves {
  const [singleLine] = protocolLines;
  if (singleLine !== undefined && protocolLines.length === 1 && (singleLine.count ?? 1) > 1)
    return halveEventLines(singleLine);
  const middleIndex = Math.ceil(protocolLines.length / 2);
  return [protocolLines.slice(0, middleIndex), protocolLines.slice(middleIndex)];
}

function halveEventLines({ eventIndex, text, count = 1 }: EventLines): ProtocolLineHalves {
  const firstHalfCount = Math.ceil(count / 2);
  let splitPosition = -1;
  for (let n = 0; n < firstHalfCount; n++) splitPosition = text.indexOf("\n", splitPosition + 1);
  const sliceText = (from: number, to?: number) =>
    typeof text === "string" ? text.slice(from, to) : text.subarray(from, to);
  return [
    [{ eventIndex, text: sliceText(0, splitPosition), count: firstHalfCount }],
    [{ eventIndex, text: sliceText(splitPosition + 1), count: count - firstHalfCount }],
  ];
}

/** Splits lines between two events, close to the middle; the right half is empty for a single event. */
function halveAtEventBoundary(protocolLines: readonly EventLines[]): ProtocolLineHalves {
  const middleIndex = Math.floor(protocolLines.length / 2);
  const isEventBoundary = (index: number) =>
    index > 0 &&
    index < protocolLines.length &&
    protocolLines[index]?.eventIndex !== protocolLines[index - 1]?.eventIndex;
  for (let indexOffset = 0; indexOffset <= protocolLines.length; indexOffset += 1) {
    for (const splitIndex of [middleIndex - indexOffset, middleIndex + indexOffset]) {
      if (isEventBoundary(splitIndex)) return [protocolLines.slice(0, splitIndex), protocolLines.slice(splitIndex)];
    }
  }
  return [protocolLines, []];
}
