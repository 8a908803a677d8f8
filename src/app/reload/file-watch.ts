import { statSync } from "node:fs";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { loop, within } from "../../core/runtime/waiting.ts";

/** How often the file is looked at, in milliseconds: one question to the system. */
const LOOK_EVERY_MS = 1_000;
/** So long it must have stayed as it is before it is read: an editor may be writing still, in milliseconds. */
const QUIET_MS = 2_000;
/** Interval of retries while the file is invalid, in milliseconds: the cause may be another file, e.g. a secret's. */
const AGAIN_MS = 30_000;

/**
 * Calls once after a file has changed and is stable. Polls the file's attributes instead of using notifications: editors replace
 * files, a Kubernetes ConfigMap changes a link two folders above, and network folders send no notifications. A missing file is
 * ignored. While `onQuiet` returns false, it is called again, even without a change.
 */
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
    const mark = markOf(file);
    if (mark !== seen) {
      seen = mark;
      sinceMs = nowMs;
    }
    const isChanged = mark !== taken && nowMs - sinceMs >= QUIET_MS;
    if (mark === null || (!isChanged && nowMs < againAtMs)) return LOOK_EVERY_MS;
    taken = mark;
    againAtMs = (await options.onQuiet()) ? Number.POSITIVE_INFINITY : clock.monotonic() + AGAIN_MS;
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

/**
 * Tells apart the versions of the file that a name leads to; null while there is none. A pipe (`--config <(decrypt it)`)
 * was read at the start and has nothing more to say; to read it again could wait for ever.
 */
function markOf(file: string): string | null {
  try {
    const marks = statSync(file);
    if (!marks.isFile()) return null;
    const { ino, size, mtimeMs, ctimeMs } = marks;
    return `${ino} ${size} ${mtimeMs} ${ctimeMs}`;
  } catch {
    return null;
  }
}
