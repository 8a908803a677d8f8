import type { Clock } from "#src/core/runtime/clock.ts";

/**
 * Virtual time, which only `run` and `advance` move, so that a test runs a day in a second.
 *
 * Sleepers wake in the order of their times, and of their calls where the times are equal. After each one the
 * event loop turns, so that everything that hangs on promises has run before time moves on. Code under test
 * must wait by this clock only; what waits for real input or output (sockets, files) needs `turns` above 1.
 */
export interface VirtualClock extends Clock {
  run(untilMs: number): Promise<void>;
  advance(ms: number): Promise<void>;
  /** Suspends the process as SIGSTOP does: clocks advance, and due sleepers wake at the next `run` or `advance`. */
  suspend(ms: number): void;
  stepWall(ms: number): void;
  woken(): number;
  sleepers(): number;
}

interface Sleeper {
  readonly atMs: number;
  readonly order: number;
  wake: (() => void) | undefined;
}

let machines = 0;

export function createVirtualClock(
  startMs: number,
  options: {
    readonly ticks?: number;
    /** Time does not advance while this returns true, e.g. while a real server has not responded. */
    readonly isWaiting?: () => boolean;
  } = {},
): VirtualClock {
  const { isWaiting = () => false, ticks = 1 } = options;
  const heap: Sleeper[] = [];
  machines += 1;
  const boot = `virtual machine ${machines}`;
  let monotonicMs = 0;
  let wallOffsetMs = startMs;
  let order = 0;
  let sleeperCount = 0;
  let woken = 0;
  const settle = async () => {
    for (let tick = 0; tick < ticks; tick = isWaiting() ? 0 : tick + 1) await eventLoopTick();
  };
  const clock: VirtualClock = {
    now: () => wallOffsetMs + monotonicMs,
    monotonic: () => monotonicMs,
    sinceBoot: () => ({ bootId: boot, ms: monotonicMs }),
    sleep(ms, signal) {
      return new Promise((resolve, reject) => {
        if (signal?.aborted) {
          reject(signal.reason);
          return;
        }
        const abort = () => {
          sleeper.wake = undefined;
          sleeperCount -= 1;
          reject(signal?.reason);
        };
        order += 1;
        sleeperCount += 1;
        const sleeper: Sleeper = {
          atMs: monotonicMs + Math.max(0, ms),
          order,
          wake() {
            signal?.removeEventListener("abort", abort);
            sleeperCount -= 1;
            resolve();
          },
        };
        signal?.addEventListener("abort", abort, { once: true });
        push(heap, sleeper);
      });
    },
    async run(untilMs) {
      await settle();
      for (let next = heap[0]; next !== undefined && next.atMs <= untilMs; next = heap[0]) {
        pop(heap);
        const { wake } = next;
        if (wake === undefined) continue;
        next.wake = undefined;
        monotonicMs = Math.max(monotonicMs, next.atMs);
        woken += 1;
        wake();
        await settle();
      }
      monotonicMs = Math.max(monotonicMs, untilMs);
    },
    advance: (ms) => clock.run(monotonicMs + ms),
    suspend(ms) {
      monotonicMs += ms;
    },
    stepWall(ms) {
      wallOffsetMs += ms;
    },
    woken: () => woken,
    sleepers: () => sleeperCount,
  };
  return clock;
}

/** Every promise that can settle without time has settled when an immediate runs. */
function eventLoopTick(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function before(a: Sleeper, b: Sleeper): boolean {
  return a.atMs === b.atMs ? a.order < b.order : a.atMs < b.atMs;
}

function push(heap: Sleeper[], sleeper: Sleeper): void {
  let index = heap.push(sleeper) - 1;
  while (index > 0) {
    const parentIndex = (index - 1) >> 1;
    const parent = heap[parentIndex];
    if (parent === undefined || !before(sleeper, parent)) break;
    heap[index] = parent;
    index = parentIndex;
  }
  heap[index] = sleeper;
}

function pop(heap: Sleeper[]): void {
  const last = heap.pop();
  if (last === undefined || heap.length === 0) return;
  let index = 0;
  for (;;) {
    const left = heap[2 * index + 1];
    const right = heap[2 * index + 2];
    if (left === undefined) break;
    const smallerIsRight = right !== undefined && before(right, left);
    const smaller = smallerIsRight ? right : left;
    if (!before(smaller, last)) break;
    heap[index] = smaller;
    index = 2 * index + (smallerIsRight ? 2 : 1);
  }
  heap[index] = last;
}
