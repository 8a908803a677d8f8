import { createServer } from "node:net";
import type { Config, SourceConfigEntry } from "../../app/config/config.ts";
import { findSinkConnector } from "../../app/config/config-sections.ts";
import type { Sink } from "../../core/connector.ts";
import { asFailure, errorText } from "../../core/errors/errors.ts";
import {
  findWorker,
  requestNotReadyReason,
  requestStatus,
  requestWorkerLog,
} from "../../ui/operator/control-socket-client.ts";
import type { StatusReport } from "../../ui/status/status-report.ts";
import { withTimeLimit } from "../checking/check-report.ts";
import { findWorkerOfConfig } from "../shell/find-worker.ts";
import { readStateIfAny, useStateDatabase } from "../shell/open-worker-state.ts";
import { createStandaloneSink, useStandaloneSource } from "../shell/standalone-source-and-sinks.ts";
import { statusReportFromState } from "../watching/status-command.ts";

export interface WorkerFindings {
  readonly found: "running" | "silent" | "none" | "unknown";
  /** Reason why the worker does not respond or cannot be reached. */
  readonly trouble: string | null;
  readonly notReady: string | null;
  /** Status report of the worker, or from the stored state if no worker responds. */
  readonly report: StatusReport | null;
  /** Address of the status page if another program uses its port; otherwise null. */
  readonly portTaken: string | null;
  readonly log: readonly string[];
}

export async function inspectWorker(
  folder: string,
  config: Config | null,
  signal: AbortSignal,
): Promise<WorkerFindings> {
  const emptyFindings = { notReady: null, portTaken: null, log: [] };
  try {
    const worker = config === null ? await findWorker(folder, signal) : await findWorkerOfConfig({ config }, signal);
    if (worker.kind === "open") {
      const { socket } = worker;
      const [report, notReady, log] = await Promise.all([
        requestStatus(socket, signal),
        requestNotReadyReason(socket, signal),
        requestWorkerLog(socket, signal),
      ]);
      return { ...emptyFindings, found: "running", trouble: null, notReady, report, log };
    }
    const trouble = worker.kind === "silent" ? errorText(worker.failure) : null;
    const report = await readStoredStatus(config);
    return { ...emptyFindings, found: worker.kind, trouble, portTaken: await findTakenStatusPort(config), report };
  } catch (error) {
    signal.throwIfAborted();
    return { ...emptyFindings, found: "unknown", trouble: errorText(error), report: null };
  }
}

async function findTakenStatusPort(config: Config | null): Promise<string | null> {
  if (config === null || config.status.port === 0) return null;
  const { host, port } = config.status;
  const isPortTaken = await new Promise<boolean>((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code === "EADDRINUSE"));
    server.listen(port, host, () => server.close(() => resolve(false)));
  });
  return isPortTaken ? `${host}:${port}` : null;
}

/** Reads the status from the stored state; null if the state cannot be read. */
async function readStoredStatus(config: Config | null): Promise<StatusReport | null> {
  if (config === null) return null;
  return readStateIfAny({ config }, (store) => statusReportFromState(store, config)).catch(() => null);
}

export type ServerProbeResult = Awaited<ReturnType<typeof probeServer>>;

const PROBE_TIMEOUT_MS = 10_000;

export function probeServers(config: Config, signal: AbortSignal): Promise<readonly ServerProbeResult[]> {
  const sourceProbes = Object.entries(config.sources).map(([name, entry]) =>
    probeServer("source", name, new URL(entry.base_url).origin, () => probeSource(name, entry, signal)),
  );
  const sinkProbes = Object.entries(config.sinks)
    .filter(([, entry]) => entry.enabled)
    .map(([name, entry]) =>
      probeServer("sink", name, findSinkConnector(entry), async () => {
        await probeSink(await createStandaloneSink(name, entry), signal);
        return { clockSkewMs: null, token: null };
      }),
    );
  return Promise.all([...probeStateDatabase(config), ...sourceProbes, ...sinkProbes]);
}

function probeStateDatabase(config: Config): readonly Promise<ServerProbeResult>[] {
  const { postgres } = config.state;
  if (postgres === undefined) return [];
  const connectToDatabase = () => useStateDatabase(config, async () => ({ clockSkewMs: null, token: null }));
  return [probeServer("database", postgres.schema, "postgres", connectToDatabase)];
}

interface SourceProbeDetails {
  readonly clockSkewMs: number | null;
  readonly token: {
    readonly expiresAt: string | null;
    readonly abilities: readonly string[];
    readonly siteIds: readonly number[];
  } | null;
}

/** Sends a request to a server. `by`: connector of a sink, URL of a source, or `postgres` for the database. */
async function probeServer(
  what: "database" | "source" | "sink",
  name: string,
  by: string,
  probe: () => Promise<SourceProbeDetails>,
) {
  const startMs = performance.now();
  const probeOutcome = await probe().then(
    (probeResult) => ({ answers: true, kind: null, reason: null, ...probeResult }),
    (error: unknown) => {
      const { kind } = asFailure(error);
      return { answers: false, kind, reason: errorText(error), clockSkewMs: null, token: null };
    },
  );
  return { what, name, by, milliseconds: Math.round(performance.now() - startMs), ...probeOutcome };
}

function probeSource(name: string, entry: SourceConfigEntry, signal: AbortSignal): Promise<SourceProbeDetails> {
  return useStandaloneSource(name, entry, process.env, async (source) => {
    const { expiresAt, abilities, sites } = await withTimeLimit(
      signal,
      (limitedSignal) => source.me(limitedSignal),
      PROBE_TIMEOUT_MS,
    );
    const siteIds = sites.map(({ id }) => id);
    return { clockSkewMs: source.clockSkewMs(), token: { expiresAt, abilities, siteIds } };
  });
}

async function probeSink(sink: Sink | undefined, signal: AbortSignal): Promise<void> {
  try {
    await withTimeLimit(signal, async (limitedSignal) => sink?.probe?.(limitedSignal), PROBE_TIMEOUT_MS);
  } finally {
    await sink?.close();
  }
}
