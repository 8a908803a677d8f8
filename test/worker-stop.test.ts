import { pino } from "pino";
import { expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { createWorker } from "#src/app/worker.ts";
import { groupServices, orderServices, type WorkerService } from "#src/core/runtime/lifecycle.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { testFolder } from "./test-resources.ts";
import { createVirtualClock } from "./virtual-clock.ts";

const SOURCES = 8;

test("the worker stops eight sources with pending requests within 3 of the allowed 8 s", async () => {
  const folder = testFolder("stop");
  const clock = createVirtualClock(Date.UTC(2026, 5, 1), { ticks: 3 });
  const requestedSources = new Set<string>();
  const names = Array.from({ length: SOURCES }, (_, n) => `building${n}`);
  const worker = await createWorker({
    config: Config.parse({
      state: { folder },
      status: { port: 0 },
      sources: Object.fromEntries(
        names.map((name) => [
          name,
          { base_url: `http://127.0.0.1/${name}`, token: { env: `TOKEN_${name}` }, time_zone: "Europe/Oslo" },
        ]),
      ),
      sinks: {},
    }),
    environment: Object.fromEntries(names.map((name) => [`TOKEN_${name}`, "simulator-token"])),
    clock,
    log: createLog({ level: "silent" }),
    transport: (request, signal) => {
      requestedSources.add(request.path.split("/")[1] ?? "");
      return clock.sleep(1e9, signal).then(() => Promise.reject(new Error("never")));
    },
  });
  await worker.start();
  await clock.advance(10_000);
  expect(requestedSources.size).toBe(SOURCES);
  const startMs = clock.monotonic();
  const stopping = worker.stop(8_000);
  await clock.advance(3_000);
  // The time no longer advances, so a stop that waits never ends.
  await stopping;
  expect(clock.monotonic() - startMs).toBe(3_000);
});

test("parallel services stop at the same time, also when one of them fails", async () => {
  const clock = createVirtualClock(0);
  const failedServices: string[] = [];
  const log = pino({ base: null }, { write: (line: string) => void failedServices.push(JSON.parse(line).service) });
  const calls: string[] = [];
  const service = (name: string, stop: (deadlineMs: number) => Promise<void>): WorkerService => ({
    name,
    start: async () => void calls.push(`start ${name}`),
    stop: async (deadlineMs) => {
      calls.push(`stop ${name} ${deadlineMs}`);
      await stop(deadlineMs);
    },
  });
  const failing = service("a", async () => {
    throw new Error("a socket was gone");
  });
  const slow = service("b", (deadlineMs) => clock.sleep(deadlineMs));
  const last = service("c", async () => undefined);
  const all = orderServices([{ service: groupServices("sources", [failing, slow, last], log), stopTimeShare: 0.5 }], {
    clock,
    log,
  });
  await all.start(new AbortController().signal);
  const stopping = all.stop(1_000);
  expect(calls).toEqual(["start a", "start b", "start c", "stop a 500", "stop b 500", "stop c 500"]);
  await clock.advance(500);
  await stopping;
  expect(failedServices).toEqual(["a"]);
});
