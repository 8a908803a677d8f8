import { statSync } from "node:fs";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { loop, within } from "../../core/runtime/waiting.ts";

const LOOK_EVERY_MS = 1_000;
/** Time without a change before the file is read: an editor may still be writing. */
const STABLE_MS = 2_000;
/** Interval of retries while the file is invalid: the cause may be another file, e.g. a secret's. */
const INVALID_RETRY_MS = 30_000;

/** Polls because editors replace files and ConfigMaps change links. Calls `onQuiet` again while it returns false. */
export function watchFile(options: {
  readonly file: string;
  readonly clock: Clock;
  readonly log: Pick<Log, "warn">;
  onQuiet(): Promise<boolean>;
}): Service {
  const { clock, file, log } = options;
  const stopping = new AbortController();
  let running: Promise<void> = Promise.resolve();
  let taken: string | null = null;
  let seen: string | null = null;
  let sinceMs = 0;
  let againAtMs = Number.POSITIVE_INFINITY;

  async function look(): Promise<number> {
    const nowMs = clock.monotonic();
    const version = versionOf(file);
    if (version !== seen) {
      seen = version;
      sinceMs = nowMs;
    }
    const isChanged = version !== taken && nowMs - sinceMs >= STABLE_MS;
    if (version === null || (!isChanged && nowMs < againAtMs)) return LOOK_EVERY_MS;
    taken = version;
    againAtMs = (await options.onQuiet()) ? Number.POSITIVE_INFINITY : clock.monotonic() + INVALID_RETRY_MS;
    return LOOK_EVERY_MS;
  }

  return startedOnce({
    name: "configuration file",
    async start(signal) {
      running = loop({
        clock,
        signal: AbortSignal.any([signal, stopping.signal]),
        looks: true,
        turn: look,
        fault: (error) => log.warn({ file, err: error }, "the configuration file could not be looked at"),
      });
    },
    async stop(deadlineMs) {
      stopping.abort(new Stopping());
      await within(clock, deadlineMs, running);
    },
  });
}

/** Returns null without a file, and for a pipe (`--config <(decrypt it)`), which must not be read again. */
function versionOf(file: string): string | null {
  try {
    const stats = statSync(file);
    const { ino, size, mtimeMs, ctimeMs } = stats;
    return !stats.isFile() ? null : `${ino} ${size} ${mtimeMs} ${ctimeMs}`;
  } catch {
    return null;
  }
}
