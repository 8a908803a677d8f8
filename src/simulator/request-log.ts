import type { Value } from "./devices.ts";

// The request log: the requests and writes that the service received, for tests that check a client.

export interface LoggedRequest {
  readonly number: number;
  readonly atMs: number;
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly endpoint: string | null;
  readonly tokenName: string | null;
  readonly httpStatus: number;
  readonly errorStatus: number | null;
  /** Verdict of the rate limit of the tag endpoints; none: the limit does not apply. */
  readonly limit: "allowed" | "refused" | "none";
  readonly faults: readonly string[];
}

export interface WrittenValue {
  readonly atMs: number;
  readonly requestNumber: number;
  readonly tagId: string;
  readonly value: Value;
  readonly outcome: "held" | "ignored" | "dropped" | "waiting";
}

export type RequestLog = ReturnType<typeof createRequestLog>;

const MINUTE_MS = 60_000;

export function createRequestLog(retained: number) {
  const requests: LoggedRequest[] = [];
  const writes: WrittenValue[] = [];
  const totalsByStatus: Record<string, number> = {};
  let number = 0;
  return {
    requests: requests as readonly LoggedRequest[],
    writes: writes as readonly WrittenValue[],
    totals: totalsByStatus as Readonly<Record<string, number>>,
    nextNumber(): number {
      number += 1;
      return number;
    },
    add(request: LoggedRequest): void {
      requests.push(request);
      // Delete many entries at once: shifting the array at each request is slower than the request itself.
      if (requests.length > retained * 2 + 100) requests.splice(0, requests.length - retained);
      const key = `${request.endpoint ?? "unknown"} ${request.errorStatus ?? request.httpStatus}`;
      totalsByStatus[key] = (totalsByStatus[key] ?? 0) + 1;
    },
    addWrite: (value: WrittenValue) => writes.push(value),
    busiestMinute: () => busiestMinute(requests),
  };
}

/** Returns the maximum number of requests to the tag endpoints within 60 s, including refused ones. */
export function busiestMinute(requests: readonly LoggedRequest[]): number {
  const requestTimes = requests.filter(({ limit }) => limit !== "none").map(({ atMs }) => atMs);
  let maxRequests = 0;
  let start = 0;
  for (const [index, atMs] of requestTimes.entries()) {
    while ((requestTimes[start] ?? atMs) <= atMs - MINUTE_MS) start += 1;
    maxRequests = Math.max(maxRequests, index - start + 1);
  }
  return maxRequests;
}
