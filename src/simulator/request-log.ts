import type { TagValue } from "./devices.ts";

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
  /** Result of the rate limit of the tag endpoints; "none" if the limit does not apply. */
  readonly limit: "allowed" | "refused" | "none";
  readonly faults: readonly string[];
}

export interface LoggedTagWrite {
  readonly atMs: number;
  readonly requestNumber: number;
  readonly tagId: string;
  readonly value: TagValue;
  readonly outcome: "held" | "ignored" | "dropped" | "waiting";
}

export type RequestLog = ReturnType<typeof createRequestLog>;

const MINUTE_MS = 60_000;

export function createRequestLog(maxRetainedRequests: number) {
  const loggedRequests: LoggedRequest[] = [];
  const loggedTagWrites: LoggedTagWrite[] = [];
  const requestTotalsByStatus: Record<string, number> = {};
  let lastRequestNumber = 0;
  return {
    requests: loggedRequests as readonly LoggedRequest[],
    writes: loggedTagWrites as readonly LoggedTagWrite[],
    totals: requestTotalsByStatus as Readonly<Record<string, number>>,
    nextRequestNumber: () => ++lastRequestNumber,
    addRequest(request: LoggedRequest): void {
      loggedRequests.push(request);
      // Delete many logged requests at once, because deleting one per request is slow.
      if (loggedRequests.length > maxRetainedRequests * 2 + 100)
        loggedRequests.splice(0, loggedRequests.length - maxRetainedRequests);
      const endpointAndStatus = `${request.endpoint ?? "unknown"} ${request.errorStatus ?? request.httpStatus}`;
      requestTotalsByStatus[endpointAndStatus] = (requestTotalsByStatus[endpointAndStatus] ?? 0) + 1;
    },
    addWrite: (value: LoggedTagWrite) => loggedTagWrites.push(value),
    busiestMinute: () => countBusiestMinuteRequests(loggedRequests),
  };
}

/** Returns the maximum number of requests to the tag endpoints within 60 s, including refused ones. */
export function countBusiestMinuteRequests(requests: readonly LoggedRequest[]): number {
  const tagRequestTimesMs = requests.filter(({ limit }) => limit !== "none").map(({ atMs }) => atMs);
  let maxRequests = 0;
  let windowStartIndex = 0;
  for (const [index, atMs] of tagRequestTimesMs.entries()) {
    while ((tagRequestTimesMs[windowStartIndex] ?? atMs) <= atMs - MINUTE_MS) windowStartIndex += 1;
    maxRequests = Math.max(maxRequests, index - windowStartIndex + 1);
  }
  return maxRequests;
}
