import type { Alarm, Site, TagLog, TagScalar, TagTotal } from "../building.ts";
import { ConfigError, Retryable } from "../errors.ts";
import type { AlarmFilter, HistoryQuery, Page, ReadReply, SiteFilter } from "../source/source.ts";
import type { OperatorDoor } from "./key.ts";
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
  const ask = <T>(call: Call, signal: AbortSignal) =>
    post<T>(door, `/operator/sources/${encodeURIComponent(source)}`, call, signal);
  async function* pages<T>(call: Call, signal: AbortSignal): AsyncIterable<Page<T>> {
    yield* await ask<Page<T>[]>(call, signal);
  }
  return {
    sites: (filter, signal) => pages<Site>({ method: "sites", filter: { ...filter } }, signal),
    alarms: (filter, signal) => pages<Alarm>({ method: "alarms", filter: { ...filter } }, signal),
    read: (tagIds, _lane, signal) => ask<ReadReply>({ method: "read", tagIds: [...tagIds] }, signal),
    history: (query, _lane, signal) =>
      ask<TagLog[]>({ method: "history", query: { ...query }, totals: false }, signal),
    totals: (query, _lane, signal) =>
      ask<TagTotal[]>({ method: "history", query: { ...query }, totals: true }, signal),
  };
}

export function sendCommand(
  door: OperatorDoor,
  command: {
    readonly id: string;
    readonly source: string | null;
    readonly tagId: string;
    readonly value: TagScalar;
  },
  signal: AbortSignal,
): Promise<unknown> {
  return post(door, "/operator/commands", command, signal);
}

async function post<T>(door: OperatorDoor, path: string, body: unknown, signal: AbortSignal): Promise<T> {
  const response = await fetch(new URL(path, door.url), {
    method: "POST",
    headers: { authorization: `Bearer ${door.key.reveal()}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    redirect: "error",
    signal,
  });
  const answer = (await response.json()) as { result?: T; failure?: string; message?: string };
  if (response.ok) return answer.result as T;
  const message = answer.message ?? `The worker answered ${response.status}.`;
  throw answer.failure === "config" ? new ConfigError(message) : new Retryable(message);
}

/** Whether a worker really answers behind the door: the file may be left from one that was killed. */
export async function answers(door: OperatorDoor, signal: AbortSignal): Promise<boolean> {
  try {
    const response = await fetch(new URL("/operator/ping", door.url), {
      headers: { authorization: `Bearer ${door.key.reveal()}` },
      redirect: "error",
      signal: AbortSignal.any([signal, AbortSignal.timeout(3_000)]),
    });
    return response.ok;
  } catch {
    return false;
  }
}
