import { setTimeout as pass } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { createSocketSourceReader, findWorker } from "#src/ui/operator/control-socket-client.ts";
import { connectTo } from "../query-postgres.ts";
import { createFleet, describeWithServers, type Harness } from "./fleet-harness.ts";
import { startMemberProxy } from "./member-proxy.ts";

const SOURCE = "north";
/** Longer than the maximum delay of a request, and shorter than the lease. */
const HELD_UP_MS = 3_500;
const LEAVES_WITHIN_MS = 2_500;

function observeStage(harness: Harness) {
  const { simulator, tags } = harness.service(SOURCE);
  return {
    requests: (endpoint: string) => simulator.truth.requests().filter((request) => request.endpoint === endpoint),
    /** Recorded times of the spent history slots. */
    async slots(): Promise<readonly number[]> {
      const rows = await harness.query(`select sent_ms from quota where bucket = '${SOURCE}/history'`);
      return rows.map(([ms]) => Number(ms));
    },
    /** Requests history from the process of the member. */
    async requestHistory(): Promise<string> {
      const found = await findWorker(`${harness.folder}/state/a`, AbortSignal.timeout(60_000));
      if (found.kind !== "open") throw new Error(`The control socket is ${found.kind}.`);
      const [from, to] = ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"];
      const query = { tagIds: tags.slice(0, 1), resolution: "5m", from, to, timeZone: "UTC" };
      const reader = createSocketSourceReader(found.socket, SOURCE);
      return reader.history(query as never, "on-demand", AbortSignal.timeout(60_000)).then(() => "answered", String);
    },
  };
}

describeWithServers("a request to the service", () => {
  test("a request to the service is not sent after its process was suspended, and the next request is sent", async () => {
    const ways = await startMemberProxy();
    const harness = await createFleet({ sources: [SOURCE], proxy: ways.url });
    const { requests, requestHistory, slots } = observeStage(harness);
    const member = await harness.process("a");
    await expect.poll(() => requests("read").length).toBeGreaterThan(0);

    await ways.pause("a");
    const requested = requestHistory();
    await expect.poll(slots).toHaveLength(1);
    process.kill(member.pid, "SIGSTOP");
    ways.heal("a");
    await pass(HELD_UP_MS);
    const reads = requests("read").length;
    process.kill(member.pid, "SIGCONT");
    expect(await requested).toMatch(/held up for \d+ ms/);
    expect(requests("history")).toEqual([]);

    await expect.poll(() => requests("read").length).toBeGreaterThan(reads);
    expect(await requestHistory()).not.toContain("held up");
    expect(requests("history")).toHaveLength(1);
  });

  test("a request to the service is sent immediately after a slow database has counted it against the quota", async () => {
    const harness = await createFleet({ sources: [SOURCE] });
    const { requests, requestHistory, slots } = observeStage(harness);
    await harness.process("a");
    await expect.poll(() => requests("read").length).toBeGreaterThan(0);
    const client = await connectTo(harness.database, "plenum");
    onTestFinished(() => client.end());
    // Every transaction of the source locks this row.
    await client.query(`begin; select 1 from plenum_state.source where name = '${SOURCE}' for update`);
    const requested = requestHistory();
    await pass(HELD_UP_MS);
    expect(requests("history")).toEqual([]);
    await client.query("commit");
    expect(await requested).toBe("answered");
    const [{ atMs } = { atMs: 0 }] = requests("history");
    expect((await slots()).filter((sentMs) => Math.abs(atMs - sentMs) < LEAVES_WITHIN_MS)).toHaveLength(1);
  });
});
