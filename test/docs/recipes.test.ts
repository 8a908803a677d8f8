import { existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { parse } from "yaml";
import { InfluxConfig } from "#connectors/influxdb/config.ts";
import { createInfluxSink } from "#connectors/influxdb/sink.ts";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { buildMessages } from "#connectors/mqtt/event-messages.ts";
import { createTopics } from "#connectors/mqtt/topics.ts";
import { PostgresConfig } from "#connectors/postgres/config.ts";
import { createPostgresSink } from "#connectors/postgres/sink.ts";
import { Config } from "#src/app/config/config.ts";
import { contextFor, never } from "../connectors/context.ts";
import { optionsFor, write } from "../connectors/postgres/test-database.ts";
import { recipeBlock, startBuilding, WRITTEN_TAG } from "../integration/building.ts";
import { runProgram } from "../plenum-process.ts";
import { connectTo, queryPostgres } from "../query-postgres.ts";
import { absent, freePort, startInflux, startPostgres, startVictoriaMetrics } from "../real-servers.ts";
import { SITE, sampleOfEveryKind, valueEvent } from "../sample-events.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { closeAfterTest, stopAfterTest } from "../test-resources.ts";
import { blocksIn, type Page, pages } from "./markdown.ts";

const recipes = pages.filter(({ file }) => file.startsWith("docs/recipes/"));
const recipe = (name: string): Page => {
  const page = recipes.find(({ file }) => file.endsWith(`/${name}.md`));
  if (page === undefined) throw new Error(`There is no recipe ${name}.`);
  return page;
};
const blocks = recipes.flatMap(blocksIn);
const SOURCE = { base_url: "https://monitoring.example.com", token: { file: "token" }, time_zone: "Europe/Oslo" };

/** Samples and a boolean value of another tag. */
const MQTT_OPTIONS = MqttConfig.parse({ url: "mqtts://broker.example" });
const EVENTS = [...sampleOfEveryKind(), valueEvent(1, "10043", true)];
const SAMPLES_AT = Date.parse("2026-11-02T06:20:00Z") / 1_000;

/** Code spans after a mark, e.g. in a table cell. */
function markedCode({ text }: Page, mark: string): readonly string[] {
  return [...text.matchAll(new RegExp(`<!-- ${mark} --> \`([^\`]+)\``, "g"))].map(([, code = ""]) => code);
}

const configurations = blocks.filter(({ mark }) => mark === "configuration");

test("every configuration in the recipes is valid together with a source", () => {
  expect(configurations.length).toBeGreaterThan(6);
  for (const { file, text } of configurations) {
    const { success, error } = Config.safeParse({ sources: { main: SOURCE }, ...parse(text) });
    expect(success, `${file}: ${error?.message}`).toBe(true);
  }
});

test.each(["node-red", "fuxa", "home-assistant", "ignition", "niagara"])(
  "the recipe %s has at most 300 words",
  (name) => {
    const prose = blocksIn(recipe(name)).reduce((text, block) => text.replace(block.text, ""), recipe(name).text);
    expect(prose.match(/\w+/g)?.length).toBeLessThan(300);
  },
);

test("every MQTT topic in the recipes is a topic of the connector", () => {
  const layouts = configurations.flatMap(({ text }) => parse(text).sinks?.broker?.mqtt?.topic ?? []);
  const ownTopics = [
    ...[MQTT_OPTIONS.topic, ...layouts].flatMap((layout) => {
      const topics = createTopics("plenum", layout);
      const options = [MQTT_OPTIONS, { ...MQTT_OPTIONS, payload: "both" as const }];
      const messages = EVENTS.flatMap((event) => options.flatMap((each) => buildMessages(event, topics, each)));
      return [topics.status, ...messages.map(({ topic }) => topic)];
    }),
    "plenum/cmd/main/10042/set",
  ].map((topic) => topic.split("/"));
  const namedTopics = recipes.flatMap(({ text }) => text.match(/plenum\/(main|status|cmd|\+)[\w+/.-]*/g) ?? []);
  expect(namedTopics.length).toBeGreaterThan(10);
  const isKnownTopic = (topic: string) => {
    const levels = topic.split("/");
    // Ids are examples.
    const fits = (level: string, other = "") => level === "+" || level === other || /^\d+$/.test(level);
    return ownTopics.some((each) => each.length === levels.length && levels.every((level, n) => fits(level, each[n])));
  };
  expect(namedTopics.filter((topic) => !isKnownTopic(topic))).toEqual([]);
});

async function writeSamples(name: string, url: string): Promise<void> {
  const [text = ""] = configurations
    .filter(({ file, text: each }) => file.endsWith(name) && !each.includes("token"))
    .map((block) => block.text);
  const { sinks } = parse(text) as { readonly sinks: Record<string, { readonly influxdb: object }> };
  const config = InfluxConfig.parse({ ...Object.values(sinks)[0]?.influxdb, url });
  // A new worker reads the lists before it fetches points.
  const store = createMemoryStore();
  const [held, seen] = [{ value: SITE, siteId: SITE.id, since: "", missingSince: null }, { systems: "now" }];
  for (const [set, value] of [["site/main", held] as const, ["tag-seen/main", seen] as const]) {
    await store.commit({ documents: [{ set, put: [[String(SITE.id), value]] }] });
  }
  const sink = closeAfterTest(createInfluxSink(config, contextFor("recipe", undefined, store)));
  await sink.open?.(never());
  expect(await sink.write(EVENTS, never())).toEqual({ rejected: [] });
}

test.skipIf(absent("victoria-metrics"))(
  "the VictoriaMetrics queries in the recipe return the data that the sink wrote",
  async () => {
    const server = stopAfterTest(await startVictoriaMetrics());
    await writeSamples("grafana-victoriametrics.md", server.url);
    await fetch(`${server.url}/internal/force_flush`);
    const queries = markedCode(recipe("grafana-victoriametrics"), "promql");
    expect(queries.length).toBe(7);
    for (const query of queries) {
      const search = new URLSearchParams({ query, time: String(SAMPLES_AT + 1) });
      const answer = await fetch(`${server.url}/api/v1/query?${search}`);
      const { data } = (await answer.json()) as { readonly data: { readonly result: readonly unknown[] } };
      expect(data.result.length, query).toBeGreaterThan(0);
    }
  },
);

test.skipIf(absent("influxd"))("the InfluxDB queries in the recipe return the data that the sink wrote", async () => {
  const server = stopAfterTest(await startInflux());
  await writeSamples("grafana-influxdb.md", server.url);
  const queries = markedCode(recipe("grafana-influxdb"), "influxql");
  expect(queries.length).toBe(5);
  for (const written of queries) {
    // Grafana replaces these variables.
    const q = written
      .replace("$timeFilter", "time > '2026-10-01T00:00:00Z' AND time < '2026-12-01T00:00:00Z'")
      .replace("$__interval", "1h");
    const answer = await fetch(`${server.url}/query?${new URLSearchParams({ db: "plenum", q })}`);
    const { results } = (await answer.json()) as { readonly results: readonly { readonly series?: unknown }[] };
    expect(results[0]?.series, q).toBeDefined();
  }
});

test.skipIf(absent("postgres"))(
  "the Power BI queries in the recipe return rows from the tables and views",
  async () => {
    const server = stopAfterTest(await startPostgres({ lines: ["fsync = off"] }));
    const sqlBlocks = blocksIn(recipe("power-bi")).filter(({ language }) => language === "sql");
    const [roles, rights, ...queries] = sqlBlocks;
    // PostgreSQL creates a database outside of transactions only.
    for (const statement of roles?.text.trim().split(/(?<=;)\n/) ?? [])
      await queryPostgres(server, "postgres", statement);
    vi.stubEnv("PG_TEST_PASSWORD", "choose-one");
    onTestFinished(() => void vi.unstubAllEnvs());
    const options = { ...optionsFor(server, "buildings"), user: "plenum", password: { env: "PG_TEST_PASSWORD" } };
    const sink = createPostgresSink(PostgresConfig.parse(options), contextFor("warehouse"));
    await write(sink, EVENTS);
    await sink.close();
    const client = await connectTo(server, "buildings");
    onTestFinished(() => client.end());
    await client.query("set role plenum");
    await client.query(readFileSync(join(import.meta.dirname, "../../docs/lake/postgresql.sql"), "utf8"));
    await client.query(rights?.text ?? "");
    await client.query("set role reader");
    expect(queries.length).toBe(3);
    for (const { text } of queries) {
      // The samples are of another day.
      const datedQuery = text.replaceAll("now()", "timestamptz '2026-11-03'");
      expect((await client.query(datedQuery)).rows.length, text).toBeGreaterThan(0);
    }
  },
);

describe("the Node-RED flow in the recipes", () => {
  const flow = recipeBlock("node-red", "flow");
  const nodes = JSON.parse(flow) as readonly {
    readonly id: string;
    readonly type: string;
    readonly wires?: string[][];
  }[];

  test("connects its wires to existing nodes and has no function node", () => {
    const ids = new Set(nodes.map(({ id }) => id));
    const wiredIds = nodes.flatMap(({ wires = [] }) => wires.flat());
    expect(wiredIds.filter((id) => !ids.has(id))).toEqual([]);
    expect(new Set(nodes.map(({ type }) => type))).not.toContain("function");
  });
  const program = nodeRedProgram();
  test.skipIf(program === null || absent("mosquitto"))(
    "displays values with names, writes a set-point, displays its result and displays stale values",
    async () => {
      const building = closeAfterTest(await startBuilding("node-red"));
      const worker = await building.startWorker();
      const userFolder = join(building.folder, "node-red");
      mkdirSync(userFolder);
      const settings = join(userFolder, "settings.js");
      const uiPort = await freePort();
      writeFileSync(
        settings,
        `module.exports = { flowFile: "flows.json", uiHost: "127.0.0.1", uiPort: ${uiPort}, disableEditor: true, telemetry: { enabled: false, updateNotification: false } };\n`,
      );
      writeFileSync(join(userFolder, "flows.json"), flow.replace('"1883"', `"${building.broker.port}"`));
      const nodeRed = runProgram(process.execPath, [program ?? "", "--userDir", userFolder, "--settings", settings]);
      onTestFinished(async () => void (await nodeRed.end("SIGTERM")));
      await nodeRed.waitForOutput(/value: [\d.]+,[^}]*quality: 'good',[^}]*name: '.+'/);
      await nodeRed.waitForOutput(/value: 20,[^}]*quality: 'good'/);
      await fetch(`http://127.0.0.1:${uiPort}/inject/setpoint`, { method: "POST" });
      await nodeRed.waitForOutput("outcome: 'confirmed'");
      expect(building.simulator.truth.value(WRITTEN_TAG, Date.now())).toBe(21.5);
      building.changeToken({ sites: [1] });
      await nodeRed.waitForOutput(
        /value: null,\s+lastGoodValue: [\d.]+,[^}]*quality: 'stale',[^}]*staleReason: 'out-of-scope'/,
      );
      await worker.end("SIGKILL");
      await nodeRed.waitForOutput("status: 'offline'");
    },
  );
});

/** Returns the program `node-red` on the path; null without one. */
function nodeRedProgram(): string | null {
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    const file = join(folder, "node-red");
    if (existsSync(file)) return realpathSync(file);
  }
  return null;
}
