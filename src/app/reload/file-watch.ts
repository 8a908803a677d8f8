import { statSync } from "node:fs";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { loop, within } from "../../core/runtime/waiting.ts";

/** How often the file is looked at, in milliseconds: one question to the system. */
const LOOK_EVERY_MS = 1_000;
/** So long it must have stayed as it is before it is read: an editor may be writing still, in milliseconds. */
const QUIET_MS = 2_000;
/** What is wrong may be put right elsewhere, such as in the file of a secret: it is tried again then, in milliseconds. */
const AGAIN_MS = 30_000;

/**
 * Calls once a file has changed and stays as it is. It asks the system for the file's marks instead of being told of
 * changes: an editor puts another file in its place, a ConfigMap of Kubernetes turns a link two folders above it, and a
 * folder of the network or of another machine tells nobody. A file that is away says nothing. `onQuiet` answers false
 * while what it found is of no use; it is called again then, also when nothing changes.
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
