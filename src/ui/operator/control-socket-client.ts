import { request } from "node:http";
import type { Socket } from "node:net";
import { text } from "node:stream/consumers";
import {
  ConfigError,
  type Failure,
  Malformed,
  NoTagLog,
  Rejected,
  Retryable,
  Throttled,
} from "../../core/errors/errors.ts";
import type { Alarm, Gateway, Host, Site, System, Tag, TagLog, TagTotal } from "../../core/model/building.ts";
import type { ReloadReport } from "../../core/model/config-change-report.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import type { WriteLockChange } from "../../engine/commands/write-locks.ts";
import type { HistoryQuery, ListPage, Source, TagReadReply } from "../../engine/source/source.ts";
import { refuseWritableByOthers } from "../../engine/store/state-folder.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import type { StatusReport } from "../status/status-report.ts";
import { connectToWorker, findControlSocket } from "./control-socket-path.ts";
import type {
  AcceptedConfiguration,
  CommandBody,
  EncodedFailure,
  FleetWrites,
  SecondApproval,
  SourceRequest,
} from "./control-socket-routes.ts";
import type { TagActivity } from "./quota-plan-routes.ts";

/** Time limit of a ping; long, because a worker on a busy small machine may respond only after seconds. */
const PING_TIMEOUT_MS = 5_000;
const DEFAULT_REQUEST_TIMEOUT_MS = 15_000;
const PING_INTERVAL_MS = 5_000;

export interface ControlSocket {
  readonly stateFolder: string;
}

export class WorkerNotReachable extends Retryable {
  constructor(cause: unknown) {
    super("The worker does not answer any more.", {
      hint: "`plenum status` says whether it is running.",
      cause,
    });
  }
}

/** Error of a busy or blocked worker, which accepts a connection and does not respond in time. */
export class WorkerNotResponding extends Retryable {
  constructor(timeoutMs: number) {
    super(`A worker is there and does not answer within ${timeoutMs / 1_000} s.`, {
      hint: "It may be busy: try again. If that lasts, its log says what it does.",
    });
  }
}

export interface RequestOptions {
  readonly body?: unknown;
  readonly signal: AbortSignal;
  /** Time limit in milliseconds; null: no limit as long as the worker responds to pings. */
  readonly timeoutMs?: number | null;
}

/** Sends a request to the worker. Rejects with the worker's failure, or if the worker does not respond. */
export async function callWorker<T>({ stateFolder }: ControlSocket, path: string, options: RequestOptions): Promise<T> {
  const { body, signal, timeoutMs = DEFAULT_REQUEST_TIMEOUT_MS } = options;
  const requestEndController = new AbortController();
  const timeoutSignal = timeoutMs === null ? requestEndController.signal : AbortSignal.timeout(timeoutMs);
  const pingLoop = timeoutMs === null ? pingUntilRequestEnds(stateFolder, requestEndController, signal) : null;
  try {
    return await sendSocketRequest<T>(stateFolder, path, body, AbortSignal.any([signal, timeoutSignal]));
  } catch (error) {
    signal.throwIfAborted();
    if (requestEndController.signal.aborted) throw requestEndController.signal.reason;
    throw timeoutSignal.aborted ? new WorkerNotResponding(timeoutMs ?? PING_TIMEOUT_MS) : error;
  } finally {
    requestEndController.abort();
    await pingLoop;
  }
}

function pingWorker(stateFolder: string, signal: AbortSignal): Promise<unknown> {
  return callWorker({ stateFolder }, "/ping", { signal, timeoutMs: PING_TIMEOUT_MS });
}

async function pingUntilRequestEnds(
  stateFolder: string,
  requestEndController: AbortController,
  signal: AbortSignal,
): Promise<void> {
  while (await sleepFor(systemClock, PING_INTERVAL_MS, requestEndController.signal, signal))
    await pingWorker(stateFolder, AbortSignal.any([requestEndController.signal, signal])).catch((error) =>
      requestEndController.abort(error),
    );
}

