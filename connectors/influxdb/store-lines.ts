import type { Receipt } from "../../src/core/connector.ts";
import { Retryable } from "../../src/core/errors/errors.ts";
import type { EncodedLines } from "./line-protocol.ts";

export type EventLines = EncodedLines & { readonly owner: number };

export const countLines = (lines: readonly EventLines[]): number =>
  lines.reduce((sum, { count = 1 }) => sum + count, 0);

/** Points that the server dropped because they are older than its retention. */
export interface TooOldPoints {
  readonly points: number;
  readonly reason: string;
}

export type WriteVerdict =
  | { readonly kind: "stored"; readonly tooOld: TooOldPoints | null }
  | { readonly kind: "too-large" }
  /** At least one line can never be stored; `all`: no line of the request can be stored. */
  | { readonly kind: "poison"; readonly reason: string; readonly all: boolean }
  | { readonly kind: "failed"; readonly error: unknown };

/** Maximum lines of a request. Above 5,000 lines the throughput of servers stops growing. */
const MAX_REQUEST_LINES = 5_000;
const MAX_REQUEST_CHARACTERS = 4_000_000;

/** Maximum requests per write. Finding one faulty line among 5,000 takes 14 requests. */
const MAX_REQUESTS_PER_WRITE = 200;

/** Stores lines. Splits a request that is too large or has a faulty line until the faulty event is found. */
export async function storeLines(
  lines: Iterable<EventLines>,
  send: (lines: readonly EventLines[]) => Promise<WriteVerdict>,
): Promise<Receipt> {
  const rejected = new Map<number, string>();
  let requests = 0;

  for (const request of groupIntoRequests(lines)) {
    const todo = [request];
    for (let part = todo.pop(); part !== undefined; part = todo.pop()) {
      const from = part[0]?.owner ?? 0;
      if (requests >= MAX_REQUESTS_PER_WRITE && from > 0) {
        const error = new Retryable("More faulty points than one write can sort out; the rest follows.");
        return buildReceipt(rejected, { from, error });
      }
      requests += 1;
      const verdict = await send(part);
      if (verdict.kind === "failed") return buildReceipt(rejected, { from, error: verdict.error });
      if (verdict.kind === "stored") continue;
      const [left, right] = verdict.kind === "too-large" ? halveLines(part) : halveByEvent(part);
      if (right.length > 0 && !(verdict.kind === "poison" && verdict.all)) {
        todo.push(right, left);
        continue;
      }
      const reason = verdict.kind === "poison" ? verdict.reason : "A single point is larger than the server takes.";
      for (const { owner } of part) if (!rejected.has(owner)) rejected.set(owner, reason);
    }
    for (const { free } of request) free?.();
  }
  return buildReceipt(rejected);
}

function buildReceipt(rejected: ReadonlyMap<number, string>, retry?: NonNullable<Receipt["retry"]>): Receipt {
  const settled = [...rejected].filter(([index]) => index < (retry?.from ?? Number.POSITIVE_INFINITY));
  return { rejected: settled.map(([index, reason]) => ({ index, reason })), ...(retry === undefined ? {} : { retry }) };
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

function halveLines(part: readonly EventLines[]): readonly [readonly EventLines[], readonly EventLines[]] {
  const [only] = part;
  if (only !== undefined && part.length === 1 && (only.count ?? 1) > 1) return halveEventLines(only);
  const middle = Math.ceil(part.length / 2);
  return [part.slice(0, middle), part.slice(middle)];
}

/** Splits the lines of one event at the middle line break. */
function halveEventLines({
  owner,
  text,
  count = 1,
}: EventLines): readonly [readonly EventLines[], readonly EventLines[]] {
  const left = Math.ceil(count / 2);
  let end = -1;
  for (let n = 0; n < left; n++) end = text.indexOf("\n", end + 1);
  const cut = (from: number, to?: number) =>
    typeof text === "string" ? text.slice(from, to) : text.subarray(from, to);
  return [[{ owner, text: cut(0, end), count: left }], [{ owner, text: cut(end + 1), count: count - left }]];
}

/** Splits between two events, close to the middle; the right half is empty for a single event. */
function halveByEvent(part: readonly EventLines[]): readonly [readonly EventLines[], readonly EventLines[]] {
  const middle = Math.floor(part.length / 2);
  const boundary = (at: number) => at > 0 && at < part.length && part[at]?.owner !== part[at - 1]?.owner;
  for (let distance = 0; distance <= part.length; distance += 1) {
    for (const at of [middle - distance, middle + distance]) {
      if (boundary(at)) return [part.slice(0, at), part.slice(at)];
    }
  }
  return [part, []];
}
