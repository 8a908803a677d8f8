import { createTokens } from "./access-tokens.ts";
import { createAlarmStore } from "./alarms.ts";
import { createDevices, fromRawValue, type Value } from "./devices.ts";
import { createFaultPlan } from "./fault-plan.ts";
import { SimulatorOptions, type SimulatorOptionsInput } from "./options.ts";
import { loadRecording } from "./recorded-buildings.ts";
import { createRequestHandler } from "./request-handler.ts";
import { createRequestLog } from "./request-log.ts";
import { createInventory } from "./response-records.ts";
import { createRandom } from "./seeded-random.ts";
import { buildWorld, type Tag } from "./simulated-sites.ts";
import { createControl } from "./simulator-control.ts";
import { createBuckets, createHistory, type LogPoint, type Resolution } from "./tag-history.ts";

// The simulated service without a socket. `handle` responds, `control` changes the world, `truth` returns the facts.

export interface HistoryQuery {
  readonly tagId: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly resolution: Resolution;
  readonly tz: string;
}

export type SimulatorState = ReturnType<Simulator["exportState"]>;
export type Simulator = ReturnType<typeof createSimulator>;

/** `now`: milliseconds since 1970, the only clock of the simulated world. Throws a zod error for an invalid option. */
export function createSimulator(input: SimulatorOptionsInput, { now }: { readonly now: () => number }) {
  const options = SimulatorOptions.parse(input);
  const { epoch = now() } = options;
  // Whole seconds, so that alarm and sample times are the same after a restart with the same epoch.
  const epochMs = Math.floor((typeof epoch === "string" ? Date.parse(epoch) : epoch) / 1000) * 1000;
  const world = buildWorld(loadRecording(options.data_folder), options, epochMs);
  const random = createRandom(options.seed);
  const devices = createDevices(world, options);
  const buckets = createBuckets();
  const history = createHistory(devices, buckets, options);
  const alarms = createAlarmStore(world, devices, options);
  const inventory = createInventory();
  const tokens = createTokens(options.tokens, epochMs);
  const faults = createFaultPlan(options.faults, now(), random);
  const log = createRequestLog(options.request_log);
  const context = { options, world, devices, buckets, history, alarms, inventory, random, log };
  const { handle, setHealth } = createRequestHandler(context, tokens, faults);
  let raisedAlarms = 0;

  function getTag(id: string): Tag {
    const tag = world.tags.get(id);
    if (tag === undefined) throw new Error(`There is no tag ${id}.`);
    return tag;
  }

  function nextAlarmNumber(): number {
    raisedAlarms += 1;
    return raisedAlarms;
  }

  /** Returns everything that the replay cannot compute again, as JSON: changes by clients and the control interface. */
  function exportState() {
    return {
      version: 1,
      epochMs,
      nextAlarm: raisedAlarms,
      holds: [...devices.overrides],
      gatewayChanges: [...devices.gatewayChanges],
      manualAlarms: [...alarms.stored.values()],
      alarmChanges: [...alarms.changes],
      transitions: alarms.controlTransitions,
      tokenChanges: [...tokens.changes],
      inventoryChanges: [...inventory.changes],
    };
  }

  return {
    handle,
    now,
    options,
    world,
    control: createControl(context, tokens, faults, now, getTag, nextAlarmNumber, setHealth),
    truth: {
      alarms: { list: alarms.list, find: alarms.find, transitions: alarms.transitions },
      gatewayChanges: () =>
        [...devices.gatewayChanges].flatMap(([gatewayId, all]) => all.map((change) => ({ gatewayId, ...change }))),
      writes: () => log.writes,
      requests: () => log.requests,
      totals: () => log.totals,
      busiestMinute: log.busiestMinute,
      value: (tagId: string, atMs: number): Value => fromRawValue(getTag(tagId), devices.valueAt(getTag(tagId), atMs)),
      history: ({ tagId, fromMs, toMs, resolution, tz }: HistoryQuery): LogPoint[] =>
        history.points(getTag(tagId), { fromMs, toMs, nowMs: now() }, resolution, tz),
      hasLog: (tagId: string) => history.hasLog(getTag(tagId)),
    },
    exportState,
    importState(state: ReturnType<typeof exportState>): void {
      if (state.version !== 1) throw new Error("Another version of the simulator wrote the state; start without it.");
      const message =
        "The state belongs to a world with another epoch; start the simulator with the epoch of the state.";
      if (state.epochMs !== epochMs) throw new Error(message);
      raisedAlarms = state.nextAlarm;
      for (const [id, overrides] of state.holds) devices.overrides.set(id, [...overrides]);
      for (const [id, changes] of state.gatewayChanges) devices.gatewayChanges.set(id, [...changes]);
      for (const alarm of state.manualAlarms) alarms.stored.set(alarm.id, alarm);
      for (const [id, change] of state.alarmChanges) alarms.changes.set(id, change);
      for (const transition of state.transitions) alarms.addTransition(transition);
      for (const [text, change] of state.tokenChanges) if (tokens.has(text)) tokens.change(text, change);
      for (const [key, change] of state.inventoryChanges) inventory.changes.set(key, change);
    },
  };
}