async function sendSocketRequest<T>(stateFolder: string, path: string, body: unknown, signal: AbortSignal): Promise<T> {
  const socket = await connectControlSocket(stateFolder, signal);
  let httpStatus = 0;
  let response: { readonly result?: T } & Partial<EncodedFailure>;
  try {
    const responseText = await new Promise<string>((resolve, reject) => {
      // Without an HTTP agent, Node.js ignores proxy settings in environment variables.
      const outgoingRequest = request({
        createConnection: () => socket,
        path,
        method: body === undefined ? "GET" : "POST",
        headers: { host: "plenum", connection: "close", "content-type": "application/json" },
        signal,
      });
      outgoingRequest.once("response", (incomingResponse) => {
        httpStatus = incomingResponse.statusCode ?? 0;
        text(incomingResponse).then(resolve, reject);
      });
      outgoingRequest.on("error", reject);
      outgoingRequest.end(body === undefined ? undefined : JSON.stringify(body));
    });
    response = JSON.parse(responseText);
  } catch (error) {
    signal.throwIfAborted();
    throw new WorkerNotReachable(error);
  } finally {
    socket.destroy();
  }
  if (httpStatus === 200) return response.result as T;
  throw decodeFailure({ failure: "retryable", message: `The worker answered ${httpStatus}.`, ...response });
}

async function connectControlSocket(stateFolder: string, signal: AbortSignal): Promise<Socket> {
  try {
    return await connectToWorker(stateFolder, signal);
  } catch (error) {
    signal.throwIfAborted();
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EACCES" || code === "EPERM")
      throw new ConfigError("This user may not speak to the worker of this state folder.", {
        hint: "Run this as the user that runs the worker.",
        cause: error,
      });
    // EAGAIN: the queue of the socket is full, because the worker accepts no connections at the moment.
    throw code === "EAGAIN" ? new WorkerNotResponding(PING_TIMEOUT_MS) : new WorkerNotReachable(error);
  }
}

export function decodeFailure({ failure, message, reason, field }: EncodedFailure): Failure {
  if (failure === "config")
    return new ConfigError(message, { ...(reason && { reason }), ...(field !== undefined && { field }) });
  if (failure === "throttled") return new Throttled(message, null);
  if (failure === "rejected") return new Rejected(message);
  if (failure === "no-log") return new NoTagLog(message);
  return failure === "malformed" ? new Malformed(message, "") : new Retryable(message);
}

/** `none`: no socket, or the socket of a killed worker. `silent`: the worker did not respond in time. */
export type FoundWorker =
  | { readonly kind: "open"; readonly socket: ControlSocket }
  | { readonly kind: "none" }
  | { readonly kind: "silent"; readonly failure: Retryable };

export async function findWorker(stateFolder: string, signal: AbortSignal): Promise<FoundWorker> {
  refuseWritableByOthers(stateFolder);
  if (findControlSocket(stateFolder) === "nothing") return { kind: "none" };
  try {
    await pingWorker(stateFolder, signal);
    return { kind: "open", socket: { stateFolder } };
  } catch (error) {
    if (error instanceof WorkerNotReachable) return { kind: "none" };
    if (error instanceof WorkerNotResponding) return { kind: "silent", failure: error };
    throw error;
  }
}

/** Requests to the monitoring service that the command line may send through a running worker. */
export interface SourceReader extends Pick<Source, "sites" | "alarms" | "tags" | "gateways" | "hosts" | "systems"> {
  read(tagIds: readonly string[], lane: "on-demand", signal: AbortSignal): Promise<TagReadReply>;
  history(query: HistoryQuery, lane: "on-demand", signal: AbortSignal): Promise<readonly TagLog[]>;
  totals(query: HistoryQuery, lane: "on-demand", signal: AbortSignal): Promise<readonly TagTotal[]>;
}

