import { afterEach, describe, expect, test } from "vitest";
import { INCIDENT_EVENT_KINDS } from "#connectors/shared/receiver/config.ts";
import { createReceiverSink } from "#connectors/shared/receiver/sink.ts";
import type { AnyEvent } from "#src/core/model/event.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { ReceiverOptions } from "../receiver/receiver-harness.ts";
import { createStub } from "../receiver/receiver-stub.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";

const SECOND = 1_000;
const MINUTE = 60_000;
const RARE_LISTS = { read: [{ name: "all", every: "15m" }], schedules: { gateways: "0 0 1 1 *" } };
let virtual: VirtualWorker;
afterEach(() => virtual.clear());

/** The worker 90 s after its start, and the requests for lists of gateways, by site; by default one every 5 minutes. */
async function started(sites: readonly number[], more: object = {}, delay: (site: string | null) => number = () => 0) {
  const lists: { readonly site: string; readonly atMs: number }[] = [];
  virtual = await startVirtualWorker({
    simulator: { sites: [...sites], alarms: { recorded: false } },
    source: { read: [{ name: "all", every: "30s" }], ...more },
    eventsFolder: null,
    around: (transport, clock) => async (request, signal) => {
      const url = new URL(request.path, "http://127.0.0.1");
      const site = url.searchParams.get("site_id");
      if (url.pathname.endsWith("/gateways") && site !== null) {
        lists.push({ site, atMs: clock.now() });
        await clock.sleep(delay(site), signal);
      }
      return transport(request, signal);
    },
  });
  await virtual.clock.advance(90 * SECOND);
  const gateways = [...virtual.simulator.world.gateways.values()];
  const since = (fromMs: number) => lists.filter(({ atMs }) => atMs >= fromMs).map(({ site }) => Number(site));
  return { ...virtual, gateways, since };
}

const offline = (events: readonly AnyEvent[]) => events.filter(({ type }) => type === "gateway-offline");

describe("the recheck of gateways when values of a site turn null at once", () => {
  test.each([12, 1])(
    "reads the list of gateways within 30 s and emits the offline gateway (site %i)",
    async (siteId) => {
      const { clock, simulator, gateways, since } = await started([siteId, 3]);
      const gateway = gateways.find((each) => each.site_id === siteId);
      const fromMs = clock.now();
      simulator.control.setGateway(gateway?.id ?? 0, false);
      await clock.advance(30 * SECOND);
      const [event] = offline(await virtual.events());
      expect(event?.subject).toBe(`site/${siteId}/gateway/${gateway?.id}`);
      expect(since(fromMs)).toEqual([siteId]);
      await clock.advance(2 * MINUTE + 30 * SECOND);
      expect(since(fromMs)).toEqual([siteId]);
      const respond = await fetch(new URL("/api/status", virtual.worker.statusUrl()));
      expect(((await respond.json()) as StatusReport).notices).toContainEqual(
        expect.stringMatching(
          new RegExp(`^main, site ${siteId}: \\d+ values turned null at once at .*Z and are published as bad`),
        ),
      );
    },
  );

  test("reads no further list of gateways while the gateway is offline", async () => {
    const { clock, simulator, gateways, since } = await started([12], { schedules: RARE_LISTS.schedules });
    simulator.control.setGateway(gateways[0]?.id ?? 0, false);
    const fromMs = clock.now();
    await clock.advance(8 * MINUTE);
    expect(since(fromMs)).toEqual([12]);
    expect(offline(await virtual.events())).toHaveLength(1);
  });

  test("reads one list of gateways in five minutes when values turn null again and again", async () => {
    const { clock, simulator, since } = await started([12], { schedules: RARE_LISTS.schedules });
    const fromMs = clock.now();
    const tags = [...simulator.world.tags.keys()];
    for (let minute = 0; minute < 7; minute++) {
      for (const id of tags) simulator.control.setTag(id, minute % 2 === 0 ? null : 20);
      await clock.advance(MINUTE);
    }
    expect(since(fromMs)).toEqual([12, 12]);
    expect(offline(await virtual.events())).toEqual([]);
  });

  test("keeps its result although a running poll then receives an older list of gateways", async () => {
    let slow = "";
    const { clock, simulator, gateways, since } = await started([9, 12, 13], {}, (site) =>
      site === slow ? 20 * SECOND : 0,
    );
    const fromMs = clock.now();
    slow = "12";
    while (!since(fromMs).includes(12)) await clock.advance(SECOND);
    expect(since(fromMs)).toEqual([9, 12]);
    simulator.control.setGateway(gateways.find(({ site_id }) => site_id === 9)?.id ?? 0, false);
    await clock.advance(2 * MINUTE);
    expect(since(fromMs)).toEqual([9, 12, 9, 13]);
    const events = await virtual.events();
    expect(offline(events)).toHaveLength(1);
    expect(events.filter(({ type }) => type === "gateway-online")).toEqual([]);
  });

  test("reads no list of gateways when gateways are not polled", async () => {
    const { clock, simulator, gateways, since } = await started([12], { schedules: { gateways: false } });
    simulator.control.setGateway(gateways[0]?.id ?? 0, false);
    await clock.advance(2 * MINUTE);
    expect(since(0)).toEqual([]);
  });
});

