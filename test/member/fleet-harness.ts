import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { createLog, type Log } from "#src/core/runtime/log.ts";
import { createFleetMember, type FleetMember } from "#src/scale/fleet-member.ts";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { observe } from "../connectors/mqtt/observer.ts";
import { runPlenum } from "../plenum-process.ts";
import { queryPostgres } from "../query-postgres.ts";
import {
  absent,
  ownDatabase,
  type RealServer,
  startMosquitto,
  startPostgres,
  startStandby,
  temporaryFolder,
} from "../real-servers.ts";

export type Harness = Awaited<ReturnType<typeof createFleet>>;
export type Service = Omit<Awaited<ReturnType<typeof startService>>, "server">;

interface HarnessOptions {
  readonly sources: readonly string[];
  readonly isWritable?: boolean;
  /** Proxy to the services; each member uses its name as the password. */
  readonly proxy?: string;
  /** Connections of each member to the database. */
  readonly connections?: number;
  /** Adds a synchronous standby server. */
  readonly hasStandby?: boolean;
  /** The caller closes the harness; otherwise the end of the test does. */
  readonly outlivesTest?: boolean;
}

export const describeWithServers = describe.skipIf(absent("postgres") || absent("mosquitto"));
const SITE = 12;
const READ_TAGS = 4;

/** Starts services, a broker and a database. */
export async function createFleet(options: HarnessOptions) {
  const { sources, isWritable = false, hasStandby = false, outlivesTest = false } = options;
  const folder = temporaryFolder("member");
  const closing: (() => unknown)[] = [() => rmSync(folder, { recursive: true, force: true })];
  const close = async () => {
    for (const each of closing.splice(0).toReversed()) await each();
  };
  if (!outlivesTest) onTestFinished(close);
  const database = await startPostgres({ lines: ["max_connections = 60"] });
  closing.push(() => database.stop());
  const ownUrl = await ownDatabase(database);
  const standby = hasStandby ? await startFollowing(database) : null;
  if (standby !== null) closing.push(() => standby.stop());
  const databaseUrl =
    standby === null ? ownUrl : ownUrl.replace(`:${database.port}`, `:${database.port},127.0.0.1:${standby.port}`);
  const broker = await startMosquitto();
  closing.push(() => broker.stop());
  const services = new Map<string, Service>();
  for (const source of sources) {
    const { server, ...service } = await startService();
    closing.push(() => server.close());
    services.set(source, service);
  }
  const environment = Object.fromEntries(sources.map((source) => [`TOKEN_${source}`, SERVICE_TOKEN]));
  const configuration = configurationOf(options, databaseUrl, broker, services);
  const silent = createLog({ level: (process.env.MEMBER_LOG ?? "silent") as "silent" });
  return {
    ...{ folder, database, databaseUrl, standby, services, environment, configuration, close },
    /** Runs a query as the owner of the state. */
    query: (text: string) => queryPostgres(database, "plenum", `set search_path = plenum_state; ${text}`),
    service(source: string): Service {
      const service = services.get(source);
      if (service === undefined) throw new Error(`There is no service ${source}.`);
      return service;
    },
    async observe() {
      const observer = await observe(broker.url);
      closing.push(() => observer.leave());
      return {
        ...observer,
        /** Ids of the received events of a kind. */
        idsOf(kind: string): readonly string[] {
          const events = observer.heard.filter(({ topic }) => topic.endsWith(`/event/${kind}`));
          return [...new Set(events.map(({ json }) => String(json.id)))];
        },
      };
    },
    async member(name: string, log: Log = silent, clock: Clock = systemClock): Promise<FleetMember> {
      const member = await createFleetMember({
        config: Config.parse({ ...configuration, state: { ...configuration.state, folder: join(folder, name) } }),
        ...{ name, folder: join(folder, name), environment: { ...environment, MEMBER: name } },
        ...{ armWriting: isWritable, clock, log },
      });
      closing.push(() => member.stop(2_000));
      return member;
    },
    /** Starts members one after the other, until each holds an even share. */
    async started(...names: readonly string[]): Promise<FleetMember[]> {
      const members: FleetMember[] = [];
      for (const name of names) {
        const member = await this.member(name);
        members.push(member);
        await member.start();
        await holdsEvenly(members, sources.length);
      }
      return members;
    },
    /** Starts a member as a process. */
    async process(name: string) {
      writeFileSync(join(folder, "plenum.yaml"), JSON.stringify(configuration));
      const args = ["run", "--config", "plenum.yaml", "--member", name, ...(isWritable ? ["--arm-writing"] : [])];
      const running = runPlenum(args, { cwd: folder, environment: { ...environment, MEMBER: name } });
      closing.push(() => running.end("SIGKILL"));
      await running.waitForOutput("Plenum is running");
      return running;
    },
  };
}

