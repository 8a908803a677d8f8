import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { AUDIT_LOG, type AuditRecord, verifyAudit } from "#src/engine/commands/audit/audit.ts";
import { openStore } from "#src/engine/store/open.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { holdBuilding, SITE, tagsOf } from "./rig.ts";

export type ProcessRig = Awaited<ReturnType<typeof createProcessRig>>;

export async function createProcessRig() {
  const simulator = createSimulator(
    {
      sites: [SITE],
      alarms: { recorded: false },
      limits: { tag_endpoints: { limit: 100_000 } },
      faults: [{ match: { endpoints: ["write", "read"] }, fault: { kind: "slow", delay_ms: 20 } }],
    },
    { now: Date.now },
  );
  const server = await startSimulatorServer(simulator);
  const folder = mkdtempSync(join(tmpdir(), "plenum-kill-"));
  const tags = tagsOf(simulator, 20);
  const prepared = await openStore({ folder, clock: systemClock });
  await holdBuilding(prepared, simulator);
  await prepared.close();
  const limits = { type: "number", min: 0, max: 1e6, min_interval: "0s", max_per_day: 1_000_000 };
  const config = {
    enabled: true,
    max_per_hour: 1_000_000,
    group_window: "5ms",
    read_back_after: "10ms",
    allow: tags.map((tag_id) => ({ site_id: SITE, tag_id, ...limits })),
  };
  const children: ChildProcess[] = [];

  return {
    simulator,
    tags,
    async start() {
      const child = spawn(
        process.execPath,
        [join(import.meta.dirname, "worker-child.ts"), folder, server.url, JSON.stringify(config)],
        { stdio: ["pipe", "pipe", "inherit"] },
      );
      children.push(child);
      const acknowledged = new Set<string>();
      const results = new Map<string, string>();
      const ended = once(child, "close");
      child.stdin.on("error", () => undefined);
      await new Promise<void>((resolve, reject) => {
        createInterface({ input: child.stdout }).on("line", (line) => {
          const [word, id = "", outcome = ""] = line.split(" ");
          if (word === "ready") resolve();
          if (word === "ack") acknowledged.add(id);
          if (word === "result") results.set(id, outcome);
        });
        child.once("exit", () => reject(new Error("the child ended before it was ready")));
      });
      return {
        acknowledged: acknowledged as ReadonlySet<string>,
        results: results as ReadonlyMap<string, string>,
        ended,
        say: (line: string) => void child.stdin.write(`${line}\n`),
        async kill(): Promise<void> {
          child.kill("SIGKILL");
          await ended;
        },
      };
    },
    async remains() {
      const store = await openStore({ folder, clock: systemClock });
      const verdict = await verifyAudit(store);
      const audit = (await store.records<AuditRecord>(AUDIT_LOG, 0, 1_000_000)).map((record) => record.body);
      const results = (await store.outbox.latest(1_000_000, ["command-result"])).map(
        ({ event }) => (event as Event<"command-result">).data,
      );
      await store.close();
      return { verdict, audit, results };
    },
    async close(): Promise<void> {
      for (const child of children) child.kill("SIGKILL");
      await server.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export function isEnd(step: string): boolean {
  return !["accepted", "sending", "writing-stopped", "writing-released"].includes(step);
}
