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

/** How long a worker may take to say that it is there, in milliseconds. */
const PING_WITHIN_MS = 3_000;

/** The door of a worker that answers; null when none is running. A worker that was killed leaves its door behind. */
export async function openDoor(stateFolder: string, signal: AbortSignal): Promise<OperatorDoor | null> {
  const door = readDoor(stateFolder);
  if (door === null) return null;
  try {
    const within = AbortSignal.any([signal, AbortSignal.timeout(PING_WITHIN_MS)]);
    const response = await ask(door, "/operator/ping", within);
    await response.body?.cancel();
    return response.ok ? door : null;
  } catch {
    signal.throwIfAborted();
    return null;
  }
}

export async function askReport(door: OperatorDoor, signal: AbortSignal): Promise<StatusReport> {
  const response = await ask(door, "/operator/status", signal);
  if (!response.ok) throw new Retryable(`The worker answered ${response.status}.`);
  return (await response.json()) as StatusReport;
}

/** Whether a worker is there and ready. */
export async function isReady(door: OperatorDoor, signal: AbortSignal): Promise<boolean> {
  const response = await ask(door, "/readyz", signal);
  await response.body?.cancel();
  return response.ok;
}
