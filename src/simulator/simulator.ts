import { createAccessTokens } from "./access-tokens.ts";
import { createAlarmStore } from "./alarms.ts";
import { createSimulatedInventory } from "./build-response-records.ts";
import { createSimulatedDevices, fromRawTagValue } from "./devices.ts";
import { createFaultPlan } from "./fault-plan.ts";
import { SimulatorOptions, type SimulatorOptionsInput } from "./options.ts";
import { loadBuildingRecording } from "./recorded-buildings.ts";
import { createRequestHandler } from "./request-handler.ts";
import { createRequestLog } from "./request-log.ts";
import { createSeededRandom } from "./seeded-random.ts";
import { buildSites, type Tag } from "./simulated-sites.ts";
import { createSimulatorControl } from "./simulator-control.ts";
import { createHistoryBuckets, createTagHistory, type HistoryPoint, type HistoryResolution } from "./tag-history.ts";

// The simulated service without HTTP. `control` changes the buildings; `truth` returns data to check a client against.

export interface TagHistoryQuery {
  readonly tagId: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly resolution: HistoryResolution;
  readonly tz: string;
}

export type SimulatorState = ReturnType<Simulator["exportState"]>;
export type Simulator = ReturnType<typeof createSimulator>;

/** Creates the simulator. `now` returns milliseconds since 1970 and is its only clock. */
export function createSimulator(input: SimulatorOptionsInput, { now }: { readonly now: () => number }) {
  const options = SimulatorOptions.parse(input);
  const { epoch = now() } = options;
  // Use whole seconds, so that a restart with the same epoch gives the same alarm times.
  const epochMs = Math.floor((typeof epoch === "string" ? Date.parse(epoch) : epoch) / 1000) * 1000;
  const simulatedSites = buildSites(loadBuildingRecording(options.data_folder), options, epochMs);
  const random = createSeededRandom(options.seed);
  const devices = createSimulatedDevices(simulatedSites, options);
  const buckets = createHistoryBuckets();
  const history = createTagHistory(devices, buckets, options);
  const alarms = createAlarmStore(simulatedSites, devices, options);
  const inventory = createSimulatedInventory();
  const tokens = createAccessTokens(options.tokens, epochMs);
  const faultPlan = createFaultPlan(options.faults, now(), random);
  const log = createRequestLog(options.request_log);
  const context = { options, world: simulatedSites, devices, buckets, history, alarms, inventory, random, log };
  const { handle, setHealth } = createRequestHandler(context, tokens, faultPlan);
  let raisedAlarmCount = 0;

  function getTag(id: string): Tag {
    const tag = simulatedSites.tags.get(id);
    if (tag === undefined) throw new Error(`There is no tag ${id}.`);
    return tag;
  }

  /** Returns changes by clients and by the control interface, which the replay cannot compute again. */
  function exportSimulatorState() {
    return {
      version: 1,
      epochMs,
      nextAlarm: raisedAlarmCount,
      holds: [...devices.overrides],
      gatewayChanges: [...devices.gatewayChanges],
      manualAlarms: [...alarms.manualAlarms.values()],
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
    world: simulatedSites,
    control: createSimulatorControl(context, tokens, faultPlan, now, getTag, () => ++raisedAlarmCount, setHealth),
    truth: {
      alarms: { list: alarms.list, find: alarms.find, transitions: alarms.listTransitions },
      gatewayChanges: () =>
        [...devices.gatewayChanges].flatMap(([gatewayId, all]) => all.map((change) => ({ gatewayId, ...change }))),
      writes: () => log.writes,
      requests: () => log.requests,
      totals: () => log.totals,
      busiestMinute: log.busiestMinute,
      value: (tagId: string, atMs: number) => fromRawTagValue(getTag(tagId), devices.valueAt(getTag(tagId), atMs)),
      history: ({ tagId, fromMs, toMs, resolution, tz }: TagHistoryQuery): HistoryPoint[] =>
        history.points(getTag(tagId), { fromMs, toMs, nowMs: now() }, resolution, tz),
      hasLog: (tagId: string) => history.hasLog(getTag(tagId)),
    },
    exportState: exportSimulatorState,
    importState(state: ReturnType<typeof exportSimulatorState>): void {
      if (state.version !== 1) throw new Error("Another version of the simulator wrote the state; start without it.");
      const message =
        "The state belongs to a world with another epoch; start the simulator with the epoch of the state.";
      if (state.epochMs !== epochMs) throw new Error(message);
      raisedAlarmCount = state.nextAlarm;
      for (const [id, overrides] of state.holds) devices.overrides.set(id, [...overrides]);
      for (const [id, changes] of state.gatewayChanges) devices.gatewayChanges.set(id, [...changes]);
      for (const alarm of state.manualAlarms) alarms.manualAlarms.set(alarm.id, alarm);
      for (const [id, change] of state.alarmChanges) alarms.changes.set(id, change);
      for (const transition of state.transitions) alarms.addTransition(transition);
      for (const [token, change] of state.tokenChanges) if (tokens.has(token)) tokens.changeToken(token, change);
      for (const [key, change] of state.inventoryChanges) inventory.changes.set(key, change);
    },
  };
}
