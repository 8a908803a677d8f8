import PQueue from "p-queue";
import type { ClientMaker } from "./run.ts";

/** The comparison: p-queue's own `strict` limiter, which remembers its starts in memory, by the wall clock. */
export function strictQueueClient(intervalMs: number): ClientMaker {
  return (life) => {
    const queue = new PQueue({ strict: true, intervalCap: 20, interval: intervalMs });
    return {
      async run(lane, send) {
        const verdict = await queue.add(send, { priority: lane === "write" ? 1 : 0 });
        if (verdict.ok || queue.isPaused) return;
        queue.pause();
        await life.clock.sleep((verdict.retryAfterS + 1) * 1000);
        queue.start();
      },
    };
  };
}