const holdsEvenly = (members: readonly FleetMember[], sources: number) =>
  expect
    .poll(() => members.map((member) => Math.floor(member.held().length * members.length)))
    .toEqual(members.map(() => sources));

export const holds = (member: FleetMember, sources: readonly string[]) =>
  expect.poll(() => member.held()).toEqual(sources);

async function startFollowing(database: RealServer): Promise<RealServer> {
  const standby = await startStandby(database);
  await queryPostgres(database, "postgres", "alter system set synchronous_standby_names = 'standby'");
  await queryPostgres(database, "postgres", "select pg_reload_conf()");
  return standby;
}

async function startService() {
  const simulator = createSimulator(
    {
      ...{ sites: [SITE], max_tags: 6, alarms: { recorded: false }, request_log: 1_000_000 },
      // The strictest limit: 20 requests in any 60 s.
      limits: { tag_endpoints: { model: "sliding_log" } },
    },
    { now: Date.now },
  );
  const tags = [...simulator.world.tags.keys()];
  for (const tag of tags.slice(READ_TAGS)) simulator.control.setTag(tag, 20);
  const server = await startSimulatorServer(simulator);
  return { simulator, server, url: server.url, tags, siteId: SITE };
}

function configurationOf(
  { isWritable = false, proxy, connections = 4 }: HarnessOptions,
  databaseUrl: string,
  broker: RealServer,
  services: ReadonlyMap<string, Service>,
) {
  const proxyAt = (url: string) => ({ url, username: "member", password: { env: "MEMBER" } });
  const sources = [...services].map(([name, { url, tags }]) => [
    name,
    {
      ...{ base_url: url, token: { env: `TOKEN_${name}` }, time_zone: "Europe/Oslo", spread: "1s" },
      ...(proxy !== undefined && { allow_plain_http: true, proxy: proxyAt(proxy) }),
      schedules: { alarms: "*/3 * * * * *" },
      read: [{ name: "all", every: "3s", select: { ids: tags.slice(0, READ_TAGS) } }],
    },
  ]);
  const allow = [...services].flatMap(([source, { siteId, tags }]) =>
    tags.slice(READ_TAGS).map((tag_id) => ({ source, site_id: siteId, tag_id, type: "number", min: 0, max: 100 })),
  );
  return {
    state: { folder: "state", postgres: { url: `${databaseUrl}?sslmode=disable`, connections } },
    status: { port: 0 },
    sources: Object.fromEntries(sources),
    sinks: { broker: { mqtt: { url: broker.url, commands: { enabled: isWritable } }, retry: { max: "2s" } } },
    commands: { enabled: isWritable, allow },
  };
}

/** Fails when a service refused a request, or had more than 20 tag requests within 60 s. */
export function expectQuotaMet({ services }: Pick<Harness, "services">): void {
  for (const { simulator } of services.values()) {
    expect(simulator.truth.requests().filter(({ limit }) => limit === "refused")).toEqual([]);
    expect(simulator.truth.busiestMinute()).toBeLessThanOrEqual(20);
  }
}
