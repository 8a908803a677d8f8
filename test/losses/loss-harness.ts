import { isoUtc } from "#src/core/values/iso-utc.ts";
import type { Transport, TransportReply, TransportRequest } from "#src/engine/source/transport.ts";
import { type StoredBackfill, syncSet } from "#src/engine/sync/stored-documents.ts";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import type { SeededRandom } from "../commands/seeded-random.ts";
import type { VirtualClock } from "../virtual-clock.ts";
import { startVirtualWorker, type VirtualWorkerOptions } from "../virtual-worker.ts";
import { lossWorld } from "./building.ts";
import { ALL_RIGHTS, type SourceFault } from "./faults.ts";

/** A fault and its period in milliseconds since 1970; `toMs` is infinite while it lasts. */
export interface LastingFault {
  readonly fault: SourceFault;
  readonly fromMs: number;
  toMs: number;
}

export interface HistoryReply {
  readonly tagIds: readonly string[];
  readonly resolution: string;
  readonly fromMs: number;
  readonly toMs: number;
  /** Timestamps by tag of monthly probes; null for other requests. */
  readonly months: ReadonlyMap<string, readonly number[]> | null;
}

export interface Backfill {
  readonly id: string;
  readonly stored: StoredBackfill;
  readonly tagIds: ReadonlySet<string>;
  readonly requestedMs: number;
}

export type Harness = Awaited<ReturnType<typeof createLossHarness>>;

const DEADLINE_MS = 30_000;

export type HarnessExtras = Pick<
  Partial<VirtualWorkerOptions>,
  "commands" | "sinks" | "serviceNow" | "around" | "onCrash"
>;

export async function createLossHarness(seed: number, random: SeededRandom, extras: HarnessExtras = {}) {
  const world = lossWorld(seed, random);
  const activeFaults: LastingFault[] = [];
  const starts: number[] = [];
  const backfills: Backfill[] = [];
  const replies: HistoryReply[] = [];
  let underWay = 0;
  const around = (transport: Transport, clock: VirtualClock): Transport => {
    const innerTransport = extras.around?.(transport, clock) ?? transport;
    return async (request, signal) => {
      underWay += 1;
      try {
        const reply = await innerTransport(request, signal);
        const historyReply = historyAnswer(request, reply);
        if (historyReply !== null) replies.push(historyReply);
        return reply;
      } finally {
        underWay -= 1;
      }
    };
  };
  const virtual = await startVirtualWorker({
    ...extras,
    simulator: world.simulator,
    source: world.source,
    state: { replay_window: "60d", max_age: "60d" },
    eventsFolder: null,
    around,
    way: { thereMs: () => 20 + random() * 200, deadlineMs: DEADLINE_MS },
  });
  const { clock, simulator } = virtual;
  const { control } = simulator;
  starts.push(clock.now());
  let currentRules = "[]";

  /** Applies all current faults to the simulated service. */
  function apply(): void {
    const now = activeFaults.filter(({ toMs }) => toMs === Number.POSITIVE_INFINITY).map(({ fault }) => fault);
    const rights = now.reduce((all, { rights: change }) => change?.(all) ?? all, ALL_RIGHTS(world));
    control.changeToken(SERVICE_TOKEN, {
      ...{ sites: [...rights.sites], abilities: [...rights.abilities], permissions: [...rights.permissions] },
      ...{ visible_tags: rights.visibleTags && [...rights.visibleTags], revoked: rights.revoked },
    });
    const offline = new Set(now.flatMap(({ offlineGateways = [] }) => offlineGateways));
    for (const id of simulator.world.gateways.keys()) control.setGateway(id, !offline.has(id));
    const removed = new Set(now.flatMap(({ removedTags = [] }) => removedTags));
    for (const id of simulator.world.tags.keys()) control.changeInventory("tags", id, { removed: removed.has(id) });
    const activeRules = now.flatMap((fault) => fault.rules ?? []);
    const rulesText = JSON.stringify(activeRules);
    if (rulesText !== currentRules) control.setFaults(activeRules);
    currentRules = rulesText;
  }

  return {
    ...{ world, virtual, faults: activeFaults, starts, backfills, replies },
    now: () => clock.now(),
    begin(fault: SourceFault) {
      const lastingFault: LastingFault = { fault, fromMs: clock.now(), toMs: Number.POSITIVE_INFINITY };
      activeFaults.push(lastingFault);
      apply();
      return lastingFault;
    },
    end(lasting: LastingFault) {
      lasting.toMs = clock.now();
      apply();
    },
    async order(order: Omit<Backfill, "requestedMs">) {
      const { store } = virtual.worker;
      await store.commit({ documents: [{ set: syncSet("backfill", "main"), insert: [[order.id, order.stored]] }] });
      backfills.push({ ...order, requestedMs: clock.now() });
    },
    async restart(how: "stop" | "crash") {
      await virtual.restart(how);
      starts.push(clock.now());
    },
    /** Suspends the process at a moment without pending requests. */
    async suspend(ms: number) {
      while (underWay > 0) await clock.advance(50);
      clock.suspend(ms);
    },
  };
}

function historyAnswer(request: TransportRequest, reply: TransportReply): HistoryReply | null {
  if (!request.path.includes("/tags/history") || reply.status !== 200) return null;
  const start = new TextDecoder().decode(reply.body.subarray(0, 8));
  if (!start.startsWith('{"data"')) return null;
  const query = new URLSearchParams(request.path.split("?")[1]);
  if (query.has("scalar")) return null;
  const resolution = query.get("resolution") ?? "";
  return {
    tagIds: (query.get("tags") ?? "").split(","),
    resolution,
    fromMs: Date.parse(query.get("from") ?? ""),
    toMs: Date.parse(query.get("to") ?? ""),
    months: resolution === "1mo" ? stamps(reply) : null,
  };
}

function stamps(reply: TransportReply): ReadonlyMap<string, readonly number[]> {
  const { data } = JSON.parse(new TextDecoder().decode(reply.body)) as {
    data: { id: string; measurements: { timestamp: string }[] }[];
  };
  return new Map(data.map((log) => [log.id, log.measurements.map(({ timestamp }) => Date.parse(timestamp))]));
}

export function testBackfill(harness: Harness, random: SeededRandom, id: string): Omit<Backfill, "requestedMs"> {
  const { world } = harness;
  const site = random.pick(world.siteIds);
  const siteTags = world.tags.get(site) ?? [];
  const [select, tagIds] = random.pick<readonly [object, readonly string[]]>([
    [{}, [...world.tags.values()].flat()],
    [{ sites: [site] }, siteTags],
    [{ ids: siteTags.slice(0, 3) }, siteTags.slice(0, 3)],
  ]);
  const resolution = random.pick(["5m", "1h", "1d"] as const);
  const lengthMs = { "5m": 6, "1h": 48, "1d": 24 * 10 }[resolution] * 3_600_000;
  const toMs = harness.now() - world.lateMs - 3_600_000 * (1 + random.below(40));
  const stored: StoredBackfill = {
    from: isoUtc(toMs - lengthMs),
    to: isoUtc(toMs),
    resolution,
    select,
    askedAt: isoUtc(harness.now()),
    doneAt: null,
  };
  return { id, stored, tagIds: new Set(tagIds) };
}
