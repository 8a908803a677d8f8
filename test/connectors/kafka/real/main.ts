import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { KafkaConfig } from "#connectors/kafka/config.ts";
import { createKafkaSink } from "#connectors/kafka/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import { asFailure, errorText } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { seededRandom } from "../../../commands/seeded-random.ts";
import { freePort, startKafka, temporaryFolder } from "../../../real-servers.ts";
import { sampleOfEveryKind, valueEvent } from "../../../sample-events.ts";
import { replay, seed } from "../../../seed.ts";
import { contextFor, never, offered } from "../../context.ts";
import { createAuthority } from "../../mqtt/certificates.ts";
import { allowWriting, classPath, createTopic, findMissingProgram, KAFKA, readTopic } from "./kafka-tools.ts";

/** Runs the connector against Apache Kafka, read by librdkafka (`npm run kafka:real -- [kills, default 10]`). */
const missingProgram = findMissingProgram();
if (missingProgram !== null) {
  console.log(`kafka:real: not run, ${missingProgram}`);
  process.exit(process.env.CI === "true" ? 1 : 0);
}

const kills = Number(process.argv[2] ?? 10);
const folder = temporaryFolder("kafka-real");
const authority = createAuthority(folder);
const { certFile, keyFile } = authority.issue("broker");
const store = join(folder, "store.pem");
writeFileSync(store, `${readFileSync(keyFile, "utf8")}${readFileSync(certFile, "utf8")}`);
process.env.KAFKA_REAL_PASSWORD = "correct horse";
process.env.KAFKA_REAL_WRONG = "battery staple";

const [plain, sasl, tls, mutual] = [await freePort(), await freePort(), await freePort(), await freePort()];
const listeners = { PLAIN: plain, SASL: sasl, TLS: tls, MUTUAL: mutual };
const namedListeners = Object.entries(listeners).map(([name, port]) => `${name}://127.0.0.1:${port}`);
const jaas = (module: string, users: string) => `org.apache.kafka.common.security.${module} required ${users};`;
const server = await startKafka({
  classPath: classPath(),
  port: plain,
  lines: [
    `listeners=${namedListeners.join(",")}`,
    `advertised.listeners=${namedListeners.join(",")}`,
    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,MUTUAL:SSL",
    "inter.broker.listener.name=PLAIN",
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    `listener.name.sasl.plain.sasl.jaas.config=${jaas("plain.PlainLoginModule", 'user_plenum="correct horse"')}`,
    `listener.name.sasl.scram-sha-256.sasl.jaas.config=${jaas("scram.ScramLoginModule", "")}`,
    `listener.name.sasl.scram-sha-512.sasl.jaas.config=${jaas("scram.ScramLoginModule", "")}`,
    "ssl.keystore.type=PEM",
    `ssl.keystore.location=${store}`,
    "ssl.truststore.type=PEM",
    `ssl.truststore.location=${authority.caFile}`,
    "listener.name.mutual.ssl.client.auth=required",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS;User:CN=plenum",
    "offsets.topic.replication.factor=1",
    "min.insync.replicas=1",
  ],
  format: [
    ["--add-scram", "SCRAM-SHA-256=[name=plenum,password=correct horse]"],
    ["--add-scram", "SCRAM-SHA-512=[name=plenum,password=correct horse]"],
  ].flat(),
});

let failedSteps = 0;
const sinks: Sink[] = [];
const at = (port: number) => `127.0.0.1:${port}`;

function createSinkAt(port: number, options: object = {}): Sink {
  const config = { brokers: [at(port)], tls: { enabled: false }, publish_deadline: "10s", ...options };
  const sink = createKafkaSink(KafkaConfig.parse(config), contextFor("lake"));
  sinks.push(sink);
  return sink;
}

