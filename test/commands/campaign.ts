import type { Event } from "#src/core/model/event.ts";
import { openTags, SITES } from "./broker/building.ts";
import { addServiceFault, calm } from "./broker/disturbances.ts";
import { countBy, judgeRun } from "./broker/final-judge.ts";
import { createLedger } from "./broker/ledger.ts";
import { createMessages, type Message } from "./broker/messages.ts";
import { postJudge } from "./broker/post-judge.ts";
import type { Delivery } from "./broker/wire-tap.ts";
import { arrivalOf, createHarness } from "./command-harness.ts";
import { seededRandom } from "./seeded-random.ts";

const PLANNED_RESTARTS = 5;
const MAX_REMEMBERED = 5_000;
const CONNECTION = { run: 0, protocol: 5, connectedAfter: 0, subscribedAfter: null, handled: 0, isOpen: true };

/** Sends random commands to gate, journal and writer in virtual time; the judges of the Mosquitto campaign check them. */
export async function runCampaign(options: { readonly seed: number; readonly commands: number }) {
  const random = seededRandom(options.seed);
  const { chance } = random;
  const harness = await createHarness({ simulator: { sites: SITES, seed: options.seed } });
  const { clock, simulator } = harness;
  const { tags, limits, allow } = openTags(simulator);
  const config = { max_per_hour: 100_000, allow: allow as never };
  const ledger = createLedger();
  const judge = postJudge({ simulator: { ...simulator }, stateFolder: harness.folder, ledger, limits, wayMs: 50 });
  Object.assign(simulator, { handle: judge.handle });
  const messages = createMessages({ random, tags, now: () => clock.now() });
  const deliveries: Delivery[] = [];
  const history: Message[] = [];
  let restarts = 0;
  let sent = 0;
  await restart();

  async function restart(): Promise<void> {
    restarts += 1;
    await harness.restart(config);
  }

  async function send(message: Message): Promise<void> {
    sent += 1;
    const now = clock.now();
    const serial = ledger.addMessage(message);
    const delivery = { serial, connection: CONNECTION, retained: message.retain, atMs: now, acknowledgedAtMs: now };
    deliveries.push(delivery);
    ledger.arrived(delivery);
    const { mqtt5Properties, payload, retain, topic } = message;
    const arrival = arrivalOf(payload, now, {
      ...{ topic, retained: retain, duplicate: chance(0.1) },
      tagId: /^plenum\/cmd\/main\/([^/]+)\/set$/.exec(topic)?.[1] ?? null,
      expirySeconds: mqtt5Properties?.messageExpiryInterval ?? null,
      properties: mqtt5Properties?.userProperties ?? {},
    });
    await harness.commands.accept(arrival).catch(() => undefined);
  }

  function next(): readonly Message[] {
    if (chance(0.005)) return messages.flood();
    if (history.length > 0 && chance(0.3)) {
      const old = random.pick(history);
      const isSingle = old.kind === "lawful" && old.units.length === 1;
      return [isSingle && chance(0.2) ? messages.withSameId(old) : old];
    }
    const message = messages.next();
    // A message from the future becomes lawful later.
    if (message.kind !== "future")
      history[history.length < MAX_REMEMBERED ? history.length : random.below(MAX_REMEMBERED)] = message;
    return [message];
  }

  async function disturb(): Promise<void> {
    const kind = random.below(9);
    if (kind === 0) return restart();
    if (kind < 3) return calm(simulator);
    if (kind < 7) return addServiceFault(simulator, random);
    if (kind === 7) harness.killSwitch.turnOn("the campaign", "now");
    else harness.breakStore(true);
    await clock.advance(kind === 7 ? 5_000 * random() : 0);
    for (const message of next()) await send(message);
    await clock.advance(5_000 * random());
    harness.killSwitch.turnOff();
    harness.breakStore(false);
  }

  while (sent < options.commands) {
    for (const message of next()) await send(message);
    if (chance(0.5)) await clock.advance(random() * 1_000);
    if (chance(0.01)) await disturb();
    if (restarts < Math.floor((PLANNED_RESTARTS * sent) / options.commands)) await restart();
  }
  simulator.control.setFaults([]);
  await clock.advance(30 * 60_000);

  const audit = await harness.audit();
  const latest = await harness.store.outbox.latest(1_000_000, ["command-result"]);
  const results = latest.map(({ event }) => event as Event<"command-result">).toReversed();
  const run = { ledger, deliveries, connections: [], published: new Map(), workerRuns: [], waiting: new Set<string>() };
  const violations = judgeRun({ ...run, audit, results, downstream: results, writes: judge.writes, secondMs: 1_000 });
  await harness.close();
  const reasons = countBy(results, ({ data }) => data.reason ?? data.outcome);
  return {
    commands: sent,
    writes: judge.writes.size,
    restarts,
    reasons: Object.fromEntries([...reasons].toSorted(([, a], [, b]) => b - a)),
    violations: [...judge.violations, ...violations],
  };
}