test("after an outage, a new alarm names the gateway that went offline during the outage", async () => {
  const { clock, simulator, gateways } = await started([12], RARE_LISTS);
  const { control } = simulator;
  control.setFaults([{ fault: { kind: "maintenance", retry_after: 20 } }]);
  await clock.advance(MINUTE);
  control.setGateway(gateways[0]?.id ?? 0, false);
  const id = control.raiseAlarm({ siteId: 12 });
  await clock.advance(MINUTE);
  control.setFaults([]);
  await clock.advance(MINUTE);
  const emitted = (await virtual.events()).filter(
    ({ type }) => type === "source-available" || type === "gateway-offline" || type === "alarm-raised",
  );
  expect(emitted.map(({ type }) => type)).toEqual(["source-available", "gateway-offline", "alarm-raised"]);
  const raised = emitted.find((event) => event.type === "alarm-raised");
  expect(raised?.data).toMatchObject({ alarm: { id }, behindGateway: expect.stringMatching(/./) });
});

test.each([12, 1])(
  "an alarm names the gateway of site %i that went offline 30 s after an earlier alarm of the site",
  async (siteId) => {
    const { clock, simulator, gateways } = await started([siteId], RARE_LISTS);
    const { control } = simulator;
    control.raiseAlarm({ siteId });
    await clock.advance(30 * SECOND);
    for (const { id } of gateways) control.setGateway(id, false);
    control.raiseAlarm({ siteId });
    await clock.advance(MINUTE);
    const raised = (await virtual.events()).filter(({ type }) => type === "alarm-raised");
    expect(raised.map(({ data }) => data)).toMatchObject([
      { behindGateway: null },
      { behindGateway: expect.stringMatching(/./) },
    ]);
  },
);

test("stores the sites whose list of gateways is still unread 5 s after a new alarm, until that list is read", async () => {
  let isSlow = false;
  const { clock, simulator } = await started([2, 3], { read: [] }, () => (isSlow ? 20 * SECOND : 0));
  const pending = async () => [...(await virtual.worker.store.documents("gateway-check/main")).keys()];
  isSlow = true;
  for (const siteId of [2, 3]) simulator.control.raiseAlarm({ siteId });
  while ((await pending()).length === 0) await clock.advance(SECOND);
  expect(await pending()).toEqual(["2", "3"]);
  await clock.advance(20 * SECOND);
  expect(await pending()).toEqual(["3"]);
  await clock.advance(20 * SECOND);
  expect(await pending()).toEqual([]);
});

test("does not hold back the alarms of a site after its list of gateways failed", async () => {
  let isSlow = false;
  const { clock, simulator } = await started([2, 3], { read: [] }, () => (isSlow ? 20 * SECOND : 0));
  simulator.control.setFaults([{ match: { endpoints: ["gateways"] }, fault: { kind: "error", status: 500 } }]);
  simulator.control.raiseAlarm({ siteId: 2 });
  await clock.advance(45 * SECOND);
  isSlow = true;
  simulator.control.raiseAlarm({ siteId: 3 });
  for (let second = 0; second < 45; second += 1) {
    await clock.advance(SECOND);
    expect((await virtual.worker.store.documents("gateway-check/main")).size).toBe(0);
  }
});

async function startWithReceiver(sites: number, latencyMs = 50) {
  const stub = createStub("findable");
  virtual = await startVirtualWorker({
    simulator: { sites: [2], replicate: sites, max_tags: 1, alarms: { recorded: false } },
    source: { read: [] },
    eventsFolder: null,
    way: { thereMs: () => latencyMs },
    sinks: {
      chat: {
        delivery: { filter: { kinds: [...INCIDENT_EVENT_KINDS] } },
        sink: (context) => createReceiverSink(stub, ReceiverOptions.parse({}), context),
      },
    },
  });
  return { ...virtual, stub, kinds: () => stub.incidents.map(({ message }) => message.kind) };
}

// Regular polls of gateways at each fifth minute use most of the list rate.
test.each([
  [20, 50, 60],
  [50, 400, 60.5],
])("when %i sites lose their only gateway at once, sends one message per site", async (sites, latencyMs, minute) => {
  const { stub, clock, kinds, simulator, worker } = await startWithReceiver(sites, latencyMs);
  const { control, world } = simulator;
  await clock.advance(minute * MINUTE);
  const outageMs = clock.now();
  for (const { id } of world.gateways.values()) control.setGateway(id, false);
  const alarms = [...world.sites.keys()].flatMap((siteId) => [1, 2, 3].map(() => control.raiseAlarm({ siteId })));
  await clock.advance(2 * MINUTE);
  const logged = await worker.store.outbox.latest(1_000_000);
  const raised = logged.filter(({ event }) => event.type === "alarm-raised");
  expect(raised).toHaveLength(3 * sites);
  const delaysMs = raised.map(({ committedAt }) => Date.parse(committedAt) - outageMs);
  expect(Math.max(...delaysMs), "other sinks wait for a poll and 5 s for gateways").toBeLessThan(37 * SECOND);
  expect(kinds()).toEqual(Array.from({ length: sites }, () => "gateway"));
  for (const { id } of world.gateways.values()) control.setGateway(id, true);
  for (const id of alarms) control.resolveAlarm(id);
  await clock.advance(15 * MINUTE);
  expect(stub.incidents.filter(({ isOpen }) => isOpen)).toEqual([]);
  expect(kinds(), "alarms that end minutes after the return have no message").toHaveLength(sites);
});

test("sends one message per alarm within 10 s when 20 sites with online gateways have an alarm at once", async () => {
  const { clock, events, kinds, simulator } = await startWithReceiver(20);
  await clock.advance(63 * MINUTE);
  for (const siteId of simulator.world.sites.keys()) simulator.control.raiseAlarm({ siteId });
  while ((await events()).every(({ type }) => type !== "alarm-raised")) await clock.advance(SECOND);
  await clock.advance(10 * SECOND);
  expect(kinds()).toEqual(Array.from({ length: 20 }, () => "alarm"));
});
