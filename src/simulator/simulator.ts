import { type AlarmBook, createAlarmBook } from "./alarm-book.ts";
import { createService } from "./answering.ts";
import { createBuckets, type Resolution } from "./buckets.ts";
import { type Control, createControl } from "./control.ts";
import { asValue, createDevices, type GatewayChange, type Value } from "./devices.ts";
import type { Scene } from "./endpoints/endpoint.ts";
import type { SimReply, SimRequest } from "./exchange.ts";
import { createFaultPlan } from "./faults.ts";
import { createHistory, type Point } from "./history.ts";
import { createInventory } from "./inventory.ts";
import { SimulatorOptions, type SimulatorOptionsInput } from "./options.ts";
import { createRandom } from "./random.ts";
import { loadRecording } from "./recording.ts";
import { putState, type SimulatorState, takeState } from "./state.ts";
import { createTokens } from "./tokens.ts";
import { createRequestLog, type SeenRequest, type WrittenValue } from "./truth.ts";
import { buildWorld, type World } from "./world.ts";

export interface HistoryQuestion {
  readonly tagId: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly resolution: Resolution;
  readonly tz: string;
}

/** What really happened, whatever was answered. Times are milliseconds since 1970. */
export interface Truth {
  readonly alarms: Pick<AlarmBook, "list" | "find" | "transitions">;
  gatewayChanges(): readonly (GatewayChange & { readonly gatewayId: number })[];
  writes(): readonly WrittenValue[];
  requests(): readonly SeenRequest[];
  /** Requests since the start by `endpoint status`; the status of the first error, or the HTTP status. */
  totals(): Readonly<Record<string, number>>;
  /** The most requests to the three tag endpoints that arrived within any 60 s, refused ones included. */
  busiestMinute(): number;
  value(tagId: string, atMs: number): Value;
  /** The points that an unhurt history request would return now. */
  history(question: HistoryQuestion): Point[];
  /** Whether the service keeps a log of the tag at all. */
  hasLog(tagId: string): boolean;
}

export interface Simulator {
  readonly handle: (request: SimRequest) => SimReply;
  readonly now: () => number;
  readonly options: SimulatorOptions;
  readonly world: World;
  readonly control: Control;
  readonly truth: Truth;
  exportState(): SimulatorState;
  importState(state: SimulatorState): void;
}

export interface SimulatorParts {
  /** Milliseconds since 1970; the only clock of the simulated world. */
  readonly now: () => number;
}

/** Builds the monitoring service without a socket. Throws a zod error when an option is wrong. */
export function createSimulator(input: SimulatorOptionsInput, { now }: SimulatorParts): Simulator {
  const options = SimulatorOptions.parse(input);
  const epochMs = epochOf(options, now);
  const world = buildWorld(loadRecording(options.data_folder), options, epochMs);
  const random = createRandom(options.seed);
  const devices = createDevices(world, options);
  const buckets = createBuckets();
  const history = createHistory(devices, buckets, options);
  const alarms = createAlarmBook(world, devices, options);
  const inventory = createInventory();
  const tokens = createTokens(options.tokens, epochMs);
  const faults = createFaultPlan(options.faults, now(), random);
  const log = createRequestLog(options.request_log);
  const scene: Scene = {
    options,
    world,
    devices,
    buckets,
    history,
    alarms,
    inventory,
    random,
    wrote: log.wrote,
  };
  const service = createService(scene, tokens, faults, log);
  const parts = { world, devices, alarms, tokens, inventory, faults, now };
  let alarmsByHand = 0;

  function tagOf(id: string) {
    const tag = world.tags.get(id);
    if (tag === undefined) throw new Error(`There is no tag ${id}.`);
    return tag;
  }

  return {
    handle: service.handle,
    now,
    options,
    world,
    control: createControl({
      ...parts,
      setHealth: service.setHealth,
      nextAlarm() {
        alarmsByHand += 1;
        return alarmsByHand;
      },
    }),
    truth: {
      alarms,
      gatewayChanges: () =>
        [...devices.gatewayChanges].flatMap(([gatewayId, changes]) =>
          changes.map((change) => ({ gatewayId, ...change })),
        ),
      writes: () => log.writes,
      requests: () => log.requests,
      totals: () => log.totals,
      busiestMinute: () => busiestMinute(log.requests),
      value: (tagId, atMs) => asValue(tagOf(tagId), devices.valueAt(tagOf(tagId), atMs)),
      history: ({ tagId, fromMs, toMs, resolution, tz }) =>
        history.points(tagOf(tagId), { fromMs, toMs, nowMs: now() }, resolution, tz),
      hasLog: (tagId) => history.hasLog(tagOf(tagId)),
    },
    exportState: () => takeState(parts, epochMs, alarmsByHand),
    importState(state) {
      putState(parts, state, epochMs);
      alarmsByHand = state.nextAlarm;
    },
  };
}

/** Whole seconds, so that alarm times and sample times read the same after a restart with the same epoch. */
function epochOf({ epoch }: SimulatorOptions, now: () => number): number {
  const epochMs = typeof epoch === "string" ? Date.parse(epoch) : (epoch ?? now());
  return Math.floor(epochMs / 1000) * 1000;
}

const MINUTE_MS = 60_000;

function busiestMinute(requests: readonly SeenRequest[]): number {
  const times = requests.filter(({ limit }) => limit !== "none").map(({ atMs }) => atMs);
  let most = 0;
  let start = 0;
  times.forEach((atMs, index) => {
    while ((times[start] ?? atMs) <= atMs - MINUTE_MS) start += 1;
    most = Math.max(most, index - start + 1);
  });
  return most;
}