async function runStep(what: string, run: () => Promise<string>): Promise<void> {
  try {
    console.log(`ok      ${what}: ${await run()}`);
  } catch (error) {
    failedSteps += 1;
    console.log(`FAILED  ${what}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  }
}

function checkTrue(isSo: boolean, what: string): void {
  if (!isSo) throw new Error(what);
}

async function refusal(work: Promise<unknown> | undefined, pattern: RegExp): Promise<string> {
  const replyText = await Promise.resolve(work).then(() => "accepted", errorText);
  checkTrue(pattern.test(replyText), `expected ${pattern}, got: ${replyText}`);
  return replyText;
}

const setbacks = new Map<string, number>();

async function deliver(sink: Sink, events: readonly Event[], settled: () => void = () => undefined): Promise<void> {
  for (let nextIndex = 0; nextIndex < events.length; ) {
    const batch = events.slice(nextIndex, nextIndex + 500);
    try {
      const receipt = await sink.write(batch, never(), undefined, offered(batch, nextIndex + 1));
      nextIndex += receipt.retry?.from ?? batch.length;
      if (receipt.retry !== undefined) throw receipt.retry.error;
      settled();
    } catch (error) {
      const { kind, message } = asFailure(error);
      checkTrue(kind === "retryable", message);
      const why = message.replace(/ at [\d.:]+/, "");
      setbacks.set(why, (setbacks.get(why) ?? 0) + 1);
      await systemClock.sleep(100);
      await sink.open(never()).catch(() => undefined);
    }
  }
}

async function openSink(sink: Sink): Promise<Sink> {
  for (let tries = 0; ; tries++) {
    try {
      await sink.open(never());
      return sink;
    } catch (error) {
      if (tries >= 100 || asFailure(error).kind !== "retryable") throw error;
      await systemClock.sleep(100);
    }
  }
}

console.log(`Apache Kafka ${KAFKA} (KRaft, one node), ${replay}`);

await runStep("a topic that is missing, auto-creation off", async () => {
  const sink = await openSink(createSinkAt(plain));
  const refusalText = await refusal(sink.write([valueEvent(1)], never()), /Topic plenum\.tag does not exist/);
  await refusal(sink.probe?.(never()), /No topic is there/);
  await refusal(createSinkAt(plain, { create_topics: true }).write([valueEvent(1)], never()), /LEADER_NOT_AVAILABLE/);
  for (const topicNoun of ["tag", "alarm", "gateway", "host", "system", "site", "worker"])
    await createTopic(at(plain), `plenum.${topicNoun}`, 3);
  await sink.probe?.(never());
  await deliver(sink, [valueEvent(1)]);
  checkTrue(readTopic(at(plain), "plenum.tag").length === 1, "the event that had waited is not there");
  return refusalText;
});

await runStep("an event of every kind, each compression", async () => {
  const samples = sampleOfEveryKind();
  for (const compression of ["none", "gzip", "snappy", "lz4", "zstd"])
    await deliver(createSinkAt(plain, { compression }), samples);
  await deliver(createSinkAt(plain, { idempotent: false }), samples);
  const alarms = readTopic(at(plain), "plenum.alarm");
  checkTrue(alarms.length === 6 * samples.filter(({ type }) => type.startsWith("alarm-")).length, "alarms differ");
  return `${samples.length} kinds, 5 compressions, and without idempotence`;
});

await runStep("a message that is too large for its topic", async () => {
  await createTopic(at(plain), "small", 1, { "max.message.bytes": "20000" });
  const sink = createSinkAt(plain, { topic: "small" });
  const batch = Array.from({ length: 400 }, (_, n) => valueEvent(n));
  batch[77] = { ...valueEvent(77), data: { ...valueEvent(77).data, behindGateway: "x".repeat(30_000) } };
  const { rejected, retry } = await sink.write(batch, never());
  checkTrue(retry === undefined && rejected.length === 1 && rejected[0]?.index === 77, "another one was rejected");
  const ids = readTopic(at(plain), "small").map(({ id }) => id);
  const expectedIds = batch.flatMap(({ id }, n) => (n === 77 ? [] : [id]));
  checkTrue(ids.join() === expectedIds.join(), "the others are not there, once each and in order");
  return rejected[0]?.reason ?? "";
});

await runStep("a time that the topic does not take", async () => {
  await createTopic(at(plain), "young", 1, { "message.timestamp.before.max.ms": "1000" });
  const { rejected } = await createSinkAt(plain, { topic: "young" }).write([valueEvent(1)], never());
  checkTrue(rejected.length === 1, "it was taken");
  return rejected[0]?.reason ?? "";
});

const login = (mechanism: string, env = "KAFKA_REAL_PASSWORD", username = "plenum") => ({
  sasl: { mechanism, username, password: { env } },
});

await runStep("PLAIN and SCRAM, and what a user without rights is told", async () => {
  for (const mechanism of ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]) {
    const sink = createSinkAt(sasl, login(mechanism));
    await refusal(sink.write([valueEvent(1)], never()), /may not be written by us|idempotent producer/);
    const wrongLogin = createSinkAt(sasl, login(mechanism, "KAFKA_REAL_WRONG"));
    await refusal(wrongLogin.open(never()), /does not accept the user name or password/);
  }
  await allowWriting(at(plain), "User:plenum", "plenum.");
  for (const mechanism of ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]) {
    const sink = createSinkAt(sasl, login(mechanism));
    await sink.probe?.(never());
    checkTrue((await sink.write([valueEvent(1)], never())).retry === undefined, "it was not taken");
  }
  const otherSink = createSinkAt(sasl, { ...login("PLAIN"), topic: "small" });
  const refusalText = await refusal(otherSink.write([valueEvent(1)], never()), /Topic small may not be written by us/);
  await refusal(otherSink.probe?.(never()), /Topic small may not be written by us/);
  const unwanted = await refusal(createSinkAt(plain, login("PLAIN")).open(never()), /does not ask for a password/);
  const passwordRefusal = await refusal(createSinkAt(sasl).open(never()), /wants a password/);
  return [unwanted, passwordRefusal, refusalText].join(" | ");
});

await runStep("TLS, a client certificate, and the wrong doors", async () => {
  const issued = authority.issue("plenum");
  const secure = { tls: { ca_file: authority.caFile } };
  await createSinkAt(tls, secure).open(never());
  const client = { tls: { ca_file: authority.caFile, cert_file: issued.certFile, key_file: issued.keyFile } };
  await createSinkAt(mutual, client).open(never());
  const authorityRefusal = await refusal(createSinkAt(tls, { tls: {} }).open(never()), /unknown authority|not trusted/);
  const plainRefusal = await refusal(createSinkAt(tls).open(never()), /speaks TLS, and was talked to without/);
  const tlsRefusal = await refusal(createSinkAt(plain, secure).open(never()), /TLS/);
  const certificateRefusal = await refusal(createSinkAt(mutual, secure).open(never()), /wants a certificate of ours/);
  return [authorityRefusal, plainRefusal, tlsRefusal, certificateRefusal].join(" | ");
});

await runStep(`kill -9 at ${kills} random moments while events flow`, async () => {
  await createTopic(at(plain), "crashes", 3);
  const random = seededRandom(seed);
  const sink = createSinkAt(plain, { topic: "crashes" });
  const events: Event[] = [];
  let partCount = 0;
  let isStopped = false;
  const killing = (async () => {
    for (let killed = 0; killed < kills; killed++) {
      for (const partsBefore = partCount; partCount < partsBefore + 2; ) await systemClock.sleep(20);
      await systemClock.sleep(random() * 500);
      await server.kill();
      await systemClock.sleep(random() * 300);
      await server.startAgain();
    }
    isStopped = true;
  })();
  setbacks.clear();
  for (let round = 0; !isStopped; round++) {
    const moreEvents = Array.from({ length: 2_000 }, (_, n) => {
      const number = round * 2_000 + n;
      return valueEvent(number, String(number % 25));
    });
    events.push(...moreEvents);
    await deliver(sink, moreEvents, () => {
      partCount += 1;
    });
  }
  await killing;
  const readRecords = readTopic(at(plain), "crashes");
  const order = new Map(events.map(({ id }, n) => [id, n]));
  const readIds = new Set(readRecords.map(({ id }) => id));
  const lostCount = events.filter(({ id }) => !readIds.has(id)).length;
  let disordered = 0;
  let overtaken = 0;
  const firstPositions = new Map<string, number>();
  const newestByKey = new Map<string, number>();
  const firsts = new Set<string>();
  for (const { id, key } of readRecords) {
    const n = order.get(id) ?? -1;
    checkTrue(n >= 0, `nobody sent ${id}`);
    if (!firsts.has(id)) {
      if (n < (firstPositions.get(key) ?? -1)) disordered += 1;
      firstPositions.set(key, n);
      firsts.add(id);
    }
    newestByKey.set(key, n);
  }
  for (const [key, n] of newestByKey) if (n !== firstPositions.get(key)) overtaken += 1;
  const twice = readRecords.length - readIds.size;
  const summaryText = `${events.length} events, setbacks: ${[...setbacks].map(([why, n]) => `${n} × ${why}`).join(" ")};, ${lostCount} lost, ${twice} twice with the same ce_id, ${disordered} out of order, ${overtaken} keys whose last record is not the newest`;
  checkTrue(lostCount === 0 && disordered === 0 && overtaken === 0, summaryText);
  return summaryText;
});

for (const sink of sinks) await sink.close();
await server.stop();
rmSync(folder, { recursive: true });
console.log(failedSteps === 0 ? "all well" : `${failedSteps} steps failed`);
process.exitCode = failedSteps === 0 ? 0 : 1;
