import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterEach, expect, test } from "vitest";
import { systemClock } from "#src/clock.ts";
import { AUDIT_LOG, type AuditRecord, verifyAudit } from "#src/commands/audit.ts";
import type { CommandResult, Event } from "#src/event.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { openStore } from "#src/store/open.ts";
import { holdBuilding, SITE, tagsOf } from "./rig.ts";

/** kill -9 at every step between the arrival of a command and its result: never two POSTs for one id. */
const closing: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

const ROUNDS = Number(process.env.PLENUM_KILL_ROUNDS ?? 2);
const STEPS = [
  ["accepted", "before"],
  ["accepted", "after"],
  ["sending", "before"],
  ["sending", "after"],
  ["post", "before"],
  ["post", "during"],
  ["post", "after"],
  ["read", "before"],
  ["read", "during"],
  ["read", "after"],
  ["end", "before"],
  ["end", "after"],
] as const;

interface Child {
  readonly process: ChildProcess;
  readonly acknowledged: ReadonlySet<string>;
  readonly results: ReadonlyMap<string, string>;
  say(line: string): void;
  readonly ended: Promise<unknown>;
}

async function startChild(folder: string, url: string, config: object): Promise<Child> {
  const child = spawn(
    process.execPath,
    [join(import.meta.dirname, "worker-child.ts"), folder, url, JSON.stringify(config)],
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  const acknowledged = new Set<string>();
  const results = new Map<string, string>();
  const ended = once(child, "close");
  closing.push(() => void child.kill("SIGKILL"));
  await new Promise<void>((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const [word, id = "", outcome = ""] = line.split(" ");
      if (word === "ready") resolve();
      if (word === "ack") acknowledged.add(id);
      if (word === "result") results.set(id, outcome);
    });
    child.once("exit", () => reject(new Error("the child ended before it was ready")));
  });
  child.stdin.on("error", () => undefined);
  return { process: child, acknowledged, results, ended, say: (line) => void child.stdin.write(`${line}\n`) };
}

test(
  `each of ${STEPS.length} steps, ${ROUNDS} times`,
  async () => {
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
    closing.push(() => server.close());
    const folder = mkdtempSync(join(tmpdir(), "plenum-kill-"));
    closing.push(() => rmSync(folder, { recursive: true, force: true }));
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

    /** Each command writes a value of its own, by which the service's record knows it. */
    const ids: string[] = [];
    const acknowledged = new Set<string>();
    let child = await startChild(folder, server.url, config);
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const [step, moment] of STEPS) {
        child.say(`kill ${step} ${moment}`);
        const number = ids.length + 1;
        const id = `${number}-${step}-${moment}`;
        ids.push(id);
        child.say(JSON.stringify({ id, tag: tags[number % tags.length], value: 1000 + number }));
        await child.ended;
        for (const each of child.acknowledged) acknowledged.add(each);
        child = await startChild(folder, server.url, config);
        if (acknowledged.has(id)) {
          await expect.poll(() => child.results.has(id), { timeout: 15_000 }).toBe(true);
        }
      }
    }
    await expect
      .poll(() => [...acknowledged].filter((id) => !child.results.has(id)), { timeout: 15_000 })
      .toEqual([]);
    child.process.kill("SIGKILL");
    await child.ended;

    const writes = simulator.truth.writes();
    const store = await openStore({ folder, clock: systemClock });
    closing.push(() => store.close());
    const results = (await store.outbox.latest(100_000, ["command-result"])).map(
      ({ event }) => (event as Event<"command-result">).data,
    );
    const audit = (await store.records<AuditRecord>(AUDIT_LOG, 0, 100_000)).map((record) => record.body);
    expect(await verifyAudit(store)).toMatchObject({ brokenAt: null });
    for (const [index, id] of ids.entries()) {
      const posts = writes.filter((write) => write.value === 1001 + index);
      expect(posts.length, `POSTs of ${id}`).toBeLessThanOrEqual(1);
      const told = results.filter((result) => result.commandId === id);
      if (acknowledged.has(id)) expect(told.length, `results of ${id}`).toBe(1);
      expect(told.length, `results of ${id}`).toBeLessThanOrEqual(1);
      const steps = audit.filter((record) => record.commandId === id).map((record) => record.step);
      if (posts.length > 0) expect(steps, id).toContain("sending");
      expect(told.map((result: CommandResult) => result.outcome)).toEqual(steps.slice(-1).filter(isEnd));
      const isUnsent = told[0]?.outcome === "expired";
      if (isUnsent) expect(posts, `${id} was told as expired`).toEqual([]);
      if (told[0]?.outcome === "confirmed") expect(posts, `${id} was told as confirmed`).toHaveLength(1);
    }
    const outcomes = new Set(results.map((result) => result.outcome));
    expect([...outcomes].toSorted()).toEqual(["confirmed", "expired", "mismatch"]);
  },
  ROUNDS * 60_000,
);

function isEnd(step: string): boolean {
  return step !== "accepted" && step !== "sending";
}
