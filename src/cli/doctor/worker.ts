import { createServer } from "node:net";
import type { Config } from "../../app/config/config.ts";
import { sentence } from "../../core/errors/errors.ts";
import { findWorker, requestLog, requestReady, requestReport } from "../../ui/operator/remote.ts";
import type { StatusReport } from "../../ui/status/report.ts";
import { findWorkerFor } from "../shell/find-worker.ts";
import { lookAtStateIfAny } from "../shell/look-at-state.ts";
import { rememberedStatus } from "../shell/remembered-status.ts";

export interface WorkerFacts {
  readonly found: "running" | "silent" | "none" | "unknown";
  /** Why it is silent, or may not be asked; null otherwise. */
  readonly trouble: string | null;
  /** Why it is not ready; null where it is, and where nobody says. */
  readonly notReady: string | null;
  /** The worker's own, or what the state remembers; null where neither says anything. */
  readonly report: StatusReport | null;
  /** The port of the status page that somebody else has, so that no worker can start; null where it is free. */
  readonly portTaken: string | null;
  /** The last lines of its log. */
  readonly log: readonly string[];
}

/** Asks the worker that runs on a state folder; without one, the state. */
export async function lookAtWorker(
  folder: string,
  config: Config | null,
  signal: AbortSignal,
): Promise<WorkerFacts> {
  const nothing = { notReady: null, portTaken: null, log: [] };
  try {
    const found =
      config === null ? await findWorker(folder, signal) : await findWorkerFor({ config }, signal);
    if (found.kind === "open") {
      const { door } = found;
      const [report, notReady, log] = await Promise.all([
        requestReport(door, signal),
        requestReady(door, signal),
        requestLog(door, signal),
      ]);
      return { ...nothing, found: "running", trouble: null, notReady, report, log };
    }
    const trouble = found.kind === "silent" ? sentence(found.trouble) : null;
    const report = await remembered(config);
    return { ...nothing, found: found.kind, trouble, portTaken: await takenPort(config), report };
  } catch (error) {
    signal.throwIfAborted();
    return { ...nothing, found: "unknown", trouble: sentence(error), report: null };
  }
}

async function takenPort(config: Config | null): Promise<string | null> {
  if (config === null || config.status.port === 0) return null;
  const { host, port } = config.status;
  const taken = await new Promise<boolean>((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code === "EADDRINUSE"));
    server.listen(port, host, () => server.close(() => resolve(false)));
  });
  return taken ? `${host}:${port}` : null;
}

/** What the state remembers; null where it cannot be read, which is told with the state. */
async function remembered(config: Config | null): Promise<StatusReport | null> {
  if (config === null) return null;
  try {
    return await lookAtStateIfAny({ config }, (store) => rememberedStatus(store, config));
  } catch {
    return null;
  }
}
