import { statSync } from "node:fs";
import type { Clock } from "../../core/runtime/clock.ts";
import { createLoopService, type WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { valueOr } from "../../core/values/value-or-fallback.ts";

const FILE_CHECK_INTERVAL_MS = 1_000;
/** A changed file is read after this time without a change, because an editor may still be writing. */
const FILE_STABLE_TIME_MS = 2_000;
/** Retry interval after `onStable` returned false, because the cause may be another file, e.g. a secret. */
const REJECTED_FILE_RETRY_MS = 30_000;

/** Polls a file, because editors replace files and Kubernetes ConfigMaps change links. */
export function watchFile(options: {
  readonly name: string;
  readonly file: string;
  readonly clock: Clock;
  readonly log: Pick<Log, "warn">;
  /** Reads the changed file. If it returns false, the watch calls it again after 30 s. */
  onStable(): Promise<boolean>;
  /** Called once after the file was removed or replaced by a pipe. */
  onMissing?(): Promise<unknown>;
}): WorkerService {
  const { clock, file, log, name } = options;
  let handledVersion: string | null = null;
  let latestVersion: string | null = null;
  let unchangedSinceMs = 0;
  let retryAtMs = Number.POSITIVE_INFINITY;

  async function checkFile(): Promise<number> {
    const nowMs = clock.monotonic();
    const fileVersion = readFileVersion(file);
    if (fileVersion !== latestVersion) {
      latestVersion = fileVersion;
      unchangedSinceMs = nowMs;
    }
    const isFileChanged = fileVersion !== handledVersion && nowMs - unchangedSinceMs >= FILE_STABLE_TIME_MS;
    if (!isFileChanged && (fileVersion === null || nowMs < retryAtMs)) return FILE_CHECK_INTERVAL_MS;
    handledVersion = fileVersion;
    if (fileVersion === null) {
      await options.onMissing?.();
      return FILE_CHECK_INTERVAL_MS;
    }
    retryAtMs = (await options.onStable()) ? Number.POSITIVE_INFINITY : clock.monotonic() + REJECTED_FILE_RETRY_MS;
    return FILE_CHECK_INTERVAL_MS;
  }

  return createLoopService(name, {
    clock,
    alignSleeps: true,
    step: checkFile,
    onFault: (error) => log.warn({ file, err: error }, `the ${name} could not be looked at`),
  });
}

/** Returns a text that changes with the file; null for a missing file and for a pipe, which is readable once. */
function readFileVersion(file: string): string | null {
  return valueOr(() => {
    const fileStats = statSync(file);
    const { ino, size, mtimeMs, ctimeMs } = fileStats;
    return fileStats.isFile() ? `${ino} ${size} ${mtimeMs} ${ctimeMs}` : null;
  }, null);
}
