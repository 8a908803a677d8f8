import { request } from "node:http";
import type { Socket } from "node:net";
import { text } from "node:stream/consumers";
import {
  ConfigError,
  type Failure,
  Malformed,
  NoLog,
  Rejected,
  Retryable,
  Throttled,
} from "../../core/errors/errors.ts";
import type { Alarm, Gateway, Host, Site, System, Tag, TagLog, TagTotal } from "../../core/model/building.ts";
import type { ReloadReport } from "../../core/model/config-change-report.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import type { HistoryQuery, Page, ReadReply, Source } from "../../engine/source/source.ts";
import { refuseWritableByOthers } from "../../engine/store/state-folder.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import type { StatusReport } from "../status/status-report.ts";
import { connectToWorker, findSocket } from "./control-socket-path.ts";
import type {
  AcceptedConfiguration,
  CommandBody,
  EncodedFailure,
  SecondBody,
  SourceRequest,
  WritesBody,
} from "./control-socket-routes.ts";
import type { TagWork } from "./source-plan-routes.ts";

/** A busy small machine needs seconds even for a ping. */
const PING_LIMIT_MS = 5_000;
const DEFAULT_LIMIT_MS = 15_000;
const PING_EVERY_MS = 5_000;

export interface ControlSocket {
  readonly stateFolder: string;
}

export class WorkerGone extends Retryable {
  constructor(cause: unknown) {
    super("The worker does not answer any more.", {
      hint: "`plenum status` says whether it is running.",
      cause,
    });
  }
}

/** The worker accepted the connection and did not respond in time: it is busy, stopped or blocked. */
export class WorkerSilent extends Retryable {
  constructor(limitMs: number) {
    super(`A worker is there and does not answer within ${limitMs / 1_000} s.`, {
      hint: "It may be busy: try again. If that lasts, its log says what it does.",
    });
  }
}

export interface CallOptions {
  readonly body?: unknown;
  readonly signal: AbortSignal;
  /** Time limit; null for none as long as the worker responds to pings. */
  readonly withinMs?: number | null;
}

/** Calls the worker. Rejects with the worker's failure, `WorkerGone`, `WorkerSilent` or, without access, ConfigError. */
export async function callWorker<T>({ stateFolder }: ControlSocket, path: string, options: CallOptions): Promise<T> {
  const { body, signal, withinMs = DEFAULT_LIMIT_MS } = options;
  const ended = new AbortController();
  const limit = withinMs === null ? ended.signal : AbortSignal.timeout(withinMs);
  const pings = withinMs === null ? pingUntilEnded(stateFolder, ended, signal) : null;
  try {
    return await exchange<T>(stateFolder, path, body, AbortSignal.any([signal, limit]));
  } catch (error) {
    signal.throwIfAborted();
    if (ended.signal.aborted) throw ended.signal.reason;
    throw limit.aborted ? new WorkerSilent(withinMs ?? PING_LIMIT_MS) : error;
  } finally {
    ended.abort();
    await pings;
  }
}

function ping(stateFolder: string, signal: AbortSignal): Promise<unknown> {
  return callWorker({ stateFolder }, "/ping", { signal, withinMs: PING_LIMIT_MS });
}

/** Aborts `ended` with the error of the first failed ping. */
async function pingUntilEnded(stateFolder: string, ended: AbortController, signal: AbortSignal): Promise<void> {
  while (await sleepFor(systemClock, PING_EVERY_MS, ended.signal, signal))
    await ping(stateFolder, AbortSignal.any([ended.signal, signal])).catch((error: unknown) => ended.abort(error));
}

async function exchange<T>(stateFolder: string, path: string, body: unknown, signal: AbortSignal): Promise<T> {
  const socket = await connect(stateFolder, signal);
  let status = 0;
  let response: { readonly result?: T } & Partial<EncodedFailure>;
  try {
    const responseText = await new Promise<string>((resolve, reject) => {
      // A request without an agent ignores the proxy settings of the environment.
      const outgoing = request({
        createConnection: () => socket,
        path,
        method: body === undefined ? "GET" : "POST",
        headers: { host: "plenum", connection: "close", "content-type": "application/json" },
        signal,
      });
      outgoing.once("response", (incoming) => {
        status = incoming.statusCode ?? 0;
        text(incoming).then(resolve, reject);
      });
      outgoing.on("error", reject);
      outgoing.end(body === undefined ? undefined : JSON.stringify(body));
    });
    response = JSON.parse(responseText);
  } catch (error) {
    signal.throwIfAborted();
    throw new WorkerGone(error);
  } finally {
    socket.destroy();
  }
  if (status === 200) return response.result as T;
  throw decodeFailure({ failure: "retryable", message: `The worker answered ${status}.`, ...response });
}

async function connect(stateFolder: string, signal: AbortSignal): Promise<Socket> {
  try {
    return await connectToWorker(stateFolder, signal);
  } catch (error) {
    signal.throwIfAborted();
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EACCES" || code === "EPERM") {
      throw new ConfigError("This user may not speak to the worker of this state folder.", {
        hint: "Run this as the user that runs the worker.",
        cause: error,
      });
    }
    // The queue of connections that the worker has not accepted is full.
    throw code === "EAGAIN" ? new WorkerSilent(PING_LIMIT_MS) : new WorkerGone(error);
  }
}

