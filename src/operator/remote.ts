import type { Alarm, Site, TagLog, TagScalar, TagTotal } from "../building.ts";
import { Retryable } from "../errors.ts";
import type { AlarmFilter, HistoryQuery, Page, ReadReply, SiteFilter } from "../source/source.ts";
import type { StatusReport } from "../status/report.ts";
import { type ToldFailure, toldFailure } from "./failure.ts";
import { type OperatorDoor, readDoor } from "./key.ts";
import type { Call } from "./routes.ts";

/** The part of a source that the command line uses; a running worker lends its own through this. */
export interface Reader {
  sites(filter: SiteFilter, signal: AbortSignal): AsyncIterable<Page<Site>>;
  alarms(filter: AlarmFilter, signal: AbortSignal): AsyncIterable<Page<Alarm>>;
  read(tagIds: readonly string[], lane: "on-demand", signal: AbortSignal): Promise<ReadReply>;
  history(query: HistoryQuery, lane: "on-demand", signal: AbortSignal): Promise<readonly TagLog[]>;
  totals(query: HistoryQuery, lane: "on-demand", signal: AbortSignal): Promise<readonly TagTotal[]>;
}

export function remoteReader(door: OperatorDoor, source: string): Reader {
  const send = <T>(call: Call, signal: AbortSignal) =>
    post<T>(door, `/operator/sources/${encodeURIComponent(source)}`, call, signal);
  async function* pages<T>(call: Call, signal: AbortSignal): AsyncIterable<Page<T>> {
    yield* await send<Page<T>[]>(call, signal);
  }
  return {
    sites: (filter, signal) => pages<Site>({ method: "sites", filter: { ...filter } }, signal),
    alarms: (filter, signal) => pages<Alarm>({ method: "alarms", filter: { ...filter } }, signal),
    read: (tagIds, _lane, signal) => send<ReadReply>({ method: "read", tagIds: [...tagIds] }, signal),
    history: (query, _lane, signal) =>
      send<TagLog[]>({ method: "history", query: { ...query }, totals: false }, signal),
    totals: (query, _lane, signal) =>
      send<TagTotal[]>({ method: "history", query: { ...query }, totals: true }, signal),
  };
}

export function sendCommand(
  door: OperatorDoor,
  command: {
    readonly id: string;
    readonly source: string | null;
    readonly tagId: string;
    readonly value: TagScalar;
    readonly forSeconds: number | null;
    readonly ttlSeconds: number | null;
    readonly user: string;
  },
  signal: AbortSignal,
): Promise<{ readonly waitMs: number }> {
  return post(door, "/operator/commands", command, signal);
}

/** Agrees to a command as the second person. */
export async function sendSecond(
  door: OperatorDoor,
  second: {
    readonly id: string;
    readonly source: string | null;
    readonly value: TagScalar;
    readonly user: string;
  },
  signal: AbortSignal,
): Promise<void> {
  await post(door, "/operator/seconds", second, signal);
}

async function post<T>(door: OperatorDoor, path: string, body: unknown, signal: AbortSignal): Promise<T> {
  const response = await ask(door, path, signal, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer = (await response.json().catch(() => ({}))) as { readonly result?: T } & Partial<ToldFailure>;
  if (response.ok) return answer.result as T;
  const { failure = "retryable", message = `The worker answered ${response.status}.` } = answer;
  throw toldFailure({ failure, message });
}

async function ask(
  door: OperatorDoor,
  path: string,
  signal: AbortSignal,
  request: {
    readonly method?: string;
    readonly headers?: Record<string, string>;
    readonly body?: string;
  } = {},
): Promise<Response> {
  const authorization = `Bearer ${door.key.reveal()}`;
  try {
    return await fetch(new URL(path, door.url), {
      ...request,
      headers: { ...request.headers, authorization },
      redirect: "error",
      signal,
    });
  } catch (error) {
    signal.throwIfAborted();
    throw new Retryable("The worker does not answer any more.", {
      hint: "`plenum status` says whether it is running.",
      cause: error,
    });
  }
}

/** How long a worker may take to say that it is there, and to report, in milliseconds; a busy small machine takes seconds. */
const PING_WITHIN_MS = 5_000;
const REPORT_WITHIN_MS = 15_000;

/**
 * Who is behind the door in a state folder.
 *
 * - `open`: a worker that answers;
 * - `none`: nobody. There is no door, or a worker that was killed left it behind and nobody listens there;
 * - `silent`: somebody took the call and said nothing in time: a worker that is busy, stopped or stuck.
 */
export type FoundWorker =
  | { readonly kind: "open"; readonly door: OperatorDoor }
  | { readonly kind: "none" }
  | { readonly kind: "silent"; readonly trouble: Retryable };

export async function findWorker(stateFolder: string, signal: AbortSignal): Promise<FoundWorker> {
  const door = readDoor(stateFolder);
  if (door === null) return { kind: "none" };
  const limit = AbortSignal.timeout(PING_WITHIN_MS);
  try {
    const response = await ask(door, "/operator/ping", AbortSignal.any([signal, limit]));
    await response.body?.cancel();
    if (response.ok) return { kind: "open", door };
    // Somebody else's address by now, or another worker's.
    return response.status < 500 ? { kind: "none" } : { kind: "silent", trouble: silent(PING_WITHIN_MS) };
  } catch {
    signal.throwIfAborted();
    return limit.aborted ? { kind: "silent", trouble: silent(PING_WITHIN_MS) } : { kind: "none" };
  }
}

function silent(withinMs: number): Retryable {
  return new Retryable(`A worker is there and does not answer within ${withinMs / 1_000} s.`, {
    hint: "It may be busy: try again. If that lasts, its log says what it does.",
  });
}

/** The door of a worker that answers; null when none is running. Rejects when one is there and does not answer. */
export async function openDoor(stateFolder: string, signal: AbortSignal): Promise<OperatorDoor | null> {
  const found = await findWorker(stateFolder, signal);
  if (found.kind === "silent") throw found.trouble;
  return found.kind === "open" ? found.door : null;
}

export async function askReport(door: OperatorDoor, signal: AbortSignal): Promise<StatusReport> {
  const limit = AbortSignal.timeout(REPORT_WITHIN_MS);
  try {
    const response = await ask(door, "/operator/status", AbortSignal.any([signal, limit]));
    if (!response.ok) throw new Retryable(`The worker answered ${response.status}.`);
    return (await response.json()) as StatusReport;
  } catch (error) {
    signal.throwIfAborted();
    throw limit.aborted ? silent(REPORT_WITHIN_MS) : error;
  }
}

/** Whether a worker is ready. */
export async function isReady(door: OperatorDoor, signal: AbortSignal): Promise<boolean> {
  const limit = AbortSignal.timeout(PING_WITHIN_MS);
  const response = await ask(door, "/readyz", AbortSignal.any([signal, limit])).catch((error: unknown) => {
    signal.throwIfAborted();
    throw limit.aborted ? silent(PING_WITHIN_MS) : error;
  });
  await response.body?.cancel();
  return response.ok;
}
