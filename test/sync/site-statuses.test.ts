import { expect, onTestFinished, test } from "vitest";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";

const MINUTE = 60_000;
const FIRST_STATUSES = ["1 online null", "6 online null"];
const UNAVAILABLE = [{ fault: { kind: "error", status: 500 } }];
const OTHER_ABILITIES = ["read:alarms", "read:gateways", "read:hosts", "read:systems"];
const WITHOUT_ABILITY = "degraded The token may not read values: it lacks read:tags.";

async function startWorker(): Promise<VirtualWorker> {
  const virtual = await startVirtualWorker({
    simulator: { sites: [1, 6] },
    source: { read: [{ name: "all", every: "1m" }] },
  });
  onTestFinished(() => virtual.clear());
  await virtual.clock.advance(3 * MINUTE);
  expect(await statuses(virtual)).toEqual(FIRST_STATUSES);
  return virtual;
}

async function statusEvents(virtual: VirtualWorker) {
  return (await virtual.events()).filter((event) => event.type === "site-status-changed");
}

async function statuses(virtual: VirtualWorker): Promise<readonly string[]> {
  const events = await statusEvents(virtual);
  return events.map(({ siteid, data }) => `${siteid} ${data.status} ${data.reason}`);
}

async function reportOf(virtual: VirtualWorker): Promise<StatusReport> {
  const respond = await fetch(new URL("/api/status", virtual.worker.statusUrl()));
  return (await respond.json()) as StatusReport;
}

async function availabilityOf(virtual: VirtualWorker): Promise<readonly string[]> {
  return (await virtual.events())
    .filter(({ type }) => type === "source-unavailable" || type === "source-available")
    .map(({ type, subject, siteid }) => `${type} ${subject} ${siteid}`);
}

const gatewaysOf = ({ simulator }: VirtualWorker, siteId: number) =>
  [...simulator.world.gateways.values()].filter(({ site_id }) => site_id === siteId).map(({ id }) => id);

test("a site whose gateways go offline one after the other is degraded, then offline, then online", async () => {
  const virtual = await startWorker();
  const siteId = gatewaysOf(virtual, 1).length > 1 ? 1 : 6;
  const [first = 0, ...others] = gatewaysOf(virtual, siteId);
  expect(others.length).toBeGreaterThan(0);
  virtual.simulator.control.setGateway(first, false);
  await virtual.clock.advance(10 * MINUTE);
  for (const id of others) virtual.simulator.control.setGateway(id, false);
  await virtual.clock.advance(10 * MINUTE);
  for (const id of [first, ...others]) virtual.simulator.control.setGateway(id, true);
  await virtual.clock.advance(10 * MINUTE);
  const changes = (await statuses(virtual)).slice(FIRST_STATUSES.length);
  expect(changes).toEqual([
    expect.stringMatching(`^${siteId} degraded 1 of ${others.length + 1} gateways offline: .+\\.$`),
    `${siteId} offline All ${others.length + 1} gateways are offline.`,
    `${siteId} online null`,
  ]);
});

test("every site is reported offline once while the service is unavailable, also after a restart", async () => {
  const virtual = await startWorker();
  virtual.simulator.control.setFaults(UNAVAILABLE);
  await virtual.clock.advance(5 * MINUTE);
  await virtual.restart("crash");
  await virtual.clock.advance(5 * MINUTE);
  virtual.simulator.control.setFaults([]);
  await virtual.clock.advance(5 * MINUTE);
  const changes = (await statuses(virtual)).slice(FIRST_STATUSES.length);
  const reason = "The service is unavailable\\. .+";
  expect(changes).toEqual([
    ...[1, 6].map((id) => expect.stringMatching(`^${id} offline ${reason}`)),
    ...["1 online null", "6 online null"],
  ]);
});

test("a site that the token no longer sees is offline from that moment until the token sees the site again", async () => {
  const virtual = await startWorker();
  virtual.simulator.control.changeToken(SERVICE_TOKEN, { sites: [6] });
  await virtual.clock.advance(5 * MINUTE);
  virtual.simulator.control.changeToken(SERVICE_TOKEN, { sites: [1, 6] });
  await virtual.clock.advance(5 * MINUTE);
  const changes = (await statuses(virtual)).slice(FIRST_STATUSES.length);
  expect(changes).toEqual(["1 offline The token does not see the site.", "1 online null"]);
  const loss = (await virtual.events()).find(({ type }) => type === "source-unavailable");
  const offline = (await statusEvents(virtual)).find(({ data }) => data.status === "offline");
  expect(loss?.data).toMatchObject({ since: offline?.data.since });
});