export function decodeFailure({ failure, message, reason, field }: EncodedFailure): Failure {
  if (failure === "config")
    return new ConfigError(message, { ...(reason && { reason }), ...(field !== undefined && { field }) });
  if (failure === "throttled") return new Throttled(message, null);
  if (failure === "rejected") return new Rejected(message);
  if (failure === "no-log") return new NoLog(message);
  return failure === "malformed" ? new Malformed(message, "") : new Retryable(message);
}

/**
 * Worker of a state folder: `open` responds; `none` has no socket, or only the socket of a killed worker; `silent` accepted the
 * connection without a response in time, because it is busy, stopped or blocked.
 */
export type FoundWorker =
  | { readonly kind: "open"; readonly socket: ControlSocket }
  | { readonly kind: "none" }
  | { readonly kind: "silent"; readonly failure: Retryable };

export async function findWorker(stateFolder: string, signal: AbortSignal): Promise<FoundWorker> {
  refuseWritableByOthers(stateFolder);
  if (findSocket(stateFolder) === "nothing") return { kind: "none" };
  try {
    await ping(stateFolder, signal);
    return { kind: "open", socket: { stateFolder } };
  } catch (error) {
    if (error instanceof WorkerGone) return { kind: "none" };
    if (error instanceof WorkerSilent) return { kind: "silent", failure: error };
    throw error;
  }
}

/** The requests of a source that the command line uses; a running worker offers those of its own source. */
export interface SourceReader extends Pick<Source, "sites" | "alarms" | "tags" | "gateways" | "hosts" | "systems"> {
  read(tagIds: readonly string[], lane: "on-demand", signal: AbortSignal): Promise<ReadReply>;
  history(query: HistoryQuery, lane: "on-demand", signal: AbortSignal): Promise<readonly TagLog[]>;
  totals(query: HistoryQuery, lane: "on-demand", signal: AbortSignal): Promise<readonly TagTotal[]>;
}

export function remoteReader(socket: ControlSocket, source: string): SourceReader {
  // A request to the service may wait minutes for the quota.
  const send = <T>(body: SourceRequest, signal: AbortSignal) =>
    callWorker<T>(socket, `/sources/${encodeURIComponent(source)}`, { body, signal, withinMs: null });
  async function* pages<T>(method: string, filter: object, signal: AbortSignal): AsyncIterable<Page<T>> {
    yield* await send<Page<T>[]>({ method, filter } as SourceRequest, signal);
  }
  return {
    sites: (filter, signal) => pages<Site>("sites", filter, signal),
    alarms: (filter, signal) => pages<Alarm>("alarms", filter, signal),
    tags: (filter, signal) => pages<Tag>("tags", filter, signal),
    gateways: (filter, signal) => pages<Gateway>("gateways", filter, signal),
    hosts: (filter, signal) => pages<Host>("hosts", filter, signal),
    systems: (filter, signal) => pages<System>("systems", filter, signal),
    read: (tagIds, _lane, signal) => send({ method: "read", tagIds: [...tagIds] }, signal),
    history: (query, _lane, signal) => send({ method: "history", query: { ...query }, totals: false }, signal),
    totals: (query, _lane, signal) => send({ method: "history", query: { ...query }, totals: true }, signal),
  };
}

export async function sendCommand(socket: ControlSocket, command: CommandBody, signal: AbortSignal) {
  try {
    return await callWorker<{ readonly waitMs: number }>(socket, "/commands", { body: command, signal });
  } catch (error) {
    if (!(error instanceof WorkerSilent)) throw error;
    throw new Retryable(error.message, {
      hint: `Whether it has taken the command is not known; \`--id ${command.id}\` asks again, and never writes twice.`,
      cause: error,
    });
  }
}

export async function sendSecond(socket: ControlSocket, second: SecondBody, signal: AbortSignal): Promise<void> {
  await callWorker(socket, "/seconds", { body: second, signal });
}

/** Makes the worker read its configuration file again; with `dryRun` it only reports the changes. */
export function requestReload(socket: ControlSocket, dryRun: boolean, signal: AbortSignal): Promise<ReloadReport> {
  return callWorker(socket, "/reload", { body: { dryRun }, signal, withinMs: null });
}

/** Throws or releases the kill switch of a fleet through a member; `OperatorOptions.fleetWrites` explains the result. */
export function requestFleetWrites(socket: ControlSocket, writes: WritesBody, signal: AbortSignal): Promise<boolean> {
  return callWorker(socket, "/writes", { body: writes, signal });
}

function createGetter<T>(path: string) {
  return (socket: ControlSocket, signal: AbortSignal) => callWorker<T>(socket, path, { signal });
}
function createWorkGetter<T>(path: string) {
  return (socket: ControlSocket, source: string, signal: AbortSignal) =>
    callWorker<T>(socket, `/work/${encodeURIComponent(source)}/${path}`, { signal });
}

export const requestConfiguration = createGetter<AcceptedConfiguration>("/configuration");
export const requestReport = createGetter<StatusReport>("/status");
/** Reason why a worker is not ready; null when it is ready. */
export const requestReady = createGetter<string | null>("/ready");
export const requestLog = createGetter<readonly string[]>("/log");
export const requestPlan = createWorkGetter<PlanReport>("plan");
/** UTC time of the last successful run of each job. */
export const requestPolls = createWorkGetter<Readonly<Record<string, string>>>("polls");

export function requestTag(socket: ControlSocket, source: string, id: string, signal: AbortSignal): Promise<TagWork> {
  return createWorkGetter<TagWork>(`tags/${encodeURIComponent(id)}`)(socket, source, signal);
}
