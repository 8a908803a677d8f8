import { Client } from "pg";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import { findWorker, remoteReader } from "#src/ui/operator/remote.ts";
import { absent } from "../real-servers.ts";
import { startGate } from "./gate.ts";
import { type Stage, setStage } from "./stage.ts";

let stage: Stage;

afterEach(() => stage.close());

const SOURCE = "north";
/** Longer than a request may wait for its departure, and shorter than the lease, in milliseconds. */
const HELD_UP_MS = 3_500;
/** What a request may need from its slot's record to the service, in milliseconds. */
const LEAVES_WITHIN_MS = 2_500;

function requests(endpoint: string) {
  const { simulator } = service();
  return simulator.truth.requests().filter((request) => request.endpoint === endpoint);
}

function service() {
  const found = stage.services.get(SOURCE);
  if (found === undefined) throw new Error(SOURCE);
  return found;
}

/** Asks a member that is a process for history, which nobody else asks for. */
async function askHistory(member: string): Promise<string> {
  const found = await findWorker(`${stage.folder}/state/${member}`, AbortSignal.timeout(30_000));
  if (found.kind !== "open") throw new Error(`The door is ${found.kind}.`);
  const [from, to] = ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"];
  const query = { tagIds: service().tags.slice(0, 1), resolution: "5m", from, to, timeZone: "UTC" };
  const reader = remoteReader(found.door, SOURCE);
  return reader.history(query as never, "on-demand", AbortSignal.timeout(60_000)).then(
    () => "answered",
    (error: unknown) => String(error),
  );
}

async function connected(): Promise<Client> {
  const client = new Client({ connectionString: stage.databaseUrl });
  client.on("error", () => undefined);
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

/** Real time has to pass, for processes and servers that no test can move. */
const pass = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe.skipIf(absent("postgres") || absent("mosquitto"))("a request to the service", () => {
  test("is not sent after its process was suspended, and the next request is sent", async () => {
    const gate = await startGate();
    onTestFinished(() => gate.close());
    stage = await setStage({ sources: [SOURCE], proxy: gate.url });
    const member = await stage.process("a");
    await expect.poll(() => requests("read").length, { timeout: 60_000 }).toBeGreaterThan(0);

    // Its slot is recorded, and it waits for a connection.
    await gate.shut();
    const asked = askHistory("a");
    await expect.poll(() => slotsOf("history")).toHaveLength(1);
    process.kill(member.pid, "SIGSTOP");
    gate.open();
    await pass(HELD_UP_MS);
    const [reads, histories] = [requests("read").length, requests("history").length];
    process.kill(member.pid, "SIGCONT");
    expect(await asked).toMatch(/held up for \d+ ms/);
    expect(histories + requests("history").length).toBe(0);

    // The lease was long enough, so it goes on.
    await expect.poll(() => requests("read").length, { timeout: 30_000 }).toBeGreaterThan(reads);
    expect(await askHistory("a")).not.toContain("held up");
    expect(requests("history")).toHaveLength(1);
  }, 180_000);

  test("is sent immediately after a slow database has recorded its slot", async () => {
    stage = await setStage({ sources: [SOURCE] });
    await stage.process("a");
    await expect.poll(() => requests("read").length, { timeout: 60_000 }).toBeGreaterThan(0);
    const client = await connected();
    await client.query("begin");
    // Every transaction of the source begins with this row.
    await client.query("select 1 from plenum_state.source where name = $1 for update", [SOURCE]);
    const asked = askHistory("a");
    await pass(HELD_UP_MS);
    expect(requests("history")).toEqual([]);
    await client.query("commit");
    expect(await asked).toBe("answered");
    const [seen] = requests("history");
    const slots = await slotsOf("history");
    expect(slots.filter((sentMs) => Math.abs((seen?.atMs ?? 0) - sentMs) < LEAVES_WITHIN_MS)).toHaveLength(1);
  }, 120_000);
});

/** When each slot was spent, by its record. */
async function slotsOf(endpoint: string): Promise<readonly number[]> {
  const client = await connected();
  const { rows } = await client.query("select sent_ms from plenum_state.quota where bucket = $1", [
    `${SOURCE}/${endpoint}`,
  ]);
  return rows.map(({ sent_ms }) => Number(sent_ms));
}
