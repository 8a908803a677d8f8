import { describe, expect, test } from "vitest";
import type { WorkerService } from "#src/core/runtime/lifecycle.ts";
import { yieldToEventLoop } from "#src/core/runtime/waiting.ts";
import { ticksUntil } from "../effort.ts";

export interface ServiceUnderTest {
  readonly service: WorkerService;
  /** Throws when something still runs after the stop. */
  quiet?(): void | Promise<void>;
  dispose?(): Promise<void>;
}

/** Ticks of 100 ms that a start or stop may take. */
const PROMPT_TICKS = 50;
const CALLERS = 10;
const ROUNDS = 20;

/**
 * The contract of start and stop: many callers in every order; nothing hangs, throws, or continues after the last stop.
 */
export function describeService(name: string, make: () => Promise<ServiceUnderTest>): void {
  async function checkService(work: (service: WorkerService) => Promise<unknown>): Promise<void> {
    const testedService = await make();
    try {
      await promptly(work(testedService.service));
      await promptly(testedService.service.stop(1_000));
      await testedService.quiet?.();
    } finally {
      await testedService.dispose?.();
    }
  }

  describe(`${name}: start and stop`, () => {
    test("allows a stop without a start, and a second stop", async () => {
      await checkService(async (service) => {
        await service.stop(1_000);
        await service.stop(0);
      });
    });

    test("leaves no work running when a start follows a stop", async () => {
      await checkService(async (service) => {
        await service.stop(1_000);
        await service.start(new AbortController().signal);
      });
    });

    test("stops right after a start with a deadline of 0 ms", async () => {
      await checkService(async (service) => {
        const startEnded = service.start(new AbortController().signal);
        await service.stop(0);
        await startEnded;
      });
    });

    test("leaves no work running when the signal aborts before or after the start", async () => {
      await checkService((service) => service.start(AbortSignal.abort()));
      await checkService(async (service) => {
        const abort = new AbortController();
        await service.start(abort.signal);
        abort.abort();
      });
    });

    test(`leaves no work running when ${CALLERS} callers start and stop at once`, async () => {
      for (let round = 0; round < ROUNDS; round += 1) {
        await checkService((service) =>
          Promise.all(
            Array.from({ length: CALLERS }, async (_, caller) => {
              for (let tick = 0; tick < (round + caller) % 4; tick += 1) await yieldToEventLoop();
              if ((round + caller) % 3 === 0) await service.stop(1_000);
              else await service.start(new AbortController().signal);
            }),
          ),
        );
      }
    });
  });
}

async function promptly(work: Promise<unknown>): Promise<void> {
  expect(await ticksUntil(work)).toBeLessThan(PROMPT_TICKS);
}
