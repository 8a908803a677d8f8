import { z } from "zod";
import { AccessTokenChange } from "./access-tokens.ts";
import { INVENTORY_KINDS } from "./build-response-records.ts";
import { SimulatorOptions } from "./options.ts";
import type { Simulator } from "./simulator.ts";
import { HISTORY_RESOLUTIONS } from "./tag-history.ts";

// HTTP interface under /_simulator/ that controls the simulator; README.md describes the requests.

const IdBody = z.strictObject({ id: z.string() });
const RaiseAlarmBody = z.strictObject({
  site_id: z.int().optional(),
  trigger_id: z.int().optional(),
  tag_id: z.string().optional(),
  value: z.number().optional(),
  description: z.string().optional(),
});
const AckBody = IdBody.extend({ by: z.string().default("operator"), message: z.string().nullable().default(null) });
const RecoverBody = IdBody.extend({ until_ms: z.int().nullable() });
const SetTagBody = IdBody.extend({ value: z.union([z.number(), z.boolean(), z.null()]) });
const SetGatewayBody = z.strictObject({ id: z.int(), online: z.boolean() });
const ChangeTokenBody = AccessTokenChange.extend({ token: z.string() });
const ChangeInventoryBody = z.strictObject({
  kind: z.enum(INVENTORY_KINDS),
  id: z.union([z.string(), z.int()]),
  removed: z.boolean().optional(),
  attributes: z.record(z.string(), z.unknown()).optional(),
});
const SetFaultsBody = z.strictObject({ rules: z.array(z.unknown()) });
const SetHealthBody = z.strictObject({ health: SimulatorOptions.shape.health.unwrap() });
const TagHistoryParameters = z.strictObject({
  tag: z.string(),
  from: z.coerce.date(),
  to: z.coerce.date(),
  resolution: z.enum(HISTORY_RESOLUTIONS),
  tz: z.string(),
});

type ControlAction = (simulator: Simulator, body: unknown) => unknown;

function controlAction<T>(schema: z.ZodType<T>, run: (simulator: Simulator, input: T) => unknown): ControlAction {
  return (simulator, body) => run(simulator, schema.parse(body));
}

const SIMULATOR_CONTROL_ACTIONS: Readonly<Record<string, ControlAction>> = {
  "alarms/raise": controlAction(RaiseAlarmBody, ({ control }, { site_id, trigger_id, tag_id, value, description }) => ({
    id: control.raiseAlarm({ siteId: site_id, triggerId: trigger_id, tagId: tag_id, value, description }),
  })),
  "alarms/acknowledge": controlAction(AckBody, ({ control }, { id, by, message }) =>
    control.acknowledgeAlarm(id, by, message),
  ),
  "alarms/unacknowledge": controlAction(IdBody, ({ control }, { id }) => control.unacknowledgeAlarm(id)),
  "alarms/recover": controlAction(RecoverBody, ({ control }, { id, until_ms }) => control.recoverAlarm(id, until_ms)),
  "alarms/resolve": controlAction(IdBody, ({ control }, { id }) => control.resolveAlarm(id)),
  "alarms/retrigger": controlAction(IdBody, ({ control }, { id }) => control.retriggerAlarm(id)),
  "alarms/delete": controlAction(IdBody, ({ control }, { id }) => control.deleteAlarm(id)),
  "gateways/set": controlAction(SetGatewayBody, ({ control }, { id, online }) => control.setGateway(id, online)),
  "tags/set": controlAction(SetTagBody, ({ control }, { id, value }) => control.setTag(id, value)),
  "tags/release": controlAction(IdBody, ({ control }, { id }) => control.releaseTag(id)),
  "tokens/change": controlAction(ChangeTokenBody, ({ control }, { token, ...change }) =>
    control.changeToken(token, change),
  ),
  "inventory/change": controlAction(ChangeInventoryBody, ({ control }, { kind, id, ...change }) =>
    control.changeInventory(kind, id, change),
  ),
  "faults/set": controlAction(SetFaultsBody, ({ control }, { rules }) => control.setFaults(rules)),
  "health/set": controlAction(SetHealthBody, ({ control }, { health }) => control.setHealth(health)),
};

const SIMULATOR_CONTROL_QUERIES: Readonly<Record<string, (simulator: Simulator, query: URLSearchParams) => unknown>> = {
  now: (simulator) => ({ now_ms: simulator.now(), epoch_ms: simulator.world.epochMs }),
  "truth/requests": ({ truth }, query) =>
    truth.requests().filter(({ number }) => number > Number(query.get("after") ?? 0)),
  "truth/totals": ({ truth }) => ({ totals: truth.totals(), busiest_minute: truth.busiestMinute() }),
  "truth/writes": ({ truth }) => truth.writes(),
  "truth/alarms": ({ truth, now }) => truth.alarms.list(now()),
  "truth/transitions": ({ truth, now, world }, query) =>
    truth.alarms.transitions(Number(query.get("from_ms") ?? world.epochMs), Number(query.get("to_ms") ?? now())),
  "truth/gateways": ({ truth }) => truth.gatewayChanges(),
  "truth/history"({ truth }, query) {
    const { tag, from, to, resolution, tz } = TagHistoryParameters.parse(Object.fromEntries(query));
    return truth.history({ tagId: tag, fromMs: from.getTime(), toMs: to.getTime(), resolution, tz });
  },
  state: (simulator) => simulator.exportState(),
};

export function handleControlRequest(
  simulator: Simulator,
  method: string,
  path: string,
  query: URLSearchParams,
  body: string,
) {
  const runQuery = method === "GET" ? SIMULATOR_CONTROL_QUERIES[path] : undefined;
  const runAction = method === "GET" ? undefined : SIMULATOR_CONTROL_ACTIONS[path];
  if (runQuery === undefined && runAction === undefined) {
    const error = `The simulator has no control named ${path}; see src/simulator/README.md.`;
    return { status: 404, body: { error } };
  }
  try {
    const data = runQuery?.(simulator, query) ?? runAction?.(simulator, JSON.parse(body === "" ? "{}" : body)) ?? null;
    return { status: 200, body: { data } };
  } catch (error) {
    if (error instanceof z.ZodError) return { status: 400, body: { error: z.prettifyError(error) } };
    return { status: 400, body: { error: error instanceof Error ? error.message : String(error) } };
  }
}
