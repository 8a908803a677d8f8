import { connectAsync } from "mqtt";
import { describe, expect, onTestFinished, test } from "vitest";
import { CONNECTORS } from "#connectors/catalog.ts";
import type { ConnectorContext, Sink } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { createEventDispatcher } from "#src/engine/delivery/dispatcher.ts";
import { openStore } from "#src/engine/store/open.ts";
import { contextFor } from "../connectors/context.ts";
import { startCuttingProxy } from "../connectors/mqtt/cutting-proxy.ts";
import { absent, type RealServer, startInflux, startMosquitto, startVictoriaMetrics } from "../real-servers.ts";
import { valueEvent } from "../sample-events.ts";
import { closeAfterTest, stopAfterTest, testFolder } from "../test-resources.ts";

const { influxdb, mqtt } = CONNECTORS;
const COUNT = 50;

type Delivering = Awaited<ReturnType<typeof delivering>>;

const tagged = (n: number) => valueEvent(n, String(20_000 + n));

async function delivering(make: (context: ConnectorContext) => Sink | Promise<Sink>) {
  const store = closeAfterTest(await openStore({ folder: testFolder("restarted"), clock: systemClock }));
  const { log, metrics, ...context } = contextFor("far", systemClock, store);
  const sink = await make({ ...context, log, metrics });
  const delivery = DeliveryConfig.parse({ from: "beginning", retry: { first: "20ms", max: "100ms" } });
  const dispatcher = createEventDispatcher({
    sinks: [{ name: "far", connector: "real", sink, delivery }],
    ...{ outbox: store.outbox, store, clock: systemClock, log, metrics, building: context.building },
  });
  onTestFinished(() => dispatcher.stop(1_000));
  await dispatcher.start(new AbortController().signal);
  const open = async () => {
    const [lag] = await store.outbox.lag();
    return lag === undefined ? -1 : lag.depth + lag.again;
  };
  return {
    store,
    dispatcher,
    /** Commits values and waits until the server has acknowledged all. */
    async deliver(from: number, count: number): Promise<readonly Event[]> {
      const events = Array.from({ length: count }, (_, n) => tagged(from + n));
      await store.commit({ events });
      await expect.poll(open).toBe(0);
      return events;
    },
  };
}

async function server(start: () => Promise<RealServer>): Promise<RealServer> {
  return stopAfterTest(await start());
}

async function killedAndBack(far: RealServer, { store }: Delivering, next: Event): Promise<void> {
  await far.kill();
  await store.commit({ events: [next] });
  // Start times are whole seconds.
  const second = () => Math.floor(Date.now() / 1_000);
  const killedIn = second();
  await expect.poll(second).toBeGreaterThan(killedIn);
  await far.startAgain();
}

describe.skipIf(absent("victoria-metrics"))("VictoriaMetrics", () => {
  test("receives acknowledged events again that the server lost when it was killed", async () => {
    const far = await server(startVictoriaMetrics);
    const { url } = far;
    const delivery = await delivering((context) => influxdb.sink(influxdb.Config.parse({ url, bucket: "b" }), context));
    await delivery.deliver(0, COUNT);
    await killedAndBack(far, delivery, tagged(COUNT));
    await expect.poll(() => pointsIn(url)).toBe(COUNT + 1);
    expect(delivery.dispatcher.notices()).toEqual([expect.stringContaining("was restarted")]);
  });
});

async function pointsIn(url: string): Promise<number> {
  await fetch(`${url}/internal/force_flush`);
  const response = await fetch(`${url}/api/v1/export?match[]={__name__=~"tag_value.*value"}`);
  const lines = (await response.text()).trim().split("\n");
  const times = lines.flatMap((line) => (line === "" ? [] : (JSON.parse(line) as Exported).timestamps));
  return new Set(times).size;
}

interface Exported {
  readonly timestamps: readonly number[];
}

describe.skipIf(absent("influxd"))("InfluxDB 1.x", () => {
  test("receives recent events again after a restart, although it lost no data", async () => {
    const far = await server(startInflux);
    const { url } = far;
    const settings = { url, api: "v1", database: "d", create_database: true };
    const delivery = await delivering((context) => influxdb.sink(influxdb.Config.parse(settings), context));
    await delivery.deliver(0, 3);
    await killedAndBack(far, delivery, tagged(3));
    await expect.poll(() => delivery.dispatcher.notices()).toHaveLength(1);
  });
});

describe.skipIf(absent("mosquitto"))("Mosquitto", () => {
  const sinkAt =
    ({ url }: { readonly url: string }, aheadMs = () => 0) =>
    (context: ConnectorContext) =>
      mqtt.sink(mqtt.Config.parse({ url }), {
        ...context,
        clock: {
          ...systemClock,
          now: () => systemClock.now() + aheadMs(),
          sinceBoot: () => ({ bootId: "9f0e1d2c", ms: systemClock.monotonic() + aheadMs() }),
        },
      });

  test("receives acknowledged events again after a kill without persistence", async () => {
    const far = await server(startMosquitto);
    const delivery = await delivering(sinkAt(far));
    const events = await delivery.deliver(0, COUNT);
    expect((await kept(far)).size).toBe(COUNT);
    await killedAndBack(far, delivery, tagged(COUNT));
    await expect.poll(async () => (await kept(far)).size).toBe(COUNT + 1);
    expect(delivery.dispatcher.notices()).toEqual([expect.stringContaining(`are sent again: ${events.length} events`)]);
  });

  test("resumes the session with persistence, and receives the events again that were lost after the last save", async () => {
    const far = await server(() =>
      startMosquitto({
        lines: (port, folder) => [
          `listener ${port} 127.0.0.1`,
          "allow_anonymous true",
          "persistence true",
          `persistence_location ${folder}/`,
          "sys_interval 1",
        ],
      }),
    );
    let aheadMs = 0;
    const delivery = await delivering(sinkAt(far, () => aheadMs));
    await delivery.deliver(0, 1);
    // The broker saves the session at its end, as the half-hourly save does before a crash.
    await far.end();
    await far.startAgain();
    await delivery.deliver(1, COUNT);
    expect(delivery.dispatcher.notices()).toEqual([]);
    // A restart cannot be detected from the uptime of a broker that has just started.
    aheadMs = 60_000;
    await killedAndBack(far, delivery, tagged(COUNT + 1));
    await expect.poll(async () => (await kept(far)).size).toBe(COUNT + 2);
    expect(delivery.dispatcher.notices()).toHaveLength(1);
  });

  test("receives no event again after a lost connection without a restart", async () => {
    const far = await server(startMosquitto);
    const cuts = [8_000, 8_000];
    const proxy = closeAfterTest(await startCuttingProxy(far.port, () => cuts.shift() ?? null));
    const delivery = await delivering(sinkAt({ url: `mqtt://127.0.0.1:${proxy.port}` }));
    await delivery.deliver(0, COUNT);
    expect(proxy.cuts).toBeGreaterThan(0);
    expect((await kept(far)).size).toBe(COUNT);
    expect(delivery.dispatcher.notices()).toEqual([]);
  });
});

async function kept({ url }: RealServer): Promise<ReadonlySet<string>> {
  const topics = new Set<string>();
  const client = await connectAsync(url, { protocolVersion: 5, reconnectPeriod: 0 });
  client.on("message", (topic) => topics.add(topic));
  await client.subscribeAsync("plenum/+/+/tag/+/value", { qos: 0 });
  // The broker sends stored messages before it acknowledges this one; with QoS 1 only the first 20.
  await client.publishAsync("test/after", "", { qos: 1 });
  await client.endAsync();
  return topics;
}
