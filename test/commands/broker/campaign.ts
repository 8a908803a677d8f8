import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Event } from "#src/core/model/event.ts";
import { type SeededRandom, seededRandom } from "../seeded-random.ts";
import { createBrokerHarness, FACTOR, type Harness } from "./broker-harness.ts";
import { addServiceFault, calm, type Disturbance, MOMENTS, type Moment, planOf } from "./disturbances.ts";
import { countBy, judgeRun } from "./final-judge.ts";
import { createMessages, type Message } from "./messages.ts";
import { eventsInFiles, finalRecords, isSettled, withRunningState } from "./state-reader.ts";

interface BrokerCampaign {
  readonly seed: number;
  readonly messages: number;
  readonly print?: (line: string) => void;
}

const RECENT_MESSAGES_MAX = 40;
const OLD_MESSAGES_MAX = 5_000;
const FAULT_LENGTH_MESSAGES = 150;
const STOPPED = 400;
const ARMED = 2 * STOPPED;

/** Sends random commands over a real Mosquitto to a worker process that is killed, stopped and disconnected. */
export async function runBrokerCampaign(options: BrokerCampaign) {
  const startedAt = performance.now();
  const random = seededRandom(options.seed);
  const harness = await createBrokerHarness(options.seed, random);
  try {
    const sent = await sendAll(harness, random, options);
    const complaint = await settle(harness, sent).then(
      () => null,
      (error: unknown) => String(error),
    );
    await harness.stopWorker();
    return await report(harness, sent, complaint, startedAt);
  } finally {
    await harness.close();
  }
}

interface Sent {
  readonly kinds: Map<string, number>;
  readonly disturbanceCounts: Map<Disturbance, number>;
  readonly messages: ReturnType<typeof createMessages>;
  duplicates: number;
  publish(message: Message): void;
  revive(): Promise<void>;
}

async function sendAll(harness: Harness, random: SeededRandom, options: BrokerCampaign): Promise<Sent> {
  const { simulator, switchFile, tags } = harness;
  const messages = createMessages({ random, tags, now: () => harness.clock.now() });
  const recent: Message[] = [];
  const old: Message[] = [];
  let sentCount = 0;

  const sent: Sent = {
    kinds: new Map(),
    disturbanceCounts: new Map(),
    messages,
    duplicates: 0,
    publish(message) {
      sentCount += 1;
      sent.kinds.set(message.kind, (sent.kinds.get(message.kind) ?? 0) + 1);
      harness.publish(message);
    },
    async revive() {
      await harness.revive(() => sendSeveral(5 + random.below(30)));
      for (const message of recent.slice(-10)) {
        sent.duplicates += 1;
        sent.publish(message);
      }
    },
  };

  function next(): Message {
    if (recent.length > 0 && random.chance(0.36)) {
      sent.duplicates += 1;
      const repeatedMessage = random.pick(random.chance(0.5) ? recent : old);
      const isSingle = repeatedMessage.kind === "lawful" && repeatedMessage.units.length === 1;
      return isSingle && random.chance(0.1) ? messages.withSameId(repeatedMessage) : repeatedMessage;
    }
    return rememberMessage(messages.next());
  }

  function rememberMessage(message: Message): Message {
    recent.push(message);
    if (recent.length > RECENT_MESSAGES_MAX) recent.shift();
    if (old.length < OLD_MESSAGES_MAX) old.push(message);
    else old[random.below(OLD_MESSAGES_MAX)] = message;
    return message;
  }

  function sendSeveral(count: number): void {
    for (let n = 0; n < count; n += 1) sent.publish(next());
  }

  async function waitForSpace(): Promise<void> {
    if (!harness.isAlive()) await sent.revive();
    await harness.hasSpace();
  }

  const plan = planOf(random, options.messages);
  let armedAt = 0;
  let calmAt = Number.POSITIVE_INFINITY;
  let releaseAt = Number.POSITIVE_INFINITY;
  const disturb: Readonly<Record<Disturbance, () => Promise<void> | void>> = {
    kill() {
      armedAt = sentCount;
      const countKillsAt = (moment: Moment) => harness.kills.filter((kill) => kill === moment).length;
      harness.arm(MOMENTS.reduce((least, moment) => (countKillsAt(moment) < countKillsAt(least) ? moment : least)));
    },
    stop: () => harness.stopWorker(),
    "broker-ends": () => harness.restartBroker("end", () => sendSeveral(20)),
    "broker-dies": () => harness.restartBroker("kill", () => sendSeveral(20)),
    cut: () => harness.tap.cut(),
    async flood() {
      if (existsSync(switchFile)) {
        plan.push({ at: sentCount, what: "flood" });
        return;
      }
      await waitForSpace();
      for (const message of messages.flood()) sent.publish(rememberMessage(message));
    },
    "stop-message": () => sent.publish(messages.stop()),
    "stop-file": () => writeFileSync(switchFile, "the campaign\n"),
    faults() {
      calmAt = sentCount + FAULT_LENGTH_MESSAGES;
      addServiceFault(simulator, random);
    },
  };

  function injectPlannedFaults(): void {
    if (harness.isArmed() && sentCount >= armedAt + ARMED) harness.strikeNow();
    if (sentCount >= calmAt) {
      calm(simulator);
      calmAt = Number.POSITIVE_INFINITY;
    }
    if (existsSync(switchFile)) releaseAt = Math.min(releaseAt, sentCount + STOPPED);
    if (sentCount >= releaseAt) {
      rmSync(switchFile, { force: true });
      releaseAt = Number.POSITIVE_INFINITY;
    }
  }

  while (sentCount < options.messages || plan.length > 0 || harness.isArmed()) {
    await waitForSpace();
    sent.publish(next());
    const [coming] = plan;
    if (coming !== undefined && sentCount >= coming.at && !harness.isArmed()) {
      plan.shift();
      options.print?.(`${sentCount} messages, ${harness.judge.posts} POSTs, ${coming.what}`);
      await disturb[coming.what]();
      sent.disturbanceCounts.set(coming.what, (sent.disturbanceCounts.get(coming.what) ?? 0) + 1);
    }
    injectPlannedFaults();
  }
  return sent;
}

