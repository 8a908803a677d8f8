import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createSource } from "#src/engine/source/client.ts";
import { createQuota } from "#src/engine/source/quota/quota.ts";
import type { Source } from "#src/engine/source/source.ts";
import { closeAfterTest } from "../test-resources.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";
import { createVolatileStore, START_MS, usedBefore, type VolatileStore } from "./quota-harness.ts";
import { errorOf, never, reply, TOKEN, testConfig } from "./source-harness.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const MONTH_S = 30 * 86_400;

interface Rig {
  readonly clock: VirtualClock;
  readonly source: Source;
  readonly sent: { readonly path: string; readonly method: string; readonly atMs: number }[];
  readonly memory: VolatileStore;
  service: { refusal: (() => ReturnType<typeof reply>) | null; healthy: boolean };
}

function openHarness(memory = usedBefore(createVolatileStore(), "trial"), clock = createVirtualClock(START_MS)): Rig {
  const sent: Rig["sent"] = [];
  const service: Rig["service"] = { refusal: null, healthy: true };
  const source = createSource({
    name: "trial",
    config: testConfig("https://service.example"),
    limiter: createQuota({ source: "trial", clock, store: memory }),
    clock,
    metrics: createMetrics(),
    log: pino({ level: "silent" }),
    async transport({ path, method }) {
      sent.push({ path: path.split("?")[0] ?? "", method, atMs: clock.monotonic() });
      await clock.sleep(50);
      if (path.endsWith("/healthcheck"))
        return reply(service.healthy ? 200 : 503, { status: service.healthy ? "healthy" : "unhealthy" });
      if (service.refusal !== null) return service.refusal();
      const value = { type: "tags", id: "1", attributes: { display_name: "T" }, value: 1 };
      const around = { links: { next: null }, meta: { total: 0, current_page: 1, last_page: 1, per_page: 100 } };
      return reply(200, path.includes("/tags/") ? { data: [value] } : { data: [], ...around });
    },
    environment: { PLENUM_TOKEN: TOKEN },
    random: () => 0.5,
  });
  closeAfterTest(source);
  return { clock, source, sent, memory, service };
}

function listing({ clock, source }: Rig): number[] {
  const times: number[] = [];
  void (async () => {
    for (;;) {
      try {
        for await (const _page of source.alarms({ status: "active" }, never())) times.push(clock.monotonic());
      } catch {
        // The poll repeats a refused list.
      }
      await clock.sleep(30_000);
    }
  })();
  return times;
}

const maintenance = () => reply(503, { errors: [{ status: 503 }] }, { "retry-after": String(MONTH_S) });
const tooMany = () => reply(429, { errors: [{ status: 429, meta: { retry_after: MONTH_S } }] });
const asked = ({ sent }: Rig, pattern: RegExp) => sent.filter(({ path }) => pattern.test(path)).map(({ atMs }) => atMs);

describe.each([
  ["a 503 with a wait of 30 days", maintenance],
  ["a 429 of a list with a wait of 30 days", tooMany],
])("a pause of 30 days: %s", (_name, refusal) => {
  test("ends within three minutes after the health check succeeds, and alarms are polled again", async () => {
    const harness = openHarness();
    harness.service.refusal = refusal;
    harness.service.healthy = false;
    const times = listing(harness);
    await harness.clock.advance(20 * MINUTE);
    expect(asked(harness, /alarms/)).toHaveLength(1);
    expect(asked(harness, /healthcheck/).length).toBeLessThanOrEqual(20);
    harness.service.refusal = null;
    harness.service.healthy = true;
    await harness.clock.advance(3 * MINUTE);
    expect(times.length).toBeGreaterThan(0);
    await harness.clock.advance(5 * MINUTE);
    expect(times.length).toBeGreaterThan(8);
    const health = asked(harness, /healthcheck/).length;
    await harness.clock.advance(HOUR);
    expect(asked(harness, /healthcheck/)).toHaveLength(health);
  });

  test("permits another trial request 5, 10 and 20 minutes after refused trial requests", async () => {
    const harness = openHarness();
    harness.service.refusal = refusal;
    listing(harness);
    await harness.clock.advance(50 * MINUTE);
    const times = asked(harness, /alarms/);
    const gaps = times.slice(1).map((atMs, index) => (atMs - (times[index] ?? 0)) / MINUTE);
    expect(gaps.map(Math.round)).toEqual([2, 5, 10, 20]);
  });

  test("permits no trial request while healthy and unhealthy responses of the health check alternate", async () => {
    const harness = openHarness();
    harness.service.refusal = refusal;
    listing(harness);
    for (let minute = 0; minute < 30; minute += 1) {
      harness.service.healthy = minute % 2 === 0;
      await harness.clock.advance(MINUTE);
    }
    expect(asked(harness, /alarms/)).toHaveLength(1);
  });
});

test("after a 503 without a wait, the list continues after one successful health check", async () => {
  const harness = openHarness();
  harness.service.refusal = () => reply(503, { errors: [{ status: 503 }] });
  harness.service.healthy = false;
  const times = listing(harness);
  await harness.clock.advance(20 * MINUTE);
  const refused = asked(harness, /alarms/).length;
  harness.service.healthy = true;
  await harness.clock.advance(61_000);
  expect(asked(harness, /alarms/)).toHaveLength(refused + 1);
  await harness.clock.advance(4 * MINUTE);
  expect(asked(harness, /alarms/)).toHaveLength(refused + 1);
  harness.service.refusal = null;
  await harness.clock.advance(2 * MINUTE);
  expect(times.length).toBeGreaterThan(0);
});

describe("a 429 of the tag endpoints with a wait of 30 days", () => {
  test("is followed by a read as a trial request; a waiting write is sent only after that request", async () => {
    const harness = openHarness();
    const { clock, source, sent, service } = harness;
    service.refusal = tooMany;
    const refused = errorOf(source.read(["1"], "live", never()));
    await clock.advance(1_000);
    await refused;
    const write = source.write(async () => [{ tagId: "1", value: 1 }], never());
    await clock.advance(10 * MINUTE);
    expect(sent.filter(({ method }) => method === "POST")).toEqual([]);
    service.refusal = null;
    const read = source.read(["1"], "live", never());
    await clock.advance(MINUTE);
    await Promise.all([read, write]);
    const [trialRead, firstWrite] = sent.filter(({ path }) => path.includes("/tags/")).slice(1);
    expect(trialRead?.path).toMatch(/read/);
    expect(firstWrite?.method).toBe("POST");
    expect(firstWrite?.atMs).toBeGreaterThanOrEqual((trialRead?.atMs ?? 0) + 50);
  });

  test("a pause of 30 days also ends by a trial request after a restart", async () => {
    const before = openHarness();
    before.service.refusal = tooMany;
    const refused = errorOf(before.source.read(["1"], "live", never()));
    await before.clock.advance(1_000);
    await refused;
    await before.source.close();
    const after = openHarness(before.memory, before.clock);
    const read = after.source.read(["1"], "live", never());
    listing(after);
    await after.clock.advance(4 * MINUTE);
    expect(asked(after, /tags\/read/)).toHaveLength(1);
    await read;
    expect(after.source.quota().buckets.map(({ heldUntilMs }) => heldUntilMs)).toEqual([null]);
  });
});
