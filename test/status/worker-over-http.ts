import { onTestFinished } from "vitest";
import type { Readiness } from "#src/ui/status/health.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { startVirtualWorker, type VirtualWorkerOptions } from "../virtual-worker.ts";

export const MINUTE = 60_000;

/** A worker that follows the simulated service in virtual time until the test ends, and its status server. */
export async function workerOverHttp(options: VirtualWorkerOptions) {
  const virtual = await startVirtualWorker(options);
  onTestFinished(() => virtual.clear());
  const ask = async (path: string, request: RequestInit = {}) => {
    const response = await fetch(`${virtual.worker.statusUrl()}${path}`, request);
    return { status: response.status, text: await response.text() };
  };
  return {
    virtual,
    clock: virtual.clock,
    simulator: virtual.simulator,
    ask,
    metrics: async () => (await ask("/metrics")).text,
    report: async () => JSON.parse((await ask("/api/status")).text) as StatusReport,
    async readyz() {
      const { status, text } = await ask("/readyz");
      return { ...(JSON.parse(text) as Readiness), status };
    },
  };
}
