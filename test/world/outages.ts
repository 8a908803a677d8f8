import { hash } from "node:crypto";
import { z } from "zod";
import { INCIDENT_EVENT_KINDS, RECEIVER_OPTIONS } from "#connectors/shared/receiver/config.ts";
import type {
  AlarmReceiver,
  IncidentMessage,
  IncidentReference,
} from "#connectors/shared/receiver/receiver-interface.ts";
import { createReceiverSink } from "#connectors/shared/receiver/sink.ts";
import { Retryable } from "#src/core/errors/errors.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import type { CampaignResult } from "../campaign/campaign.ts";
import type { SeededRandom } from "../commands/seeded-random.ts";
import { START_MS, startVirtualWorker } from "../virtual-worker.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const ROUNDS = 5;
const REST_MS = 40 * MINUTE;
/** Recorded sites; the first has four gateways, each of the others one. */
const SITES = [1, 2, 3, 4, 5, 6, 7, 8] as const;
/** Shares of requests to the receiver that fail, or that succeed and lose their response. */
const FAILURE_SHARES = [0, 0.02, 0.1, 0.2, 0.4] as const;

interface Message {
  readonly kind: IncidentMessage["kind"];
  readonly alarmId: string | null;
  opens: number;
  isOpen: boolean;
}

/** Gateways go offline and cause alarms: one message per outage, and one per alarm without an outage. */
export async function outages(seed: number, random: SeededRandom): Promise<CampaignResult> {
  const failing = random.pick(FAILURE_SHARES);
  const losing = random.pick(FAILURE_SHARES);
  const messages = new Map<string, Message>();
  const requests = { failed: 0, lost: 0 };
  // Every second seed: no values and no names of gateways, so that only single gateways explain alarms.
  const isReading = Math.floor(seed / 10) % 2 === 0;
  const siteIds = SITES.filter((id) => random.chance(0.5) && (isReading || id !== SITES[0]));
  if (siteIds.length === 0) siteIds.push(2);
  const isChangeOnly = random.chance(0.5);
  const virtual = await startVirtualWorker({
    simulator: { seed, sites: siteIds, alarms: { recorded: false }, request_log: 100_000 },
    source: { read: isReading ? [{ name: "all", every: "1m", on_change: isChangeOnly }] : [] },
    eventsFolder: null,
    serviceNow: ({ monotonic }) => START_MS + Math.floor(monotonic()),
    sinks: {
      people: {
        delivery: { filter: { kinds: [...INCIDENT_EVENT_KINDS] } },
        sink: (context) =>
          createReceiverSink(receiver(context.clock), z.strictObject(RECEIVER_OPTIONS).parse({}), context),
      },
    },
    way: { thereMs: () => 20 + random() * 200, deadlineMs: 30_000 },
  });
  const { clock, simulator } = virtual;
  const { control, truth, world } = simulator;
  if (!isReading)
    for (const id of world.hosts.keys())
      control.changeInventory("hosts", id, { attributes: { display_name: `Controller ${id}` } });
  const story: string[] = [];
  const logLine = (text: string) => story.push(`${Math.round(clock.monotonic() / SECOND)} s: ${text}`);
  let outageCount = 0;
  let singleCount = 0;

  function receiver(time: Pick<Clock, "sleep">): AlarmReceiver {
    async function request<T>(signal: AbortSignal, act: () => T): Promise<T> {
      await time.sleep(50 + random.below(200), signal);
      if (random.chance(failing)) {
        requests.failed += 1;
        throw new Retryable("The receiver cannot be reached.");
      }
      const reply = act();
      if (!random.chance(losing)) return reply;
      requests.lost += 1;
      throw new Retryable("The connection was reset.");
    }
    const offset = (key: string): IncidentReference => ({ ref: key, ticket: null, link: null });
    return {
      repeatedOpenEffect: "findable",
      open: (sent, signal) =>
        request(signal, () => {
          const known = messages.get(sent.key);
          logLine(`message ${sent.kind} ${sent.alarm?.id ?? sent.gateway?.displayName ?? ""} ${sent.key}`);
          if (known !== undefined) {
            known.opens += 1;
            known.isOpen = true;
          } else messages.set(sent.key, { kind: sent.kind, alarmId: sent.alarm?.id ?? null, opens: 1, isOpen: true });
          return offset(sent.key);
        }),
      update: (_, where, signal) => request(signal, () => where),
      close: (sent, where, signal) =>
        request(signal, () => {
          const known = messages.get(sent.key);
          if (known !== undefined) known.isOpen = false;
          return where;
        }),
      find: (sent, _, signal) => request(signal, () => (messages.has(sent.key) ? offset(sent.key) : null)),
      async probe() {},
      async dispose() {},
    };
  }

  const gatewaysOf = (siteId: number) =>
    [...world.gateways.values()].filter(({ site_id }) => site_id === siteId).map(({ id }) => id);

  /** Raises an alarm without a gateway outage. */
  async function single(siteId: number): Promise<void> {
    const id = control.raiseAlarm({ siteId });
    singleCount += 1;
    logLine(`alarm ${id} at site ${siteId}`);
    await clock.advance((30 + random.below(300)) * SECOND);
    if (!random.chance(0.8)) return;
    control.resolveAlarm(id);
    logLine(`alarm ${id} is over`);
  }

  async function outage(siteId: number): Promise<void> {
    const gateways = gatewaysOf(siteId);
    for (const id of gateways) control.setGateway(id, false);
    logLine(`the gateways of site ${siteId} are offline`);
    outageCount += 1;
    const alarmsOfOutage: string[] = [];
    for (let left = 2 + random.below(6); left > 0; left -= 1) {
      await clock.advance(random.below(20) * SECOND);
      alarmsOfOutage.push(control.raiseAlarm({ siteId }));
      logLine(`alarm ${alarmsOfOutage.at(-1)} because of it`);
    }
    const others = siteIds.filter((other) => other !== siteId);
    if (others.length > 0 && random.chance(0.5)) await single(random.pick(others));
    await clock.advance((5 + random.below(15)) * MINUTE);
    for (const id of gateways) control.setGateway(id, true);
    logLine(`the gateways of site ${siteId} are back`);
    for (const id of alarmsOfOutage) {
      await clock.advance(random.below(15) * SECOND);
      control.resolveAlarm(id);
    }
    logLine("its alarms are over");
  }

  await clock.advance(3 * MINUTE);
  for (let round = 0; round < ROUNDS; round += 1) {
    await clock.advance(random.below(6 * 60) * SECOND);
    if (random.chance(0.3)) await single(random.pick(siteIds));
    else await outage(random.pick(siteIds));
    if (random.chance(0.2)) await virtual.restart(random.pick(["stop", "crash"] as const));
  }
  await clock.advance(REST_MS);

  const active = new Set(truth.alarms.list(simulator.now(), { status: "active" }).map(({ id }) => id));
  const causes = outageCount + singleCount;
  const problems = [
    ...[...messages].flatMap(([key, { opens, kind }]) =>
      opens > 1
        ? [{ rule: "an alarm is one thing at a receiver", text: `${kind} ${key} was opened ${opens} times` }]
        : [],
    ),
    ...[...messages.values()].flatMap(({ alarmId, isOpen, kind }) => {
      const isActive = alarmId !== null && active.has(alarmId);
      return isOpen === isActive
        ? []
        : [{ rule: "what is open there is active", text: `${kind} ${alarmId ?? ""} is ${isOpen ? "open" : "closed"}` }];
    }),
    ...(messages.size > causes + 1
      ? [{ rule: "one message per cause", text: `${messages.size} messages of ${causes} causes` }]
      : []),
  ];
  const result = {
    problems,
    story,
    counts: {
      "gateway outages": outageCount,
      "causes of messages": causes,
      messages: messages.size,
      "failed requests to a receiver": requests.failed,
      "lost answers of a receiver": requests.lost,
    },
    digest: hash("sha256", story.join("\n")).slice(0, 12),
    requests: truth.requests().length,
    simulatedMs: clock.monotonic(),
  };
  await virtual.clear();
  return result;
}
