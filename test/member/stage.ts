import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "pg";
import { Config } from "#src/app/config/config.ts";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { createLog, type Log } from "#src/core/runtime/log.ts";
import { createMember, type Member } from "#src/scale/member.ts";
import { DEFAULT_TOKEN } from "#src/simulator/options.ts";
import { type SimulatorServer, startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator, type Simulator } from "#src/simulator/simulator.ts";
import { type Running, runPlenum } from "../plenum-process.ts";
import {
  ownDatabase,
  type RealServer,
  startMosquitto,
  startPostgres,
  startStandby,
  temporaryFolder,
} from "../real-servers.ts";

/** Services, a broker and a database, and members of a fleet among them. */
export interface Stage {
  readonly folder: string;
  readonly database: RealServer;
  /** Address of the database, as who owns it. */
  readonly databaseUrl: string;
  /** Where one was asked for. */
  readonly standby: RealServer | null;
  readonly broker: RealServer;
  readonly services: ReadonlyMap<string, Service>;
  /** As it would stand in a file; the same for every member. */
  readonly configuration: Readonly<Record<string, unknown>>;
  /** Variables that the configuration names. */
  readonly environment: Readonly<Record<string, string>>;
  /** A member in this process, not started yet. */
  member(name: string, log?: Log, clock?: Clock): Promise<Member>;
  /** A member as a user starts it, which says that it runs. */
  process(name: string): Promise<Running>;
  close(): Promise<void>;
}

export interface Service {
  readonly simulator: Simulator;
  readonly server: SimulatorServer;
  readonly tags: readonly string[];
  readonly siteId: number;
}

const SITE = 12;
const TAGS = 6;
const READ = 4;

export async function setStage(options: {
  readonly sources: readonly string[];
  readonly isWritable?: boolean;
  /** On the way to the services; each member gives its name as the password. */
  readonly proxy?: string;
  /** To the database, of each member, for the sources. */
  readonly connections?: number;
  /** A second server follows the first, and what is committed is on both. */
  readonly hasStandby?: boolean;
}): Promise<Stage> {
  const folder = temporaryFolder("member");
  const closing: (() => unknown)[] = [() => rmSync(folder, { recursive: true, force: true })];
  const close = async () => {
    for (const each of closing.splice(0).toReversed()) await each();
  };
  try {
    const database = await startPostgres({ lines: ["max_connections = 60"] });
    closing.push(() => database.stop());
    const ownUrl = await ownDatabase(database);
    const standby = options.hasStandby === true ? await startFollowing(database) : null;
    if (standby !== null) closing.push(() => standby.stop());
    const databaseUrl =
      standby === null ? ownUrl : ownUrl.replace(`:${database.port}`, `:${database.port},127.0.0.1:${standby.port}`);
    const broker = await startMosquitto();
    closing.push(() => broker.stop());
    const services = new Map<string, Service>();
    for (const source of options.sources) {
      const service = await startService();
      closing.push(() => service.server.close());
      services.set(source, service);
    }
    const environment = Object.fromEntries(options.sources.map((source) => [`TOKEN_${source}`, DEFAULT_TOKEN]));
    const configuration = configurationOf({
      databaseUrl,
      broker,
      services,
      isWritable: options.isWritable ?? false,
      proxy: options.proxy,
      connections: options.connections ?? 4,
    });
    const { state } = configuration as { readonly state: object };
    return {
      ...{ folder, database, databaseUrl, standby, broker, services, configuration, environment, close },
      async member(
        name,
        log = createLog({ level: (process.env.MEMBER_LOG ?? "silent") as "silent" }),
        clock = systemClock,
      ) {
        const member = await createMember({
          config: Config.parse({ ...configuration, state: { ...state, folder: join(folder, name) } }),
          name,
          folder: join(folder, name),
          environment: { ...environment, MEMBER: name },
          armWriting: options.isWritable ?? false,
          clock,
          log,
        });
        closing.push(() => member.stop(2_000));
        return member;
      },
      async process(name) {
        writeFileSync(join(folder, "plenum.yaml"), JSON.stringify(configuration));
        const arming = options.isWritable === true ? ["--arm-writing"] : [];
        const args = ["run", "--config", "plenum.yaml", "--member", name, ...arming];
        const running = runPlenum(args, { cwd: folder, environment: { ...environment, MEMBER: name } });
        closing.push(() => running.end("SIGKILL"));
        await running.says("Plenum is running", 60_000);
        return running;
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** A standby without which nothing is committed, as rule 6 of docs/scaling.md wants it. */
async function startFollowing(database: RealServer): Promise<RealServer> {
  const standby = await startStandby(database);
  const client = new Client({ connectionString: database.url });
  await client.connect();
  await client.query("alter system set synchronous_standby_names = 'standby'");
  await client.query("select pg_reload_conf()");
  await client.end();
  return standby;
}

async function startService(): Promise<Service> {
  const simulator = createSimulator(
    {
      sites: [SITE],
      max_tags: TAGS,
      alarms: { recorded: false },
      // The strictest there is: 20 in any 60 s.
      limits: { tag_endpoints: { model: "sliding_log" } },
      request_log: 1_000_000,
    },
    { now: Date.now },
  );
  const tags = [...simulator.world.tags.keys()];
  for (const tag of tags.slice(READ)) simulator.control.setTag(tag, 20);
  return { simulator, server: await startSimulatorServer(simulator), tags, siteId: SITE };
}

function configurationOf(parts: {
  readonly databaseUrl: string;
  readonly broker: RealServer;
  readonly services: ReadonlyMap<string, Service>;
  readonly isWritable: boolean;
  readonly proxy: string | undefined;
  readonly connections: number;
}): Record<string, unknown> {
  const { broker, databaseUrl, isWritable, services } = parts;
  const sources = [...services].map(([name, { server, tags }]) => [
    name,
    {
      base_url: server.url,
      token: { env: `TOKEN_${name}` },
      time_zone: "Europe/Oslo",
      ...(parts.proxy === undefined ? {} : { allow_plain_http: true, proxy: proxyAt(parts.proxy) }),
      spread: "1s",
      schedules: { alarms: "*/3 * * * * *" },
      read: [{ name: "all", every: "3s", select: { ids: tags.slice(0, READ) } }],
    },
  ]);
  const allow = [...services].flatMap(([source, { siteId, tags }]) =>
    tags.slice(READ).map((tag_id) => ({ source, site_id: siteId, tag_id, type: "number", min: 0, max: 100 })),
  );
  return {
    state: {
      folder: "state",
      postgres: {
        url: `${databaseUrl}?sslmode=disable`,
        connections: parts.connections,
      },
    },
    status: { port: 0 },
    sources: Object.fromEntries(sources),
    sinks: {
      broker: {
        mqtt: { url: broker.url, commands: { enabled: isWritable } },
        retry: { max: "2s" },
      },
    },
    commands: { enabled: isWritable, allow },
  };
}

const proxyAt = (url: string) => ({ url, username: "member", password: { env: "MEMBER" } });

/** What the service saw of its limit: most tag requests within any 60 s, and how many it refused. */
export function spending({ simulator: { truth } }: Service): {
  readonly most: number;
  readonly refused: number;
} {
  return {
    most: truth.busiestMinute(),
    refused: truth.requests().filter(({ limit }) => limit === "refused").length,
  };
}
