import type { Value } from "./devices.ts";

// What really happened at the service, kept beside what it answered.

export interface SeenRequest {
  readonly number: number;
  readonly atMs: number;
  readonly method: string;
  readonly path: string;
  /** The query as it came. */
  readonly query: string;
  readonly endpoint: string | null;
  readonly tokenName: string | null;
  readonly httpStatus: number;
  /** The status of the first error in the body, when there is one. */
  readonly errorStatus: number | null;
  /** Whether the limit of the tag endpoints counted it as allowed, refused it, or does not apply. */
  readonly limit: "allowed" | "refused" | "none";
  /** Kinds of faults that hit it. */
  readonly faults: readonly string[];
}

export interface WrittenValue {
  readonly atMs: number;
  readonly requestNumber: number;
  readonly tagId: string;
  readonly value: Value;
  /** What the device does with it. */
  readonly outcome: "held" | "ignored" | "dropped" | "waiting";
}

export interface RequestLog {
  next(): number;
  add(request: SeenRequest): void;
  readonly wrote: (value: WrittenValue) => void;
  /** The latest requests; at most as many as the option request_log. */
  readonly requests: readonly SeenRequest[];
  readonly writes: readonly WrittenValue[];
  /** Number of requests since the start, by `endpoint outcome`; never forgotten. */
  readonly totals: Readonly<Record<string, number>>;
}

export function createRequestLog(keep: number): RequestLog {
  const requests: SeenRequest[] = [];
  const writes: WrittenValue[] = [];
  const totals: Record<string, number> = {};
  let number = 0;
  return {
    requests,
    writes,
    totals,
    next() {
      number += 1;
      return number;
    },
    add(request) {
      requests.push(request);
      // Trimmed in large steps: shifting an array at each request would cost more than answering it.
      if (requests.length > keep * 2 + 100) requests.splice(0, requests.length - keep);
      const key = `${request.endpoint ?? "unknown"} ${request.errorStatus ?? request.httpStatus}`;
      totals[key] = (totals[key] ?? 0) + 1;
    },
    wrote: (value) => writes.push(value),
  };
}
