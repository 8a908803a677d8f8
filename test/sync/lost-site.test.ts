import { expect, onTestFinished, test } from "vitest";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";

const MINUTE = 60_000;

async function started(): Promise<VirtualWorker> {
  const virtual = await startVirtualWorker({
    simulator: { sites: [1, 6] },
    source: { read: [{ name: "all", every: "1m" }] },
  });
  onTestFinished(() => virtual.clear());
  await virtual.clock.advance(5 * MINUTE);
  return virtual;
}

async function reportOf(virtual: VirtualWorker): Promise<StatusReport> {
  const answer = await fetch(new URL("/api/status", virtual.worker.statusUrl()));
  return (await answer.json()) as StatusReport;
}

async function told(virtual: VirtualWorker): Promise<readonly string[]> {
  return (await virtual.events())
    .filter(({ type }) => type === "source-unavailable" || type === "source-available")
    .map(({ type, subject, siteid }) => `${type} ${subject} ${siteid}`);
}

test("emits source-unavailable once within a minute for a site that the token lost, despite a restart, and its return", async () => {
  const virtual = await started();
  expect((await reportOf(virtual)).notices).toEqual([]);
  virtual.simulator.control.changeToken(SERVICE_TOKEN, { sites: [6] });
  await virtual.clock.advance(1.2 * MINUTE);
  expect(await told(virtual)).toEqual(["source-unavailable site/1 1"]);
  const report = await reportOf(virtual);
  expect(report.notices).toEqual([
    expect.stringMatching(/^main, site 1, since 2026-06-01T\S+: The token does not see site 1 \(.+\) any more/),
  ]);
  expect(report.sources[0]).toMatchObject({ unavailable: [], setAside: [], leftOut: [] });
  await virtual.restart("crash");
  await virtual.clock.advance(30 * MINUTE);
  expect(await told(virtual)).toEqual(["source-unavailable site/1 1"]);
  expect((await reportOf(virtual)).notices).toHaveLength(1);
  virtual.simulator.control.changeToken(SERVICE_TOKEN, { sites: [1, 6] });
  await virtual.clock.advance(6 * MINUTE);
  expect(await told(virtual)).toEqual(["source-unavailable site/1 1", "source-available site/1 1"]);
  expect((await reportOf(virtual)).notices).toEqual([]);
});

test("emits source-unavailable for a site that the token lost while the worker was stopped", async () => {
  const virtual = await started();
  virtual.simulator.control.changeToken(SERVICE_TOKEN, { sites: [6] });
  await virtual.restart("crash");
  await virtual.clock.advance(2 * MINUTE);
  expect(await told(virtual)).toEqual(["source-unavailable site/1 1"]);
});