async function settle(harness: Harness, sent: Sent): Promise<void> {
  harness.strikeNow();
  calm(harness.simulator);
  if (!harness.isAlive()) await sent.revive();
  await harness.until(async () => harness.publishers.pending() === 0 && harness.tap.hears(), "everything is published");
  const fresh: string[] = [];
  let latestAt = Number.NEGATIVE_INFINITY;
  await harness.until(async () => {
    if (performance.now() - latestAt > 500) {
      rmSync(harness.switchFile, { force: true });
      latestAt = performance.now();
      const message = sent.messages.lawful({ ttlMs: 60_000 });
      fresh.push(...message.units.map(({ id }) => id));
      sent.publish(message);
    }
    return fresh.some((id) => harness.heard.get(id) === "confirmed");
  }, "a fresh command is confirmed");
  await harness.until(() => withRunningState(harness.stateFolder, isSettled), "every command has its end");
}

function endsOf(results: readonly Event<"command-result">[]): ReadonlyMap<string, number> {
  return countBy(results, ({ data }) => data.reason ?? data.outcome);
}

const isRestore = (id: string) => id.endsWith("/restore");

async function report(harness: Harness, sent: Sent, complaint: string | null, startedAt: number) {
  const { judge, ledger, runs, publishers, simulator, tap } = harness;
  const { verdict, audit, results, waiting } = await withRunningState(harness.stateFolder, finalRecords);
  const violations: string[] = [
    ...(complaint === null ? [] : [complaint]),
    ...judge.violations,
    ...judgeRun({
      ledger,
      deliveries: tap.deliveries,
      connections: tap.connections,
      published: publishers.acknowledged,
      workerRuns: runs,
      audit,
      results,
      waiting,
      downstream: eventsInFiles(join(harness.folder, "events")),
      writes: judge.writes,
      secondMs: 1_000 * FACTOR,
    }),
  ];
  if (verdict.brokenAt !== null) violations.push(`the audit chain broke at ${verdict.brokenAt}`);
  const happened = (...what: Disturbance[]) =>
    what.reduce((sum, each) => sum + (sent.disturbanceCounts.get(each) ?? 0), 0);
  return {
    messages: ledger.lastSerial(),
    kinds: byCount(sent.kinds),
    duplicates: sent.duplicates,
    acknowledged: publishers.acknowledged.size,
    delivered: tap.deliveries.length,
    kills: byCount(countBy(harness.kills, (moment) => moment)),
    stops: happened("stop"),
    brokerRestarts: happened("broker-ends", "broker-dies"),
    cuts: happened("cut"),
    posts: judge.posts,
    writes: judge.writes.size,
    restores: [...judge.writes.keys()].filter(isRestore).length,
    accepted: audit.filter(({ step }) => step === "accepted").length,
    results: results.length,
    audited: audit.length,
    throttled: simulator.truth.requests().filter(({ limit }) => limit === "refused").length,
    reasons: byCount(endsOf(results)),
    seconds: Math.round((performance.now() - startedAt) / 1000),
    violations,
  };
}

function byCount(counted: ReadonlyMap<string, number>): Readonly<Record<string, number>> {
  return Object.fromEntries([...counted].toSorted(([, a], [, b]) => b - a));
}
