import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { ACCEPTED, type ConnectorContext, type Offered, type Sink } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { bytesOf, type FileConfig } from "./config.ts";
import { dayLines } from "./day-lines.ts";
import { folderOf } from "./layout.ts";
import { createParts } from "./parts.ts";
import { meaning } from "./trouble.ts";
import { writable } from "./writable.ts";

/** Events of one write at most; each gives a file one line at most, so a crash leaves no more of them in doubt. */
const MAX_BATCH = 1_000;

/** Files that are finished in one go, so that events need not wait for the hundreds that a backfill leaves. */
const FINISHED_AT_ONCE = 20;

/** Lines in folders by kind, site and the day of the event. Accepted means: the line is on disk. */
export function createPartitionedSink(config: FileConfig, path: string, context: ConnectorContext): Sink {
  const { clock } = context;
  const root = resolve(config.folder);
  const parts = createParts({
    root,
    name: config.name,
    gzip: config.gzip,
    mode: Number.parseInt(config.mode, 8),
    maxBytes: bytesOf(config.max_file_mb),
    maxLines: MAX_BATCH,
  });
  let isReady = false;

  async function ready(signal: AbortSignal): Promise<void> {
    if (isReady) return;
    await mkdir(root, { recursive: true, mode: 0o750 });
    await parts.recover(signal);
    isReady = true;
  }

  /** After a failure nothing is assumed about the files: they are looked through, and others begun. */
  async function attempt<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    try {
      return await work();
    } catch (error) {
      isReady = false;
      throw signal.aborted ? signal.reason : meaning(error, root);
    }
  }

  function textsOf(batch: readonly Event[], sequences: Offered["sequences"]): ReadonlyMap<string, Buffer> {
    const texts = new Map<string, string[]>();
    for (const [index, event] of batch.entries()) {
      for (const { date, texts: line } of dayLines(event, sequences?.[index])) {
        const folder = folderOf(path, { kind: event.type, site: event.siteid ?? null, date });
        const lines = texts.get(folder) ?? [];
        lines.push(...line, "\n");
        texts.set(folder, lines);
      }
    }
    return new Map([...texts].map(([folder, lines]) => [folder, Buffer.from(lines.join(""))]));
  }

  return {
    maxBatch: MAX_BATCH,
    oneOrder: true,

    open: (signal) => attempt(signal, () => ready(signal)),

    write: (batch, signal, _accepted, offer) =>
      attempt(signal, async () => {
        await ready(signal);
        const now = { wallMs: clock.now(), monotonicMs: clock.monotonic() };
        await parts.write(textsOf(batch, offer?.sequences), now, signal);
        return ACCEPTED;
      }),

    tick: (signal) =>
      attempt(signal, async () => {
        await ready(signal);
        return {
          inMs: await parts.finishOlder(config.finish_after, clock.monotonic(), FINISHED_AT_ONCE, signal),
        };
      }),

    close: () => parts.close(),

    async probe() {
      try {
        await writable(root);
      } catch (error) {
        throw meaning(error, root);
      }
    },
  };
}
