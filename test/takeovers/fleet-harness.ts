import { rmSync } from "node:fs";
import { connectAsync } from "mqtt";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import { type SeededRandom, seededRandom } from "../commands/seeded-random.ts";
import { queryPostgres } from "../query-postgres.ts";
import { ownDatabase, type RealServer, startMosquitto, startPostgres, temporaryFolder } from "../real-servers.ts";
import { startChild } from "./child.ts";
import type { LoggedEvent, SentCommand, Takeover } from "./evidence.ts";
import { createMember, type Member } from "./member.ts";
import type { ServiceInfo } from "./services.ts";

export interface HarnessOptions {
  readonly seed: number;
  readonly sources: number;
  readonly members: readonly string[];
  readonly commandEveryMs: number;
  readonly commandTtlS: number;
  readonly sweep: string;
}

const PREFIX = "plenum";
const SCHEMA = "plenum";

export type Harness = Awaited<ReturnType<typeof createFleet>>;

export async function createFleet(options: HarnessOptions) {
  const closing: (() => unknown)[] = [];
  const close = async () => {
    for (const each of closing.splice(0).toReversed()) await each();
  };
  try {
    return { ...(await built(options, closing)), close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function built(options: HarnessOptions, closing: (() => unknown)[]) {
  const folder = temporaryFolder("takeovers");
  closing.push(() => rmSync(folder, { recursive: true, force: true }));
  const database = await startPostgres({ lines: ["max_connections = 100"] });
  closing.push(() => database.stop());
  await ownDatabase(database);
  const broker = await startMosquitto({ moreLines: ["max_queued_messages 0", "set_tcp_nodelay true"] });
  closing.push(() => broker.stop());
  const services = startChild("services.ts", { count: options.sources, seed: options.seed, members: options.members });
  closing.push(() => services.end());
  const receivers = startChild("receivers.ts", { broker: broker.url, prefix: PREFIX });
  closing.push(() => receivers.end());
  const infos = await services.request<readonly ServiceInfo[]>("infos");
  const webhook = await receivers.request<string>("webhook");

  const configuration = (databasePort: number) =>
    configurationOf({ infos, broker: broker.url, webhook, databasePort, sweep: options.sweep });
  const members = new Map<string, Member>();
  for (const name of options.members) {
    const environment = Object.fromEntries(infos.map(({ source }) => [`TOKEN_${source}`, `${SERVICE_TOKEN}-${name}`]));
    const member = await createMember({ name, folder, databasePort: database.port, configuration, environment });
    closing.push(() => member.close());
    members.set(name, member);
  }
  const commander = await startCommander({
    broker: broker.url,
    infos,
    random: seededRandom(options.seed + 1),
    everyMs: options.commandEveryMs,
    ttlS: options.commandTtlS,
  });
  closing.push(() => commander.close());
  const observer = createObserver(database);
  return { members, database, observer, services, receivers, commander };
}

function configurationOf(parts: {
  readonly infos: readonly ServiceInfo[];
  readonly broker: string;
  readonly webhook: string;
  readonly databasePort: number;
  readonly sweep: string;
}): object {
  const { infos, broker, webhook, databasePort, sweep } = parts;
  const source = ({ source: name, url, read }: ServiceInfo) => ({
    base_url: url,
    token: { env: `TOKEN_${name}` },
    time_zone: "Europe/Oslo",
    spread: "2s",
    quota: { list_requests_per_minute: 60 },
    schedules: { alarms: "*/5 * * * * *", resolved_sweep: sweep },
    // Uses the whole quota of 20 requests a minute.
    read: [{ name: "all", every: "3s", select: { ids: read } }],
  });
  const allow = infos.flatMap(({ source, siteId, written }) =>
    written.map((tag_id) => ({
      ...{ source, site_id: siteId, tag_id, type: "number", min: 0, max: 1e9 },
      ...{ min_interval: "1s", max_per_day: 10_000 },
    })),
  );
  const retry = { max: "2s" };
  return {
    state: {
      folder: "state",
      postgres: {
        url: `postgresql://plenum@127.0.0.1:${databasePort}/plenum?sslmode=disable`,
        schema: SCHEMA,
      },
    },
    status: { port: 0 },
    sources: Object.fromEntries(infos.map((place) => [place.source, source(place)])),
    sinks: {
      broker: { mqtt: { url: broker, prefix: PREFIX, commands: { enabled: true } }, retry },
      hook: { webhook: { url: webhook, unsigned: true, allow_networks: ["127.0.0.0/8"] }, retry },
    },
    commands: { enabled: true, max_per_hour: 100_000, allow },
  };
}

const FIRST_VALUE = 100;

async function startCommander(options: {
  readonly broker: string;
  readonly infos: readonly ServiceInfo[];
  readonly random: SeededRandom;
  readonly everyMs: number;
  readonly ttlS: number;
}) {
  const { broker, infos, random, everyMs, ttlS } = options;
  const client = await connectAsync(broker, { clientId: "commander", protocolVersion: 5, reconnectPeriod: 200 });
  client.on("error", () => undefined);
  const sent: SentCommand[] = [];
  const timer = setInterval(() => {
    const { source, written } = random.pick(infos);
    const command = {
      id: `c${sent.length + 1}`,
      source,
      tagId: random.pick(written),
      value: FIRST_VALUE + sent.length,
      isRepeated: random.chance(0.2),
    };
    sent.push(command);
    const payload = JSON.stringify({ id: command.id, value: command.value, ttl_s: ttlS });
    const topic = `${PREFIX}/cmd/${source}/${command.tagId}/set`;
    client.publish(topic, payload, { qos: 1 });
    if (command.isRepeated) client.publish(topic, payload, { qos: 1 });
  }, everyMs);
  return {
    sent: sent as readonly SentCommand[],
    stop: () => clearInterval(timer),
    async close(): Promise<void> {
      clearInterval(timer);
      await client.endAsync(true);
    },
  };
}

export type Observer = ReturnType<typeof createObserver>;

function createObserver(server: RealServer) {
  let lastTakeover = 0;

  const rows = (text: string) => queryPostgres(server, "plenum", `set search_path = ${SCHEMA}; ${text}`);

  const positions = (result: readonly (readonly unknown[])[]) =>
    new Map(result.map(([source, position]) => [String(source), Number(position)]));

  return {
    async inspect() {
      const members = await rows("select name from member where gone is null and not draining and not leaving");
      const owned = await rows("select coalesce(holder, ''), count(*) from source group by 1");
      return { members: members.map(([name]) => String(name)), owned: positions(owned) };
    },
    async newTakeovers(): Promise<readonly Takeover[]> {
      const found = await rows(
        `select id, source, from_member, to_member, epoch, extract(epoch from at) * 1000, reason
         from takeover where id > ${lastTakeover} order by id`,
      );
      lastTakeover = Number(found.at(-1)?.[0] ?? lastTakeover);
      return found.map(([, source, from, to, epoch, atMs, reason]) => ({
        source: String(source),
        from: from === null ? null : String(from),
        to: String(to),
        epoch: Number(epoch),
        atMs: Math.floor(Number(atMs)),
        reason: String(reason),
      }));
    },
    async log(): Promise<readonly LoggedEvent[]> {
      const found = await rows("select source, position, id from event order by source, position");
      return found.map(([source, position, id]) => {
        return { source: String(source), position: Number(position), id: String(id) };
      });
    },
    newest: async () => positions(await rows("select source, max(position) from event group by 1")),
    async delivered() {
      const found = await rows("select source, name, position from sink");
      return found.map(([source, sink, position]) => [String(source), String(sink), Number(position)] as const);
    },
    async drain(member: string, draining: boolean): Promise<void> {
      await rows(`update member set draining = ${draining} where name = '${member}'`);
    },
  };
}