test("a site is degraded while the token lacks the permission read:tags, also after a restart", async () => {
  const virtual = await startWorker();
  virtual.simulator.control.changeToken(SERVICE_TOKEN, { abilities: OTHER_ABILITIES });
  await virtual.clock.advance(70 * MINUTE);
  await virtual.restart("crash");
  await virtual.clock.advance(5 * MINUTE);
  virtual.simulator.control.changeToken(SERVICE_TOKEN, { abilities: [...OTHER_ABILITIES, "read:tags"] });
  await virtual.clock.advance(70 * MINUTE);
  const degraded = [1, 6].map((id) => `${id} ${WITHOUT_ABILITY}`);
  expect(await statuses(virtual)).toEqual([...FIRST_STATUSES, ...degraded, ...FIRST_STATUSES]);
});

test("a site is degraded while the service fails each request for values, also after an outage and with a new reason", async () => {
  const virtual = await startWorker();
  const { control } = virtual.simulator;
  const readFailure = { match: { endpoints: ["read"] }, fault: { kind: "error", status: 500 } };
  for (const faults of [[readFailure], UNAVAILABLE, [readFailure]]) {
    control.setFaults(faults);
    await virtual.clock.advance(20 * MINUTE);
  }
  control.setFaults([]);
  control.changeToken(SERVICE_TOKEN, { abilities: OTHER_ABILITIES });
  await virtual.clock.advance(70 * MINUTE);
  control.changeToken(SERVICE_TOKEN, { abilities: [...OTHER_ABILITIES, "read:tags"] });
  await virtual.clock.advance(70 * MINUTE);
  const readsFail = "degraded The service does not return values of the site.";
  const offline = expect.stringMatching("offline The service is unavailable\\. ");
  for (const id of [1, 6])
    expect((await statuses(virtual)).flatMap((text) => (text.startsWith(`${id} `) ? text.slice(2) : []))).toEqual([
      ...["online null", readsFail, offline, readsFail, WITHOUT_ABILITY, "online null"],
    ]);
});

test("a site that the token lost during an outage names the token as the reason after the outage", async () => {
  const virtual = await startWorker();
  virtual.simulator.control.setFaults(UNAVAILABLE);
  await virtual.clock.advance(10 * MINUTE);
  virtual.simulator.control.changeToken(SERVICE_TOKEN, { sites: [6] });
  virtual.simulator.control.setFaults([]);
  await virtual.clock.advance(10 * MINUTE);
  const last = (await statuses(virtual)).slice(-2).toSorted();
  expect(last).toEqual(["1 offline The token does not see the site.", "6 online null"]);
});

test("a renamed site is emitted again with its new name", async () => {
  const virtual = await startWorker();
  const site = virtual.simulator.world.sites.get(1);
  Object.assign(site ?? {}, { displayName: "New name" });
  await virtual.clock.advance(10 * MINUTE);
  const last = (await statusEvents(virtual)).at(-1);
  expect(last?.data).toMatchObject({ status: "online", site: { id: 1, displayName: "New name" } });
});

test("emits source-unavailable once within a minute for a site that the token lost, despite a restart, and its return", async () => {
  const virtual = await startWorker();
  expect((await reportOf(virtual)).notices).toEqual([]);
  virtual.simulator.control.changeToken(SERVICE_TOKEN, { sites: [6] });
  await virtual.clock.advance(1.2 * MINUTE);
  expect(await availabilityOf(virtual)).toEqual(["source-unavailable site/1 1"]);
  const report = await reportOf(virtual);
  expect(report.notices).toEqual([
    expect.stringMatching(/^main, site 1, since 2026-06-01T\S+: The token does not see site 1 \(.+\) any more/),
  ]);
  expect(report.sources[0]).toMatchObject({ unavailable: [], setAside: [], leftOut: [] });
  await virtual.restart("crash");
  await virtual.clock.advance(30 * MINUTE);
  expect(await availabilityOf(virtual)).toEqual(["source-unavailable site/1 1"]);
  expect((await reportOf(virtual)).notices).toHaveLength(1);
  virtual.simulator.control.changeToken(SERVICE_TOKEN, { sites: [1, 6] });
  await virtual.clock.advance(6 * MINUTE);
  expect(await availabilityOf(virtual)).toEqual(["source-unavailable site/1 1", "source-available site/1 1"]);
  expect((await reportOf(virtual)).notices).toEqual([]);
});

test("emits source-unavailable for a site that the token lost while the worker was stopped", async () => {
  const virtual = await startWorker();
  virtual.simulator.control.changeToken(SERVICE_TOKEN, { sites: [6] });
  await virtual.restart("crash");
  await virtual.clock.advance(2 * MINUTE);
  expect(await availabilityOf(virtual)).toEqual(["source-unavailable site/1 1"]);
});
