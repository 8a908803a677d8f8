import { Retryable } from "../../core/errors/errors.ts";
import type {
  Alarm,
  Gateway,
  Host,
  Site,
  System,
  Tag,
  TagLog,
  TagScalar,
  TagTotal,
} from "../../core/model/building.ts";
import type { ReloadReport } from "../../core/model/reload-facts.ts";
import type {
  AlarmFilter,
  GatewayFilter,
  HistoryQuery,
  HostFilter,
  Page,
  ReadReply,
  SiteFilter,
  SystemFilter,
  TagFilter,
} from "../../engine/source/source.ts";
import { refuseWritableByOthers } from "../../engine/store/folder.ts";
import type { StatusReport } from "../status/report.ts";
import { type ControlSocket, call, NobodyThere, ping, Silent } from "./call.ts";
import type { AcceptedConfiguration, Call } from "./routes.ts";
import { lookAtSocket } from "./socket.ts";

/** The part of a source that the command line uses; a running worker lends its own through this. */
export interface Reader {
  sites(filter: SiteFilter, signal: AbortSignal): AsyncIterable<Page<Site>>;
  alarms(filter: AlarmFilter, signal: AbortSignal): AsyncIterable<Page<Alarm>>;
  tags(filter: TagFilter, signal: AbortSignal): AsyncIterable<Page<Tag>>;
  gateways(filter: GatewayFilter, signal: AbortSignal): AsyncIterable<Page<Gateway>>;
  hosts(filter: HostFilter, signal: AbortSignal): AsyncIterable<Page<Host>>;
  systems(filter: SystemFilter, signal: AbortSignal): AsyncIterable<Page<System>>;
  read(tagIds: readonly string[], lane: "on-demand", signal: AbortSignal): Promise<ReadReply>;
  history(query: HistoryQuery, lane: "on-demand", signal: AbortSignal): Promise<readonly TagLog[]>;
  totals(query: HistoryQuery, lane: "on-demand", signal: AbortSignal): Promise<readonly TagTotal[]>;
}

export function remoteReader(door: ControlSocket, source: string): Reader {
  // Requests to the service wait for the quota, which may take minutes.
  const send = <T>(body: Call, signal: AbortSignal) =>
    call<T>(door, `/sources/${encodeURIComponent(source)}`, { body, signal, withinMs: null });
  async function* pages<T>(body: Call, signal: AbortSignal): AsyncIterable<Page<T>> {
    yield* await send<Page<T>[]>(body, signal);
  }
  return {
    sites: (filter, signal) => pages<Site>({ method: "sites", filter: { ...filter } }, signal),
    alarms: (filter, signal) => pages<Alarm>({ method: "alarms", filter: { ...filter } }, signal),
    tags: (filter, signal) => pages<Tag>({ method: "tags", filter: { ...filter } }, signal),
    gateways: (filter, signal) => pages<Gateway>({ method: "gateways", filter: { ...filter } }, signal),
    hosts: (filter, signal) => pages<Host>({ method: "hosts", filter: { ...filter } }, signal),
    systems: (filter, signal) => pages<System>({ method: "systems", filter: { ...filter } }, signal),
    read: (tagIds, _lane, signal) => send<ReadReply>({ method: "read", tagIds: [...tagIds] }, signal),
    history: (query, _lane, signal) =>
      send<TagLog[]>({ method: "history", query: { ...query }, totals: false }, signal),
    totals: (query, _lane, signal) =>
      send<TagTotal[]>({ method: "history", query: { ...query }, totals: true }, signal),
  };
}

export async function sendCommand(
  door: ControlSocket,
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
  try {
    return await call(door, "/commands", { body: command, signal });
  } catch (error) {
    if (!(error instanceof Silent)) throw error;
    throw new Retryable(error.message, {
      hint: `Whether it has taken the command is not known; \`--id ${command.id}\` asks again, and never writes twice.`,
      cause: error,
    });
  }
}

/** Agrees to a command as the second person. */
export async function sendSecond(
  door: ControlSocket,
  second: {
    readonly id: string;
    readonly source: string | null;
    readonly value: TagScalar;
    readonly user: string;
  },
  signal: AbortSignal,
): Promise<void> {
  await call(door, "/seconds", { body: second, signal });
}

/**
 * Worker behind the control socket of a state folder.
 *
 * - `open`: a worker that responds;
 * - `none`: no socket, or one that a killed worker left behind;
 * - `silent`: the connection was accepted without a response in time: a busy, stopped or blocked worker.
 */
export type FoundWorker =
  | { readonly kind: "open"; readonly door: ControlSocket }
  | { readonly kind: "none" }
  | { readonly kind: "silent"; readonly trouble: Retryable };

/** Throws ConfigError when other users could replace the socket, or when this user may not connect. */
export async function findWorker(stateFolder: string, signal: AbortSignal): Promise<FoundWorker> {
  refuseWritableByOthers(stateFolder);
  if (lookAtSocket(stateFolder) === "nothing") return { kind: "none" };
  const door = { stateFolder };
  try {
    await ping(door, signal);
    return { kind: "open", door };
  } catch (error) {
    if (error instanceof NobodyThere) return { kind: "none" };
    if (error instanceof Silent) return { kind: "silent", trouble: error };
    throw error;
  }
}

/** Has the worker read its configuration file again; with `dryRun` it only says what would change. */
export function requestReload(door: ControlSocket, dryRun: boolean, signal: AbortSignal): Promise<ReloadReport> {
  return call(door, "/reload", { body: { dryRun }, signal, withinMs: null });
}

/** The configuration that the worker accepted last. */
export function requestConfiguration(door: ControlSocket, signal: AbortSignal): Promise<AcceptedConfiguration> {
  return call(door, "/configuration", { signal });
}

/** Throws or releases the kill switch of a fleet through one of its members; `OperatorOptions.fleetWrites` says what false means. */
export function requestFleetWrites(
  door: ControlSocket,
  writes: { readonly stopped: boolean; readonly by: string },
  signal: AbortSignal,
): Promise<boolean> {
  return call(door, "/writes", { body: writes, signal });
}

export function requestReport(door: ControlSocket, signal: AbortSignal): Promise<StatusReport> {
  return call(door, "/status", { signal });
}

/** Why a worker is not ready; null when it is. */
export function requestReady(door: ControlSocket, signal: AbortSignal): Promise<string | null> {
  return call(door, "/ready", { signal });
}

/** The last lines of its log, the oldest first. */
export function requestLog(door: ControlSocket, signal: AbortSignal): Promise<readonly string[]> {
  return call(door, "/log", { signal });
}
