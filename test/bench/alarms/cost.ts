import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { pino } from "pino";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { momentOf } from "#src/core/runtime/moment.ts";
import { oneAtATime } from "#src/core/runtime/waiting.ts";
import { createSource } from "#src/engine/source/client.ts";
import { SourceConfig } from "#src/engine/source/config.ts";
import type { Transport } from "#src/engine/source/transport.ts";
import { documentSet } from "#src/engine/store/store.ts";
import { createAlarmPoll } from "#src/engine/sync/alarms/poll.ts";
import { SyncConfig } from "#src/engine/sync/config.ts";
import { createScope } from "#src/engine/sync/scope.ts";
import { syncSet } from "#src/engine/sync/snapshot.ts";
import { createSyncState } from "#src/engine/sync/sync-state.ts";
import { createMemoryStore } from "../../sync/memory-store.ts";

/** What one poll of so many active alarms costs the processor, with ready-made answers and no waiting. */
export interface PollCost {
  readonly alarms: number;
  /** A poll that finds nothing new: lists, decodes, compares. Median of several, milliseconds of the processor. */
  readonly steadyMs: number;
  /** A poll in which every alarm is new: raises and commits them all. */
  readonly firstMs: number;
  /** What is held for these alarms between two polls, in bytes. */
  readonly heldBytes: number;
}

const PAGE = 500;
const ROUNDS = 15;
const SITE = 3;

export async function costOf(alarms: number): Promise<PollCost> {
  const clock = steppingClock();
  const source = createSource({
    name: "main",
    config: SourceConfig.parse({
      base_url: "http://localhost",
      token: { env: "TOKEN" },
      time_zone: "Europe/Stockholm",
      page_size: { alarms: PAGE, others: 100 },
    }),
    limiter: {
      run: (_lane, _endpoint, task) => task(momentOf(systemClock)),
      pause() {},
      release() {},
      permitTrial() {},
      observe() {},
      status: () => ({ buckets: [], heldUntilMs: null }),
    },
    clock,
    metrics: createMetrics(),
    log: pino({ level: "silent" }),
    transport: answers(alarms),
    environment: { TOKEN: "bench-token" },
  });
  const before = await heapBytes();
  const holding = await createSyncState(createMemoryStore(), [
    ...(["alarm", "site", "gateway", "host"] as const).map((name) => documentSet(name, "main")),
    ...(["alarm-site", "sweep"] as const).map((name) => syncSet(name, "main")),
  ]);
  const scope = createScope(source, clock);
  scope.learn({ sites: [SITE].map((id) => ({ id, displayName: "" })), abilities: [] });
  let events = 0;
  const poll = createAlarmPoll(
    {
      source,
      config: SyncConfig.parse({}),
      clock,
      log: pino({ level: "silent" }),
      metrics: createMetrics(),
      scope,
      syncState: holding,
      firstInventory: { page() {} },
      listedSites: new Set(),
      offlineGatewayOf: () => null,
      beforeNewAlarms: () => null,
      async commit(_job, change) {
        events += change.events?.length ?? 0;
        // The events go to the store; what a poll keeps is the snapshot.
        await holding.commit({ documents: change.documents ?? [] });
      },
    },
    oneAtATime(),
  );
  const signal = new AbortController().signal;

  const firstMs = await timed(() => poll.run(signal));
  if (events !== alarms) throw new Error(`${events} events of ${alarms} alarms`);
  const held = (await heapBytes()) - before;
  await poll.run(signal);
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    times.push(await timed(() => poll.run(signal)));
  }
  if (events !== alarms) throw new Error("a steady poll told something");
  return { alarms, firstMs, steadyMs: median(times), heldBytes: held };
}

/** Milliseconds of the processor, which do not depend on what else the machine does. */
async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1000;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

async function heapBytes(): Promise<number> {
  await new Promise((resolve) => setImmediate(resolve));
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

/** Time that passes only by waiting, and waiting that takes no time. */
function steppingClock() {
  let nowMs = Date.UTC(2026, 5, 1);
  return {
    now: () => nowMs,
    monotonic: () => nowMs,
    async sleep(ms: number) {
      nowMs += ms;
    },
  };
}

/** The list of active alarms of one site, its pages ready as bytes. */
function answers(alarms: number): Transport {
  const pages = Array.from({ length: Math.ceil(alarms / PAGE) }, (_, index) => page(alarms, index + 1));
  return async ({ path }) => {
    const query = new URLSearchParams(path.split("?")[1] ?? "");
    const body = path.includes("/me") ? ME : pages[Number(query.get("page") ?? 1) - 1];
    if (body === undefined) throw new Error(`no answer for ${path}`);
    return { status: 200, headers: { "content-type": "application/json" }, body };
  };
}

function page(total: number, number: number): Uint8Array {
  const last = Math.ceil(total / PAGE);
  const from = (number - 1) * PAGE;
  const count = Math.min(PAGE, total - from);
  const address = "http://localhost/api/v1/alarms";
  return bytes({
    data: Array.from({ length: count }, (_, index) => record(from + index)),
    links: {
      first: `${address}?page=1`,
      last: `${address}?page=${last}`,
      prev: null,
      next: number < last ? `${address}?page=${number + 1}` : null,
    },
    meta: {
      current_page: number,
      from: from + 1,
      last_page: last,
      path: address,
      per_page: PAGE,
      to: from + count,
      total,
    },
  });
}

function record(index: number): unknown {
  const time = `2026-05-${String(1 + (index % 28)).padStart(2, "0")}T08:${String(index % 60).padStart(2, "0")}:00+02:00`;
  return {
    type: "alarms",
    id: String(500_000 + index),
    attributes: {
      site: { id: SITE, display_name: "Gymnasium, main building" },
      trigger: {
        id: 7_000 + index,
        display_name: `Supply temperature too low ${index}`,
        description: "Raised when the supply air stays below its limit for ten minutes.",
        priority: "ABC"[index % 3],
        enabled: true,
      },
      status: "active",
      source: `AHU ${index % 40}`,
      description: "Supply air temperature is below the limit.",
      triggered_at: time,
      resolved_at: null,
      recovering_until: null,
      acknowledged: index % 4 === 0,
      acknowledged_by: index % 4 === 0 ? "Operator" : null,
      acknowledged_message: null,
      acknowledged_at: index % 4 === 0 ? time : null,
      last_active_event: {
        id: 90_000 + index,
        source: `AHU ${index % 40}`,
        type: "limit",
        triggered_on: "value",
        value: 12.5,
        textlist_value: null,
        triggered_at: time,
      },
    },
  };
}

const ME = bytes({
  data: {
    user: { id: 1, name: "Bench", email: "bench@example.com" },
    token: {
      name: "bench",
      abilities: ["read:alarms"],
      expires_at: "2027-06-01T00:00:00Z",
      sites: [{ id: SITE, display_name: "Gymnasium" }],
    },
  },
});

function bytes(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}