export function createSocketSourceReader(socket: ControlSocket, source: string): SourceReader {
  // A request to the service may wait minutes for the quota.
  const requestSource = <T>(body: SourceRequest, signal: AbortSignal) =>
    callWorker<T>(socket, `/sources/${encodeURIComponent(source)}`, { body, signal, timeoutMs: null });
  async function* requestPages<T>(method: string, filter: object, signal: AbortSignal): AsyncIterable<ListPage<T>> {
    yield* await requestSource<ListPage<T>[]>({ method, filter } as SourceRequest, signal);
  }
  return {
    sites: (filter, signal) => requestPages<Site>("sites", filter, signal),
    alarms: (filter, signal) => requestPages<Alarm>("alarms", filter, signal),
    tags: (filter, signal) => requestPages<Tag>("tags", filter, signal),
    gateways: (filter, signal) => requestPages<Gateway>("gateways", filter, signal),
    hosts: (filter, signal) => requestPages<Host>("hosts", filter, signal),
    systems: (filter, signal) => requestPages<System>("systems", filter, signal),
    read: (tagIds, _lane, signal) => requestSource({ method: "read", tagIds: [...tagIds] }, signal),
    history: (query, _lane, signal) => requestSource({ method: "history", query: { ...query }, totals: false }, signal),
    totals: (query, _lane, signal) => requestSource({ method: "history", query: { ...query }, totals: true }, signal),
  };
}

export async function sendCommand(socket: ControlSocket, command: CommandBody, signal: AbortSignal) {
  try {
    return await callWorker<{ readonly waitMs: number }>(socket, "/commands", { body: command, signal });
  } catch (error) {
    if (!(error instanceof WorkerNotResponding)) throw error;
    throw new Retryable(error.message, {
      hint: `Whether it has taken the command is not known; \`--id ${command.id}\` asks again, and never writes twice.`,
      cause: error,
    });
  }
}

const createWorkerPostRequest =
  <Body>(path: string) =>
  async (socket: ControlSocket, body: Body, signal: AbortSignal): Promise<void> => {
    await callWorker(socket, path, { body, signal });
  };

export const sendApproval = createWorkerPostRequest<SecondApproval>("/seconds");
export const sendLockChange = createWorkerPostRequest<WriteLockChange>("/locks");

/** Makes the worker read its configuration file again; with `dryRun` it only reports the changes. */
export function reloadWorkerConfig(socket: ControlSocket, dryRun: boolean, signal: AbortSignal): Promise<ReloadReport> {
  return callWorker(socket, "/reload", { body: { dryRun }, signal, timeoutMs: null });
}

/** Stops or resumes the tag writes of a fleet; returns false if this failed. */
export function requestFleetWrites(socket: ControlSocket, writes: FleetWrites, signal: AbortSignal): Promise<boolean> {
  return callWorker(socket, "/writes", { body: writes, signal });
}

function createWorkerGetRequest<T>(path: string) {
  return (socket: ControlSocket, signal: AbortSignal) => callWorker<T>(socket, path, { signal });
}
function createSourceGetRequest<T>(path: string) {
  return (socket: ControlSocket, source: string, signal: AbortSignal) =>
    callWorker<T>(socket, `/work/${encodeURIComponent(source)}/${path}`, { signal });
}

export const requestConfiguration = createWorkerGetRequest<AcceptedConfiguration>("/configuration");
export const requestStatus = createWorkerGetRequest<StatusReport>("/status");
export const requestNotReadyReason = createWorkerGetRequest<string | null>("/ready");
export const requestSourcePlan = createSourceGetRequest<PlanReport>("plan");
export const requestLastPollTimes = createSourceGetRequest<Readonly<Record<string, string>>>("polls");

export function requestTagActivity(socket: ControlSocket, source: string, id: string, signal: AbortSignal) {
  return createSourceGetRequest<TagActivity>(`tags/${encodeURIComponent(id)}`)(socket, source, signal);
}
