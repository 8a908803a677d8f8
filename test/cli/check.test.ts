import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { type CheckResult, createCheckReport } from "#src/cli/checking/check-report.ts";
import { checkTagWriting } from "#src/cli/checking/check-tag-writing.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { armingDocument } from "#src/engine/commands/write-arming.ts";
import { openStore } from "#src/engine/store/open.ts";
import { documentSet } from "#src/engine/store/store.ts";
import { absent, startInflux, startMosquitto } from "../real-servers.ts";
import { testFolder } from "../test-resources.ts";
import { openHarness, simulatedServer } from "./plenum.ts";

describe.skipIf(absent("influxd") || absent("mosquitto"))("the sinks of a configuration", () => {
  test("plenum check accepts correct sinks, and warns of a backfill that is longer than a sink's retention", async () => {
    const service = await simulatedServer();
    const [influx, broker] = await Promise.all([startInflux(), startMosquitto()]);
    onTestFinished(async () => {
      await Promise.all([influx.stop(), broker.stop()]);
    });
    const create = new URLSearchParams({ q: "CREATE DATABASE short WITH DURATION 240h" });
    await fetch(`${influx.url}/query?${create.toString()}`, { method: "POST" });
    const cli = openHarness(service.url);
    const v1 = (database: string, more: object = {}) => ({ url: influx.url, api: "v1", database, ...more });
    cli.configure({
      source: {
        history: [
          { name: "recent", resolution: "1h", backfill: "7d", select: {} },
          { name: "deep", resolution: "1d", backfill: "365d", select: {} },
        ],
      },
      sinks: {
        broker: { mqtt: { url: broker.url } },
        short: { influxdb: v1("short") },
        "short-alarms": { influxdb: v1("short"), filter: { kinds: ["alarm-*"] } },
        tomorrow: { influxdb: v1("tomorrow", { create_database: true }) },
        missing: { influxdb: v1("missing") },
      },
    });
    const { code, stdout, stderr } = await cli.plenum("check", "--json");
    const findings = JSON.parse(stdout || "[]") as { what: string; result: string; detail: string }[];
    const sinkResults = (sink: string) =>
      findings.filter(({ what }) => what === `sink ${sink}`).map(({ result, detail }) => [result, detail]);
    expect(sinkResults("broker"), stderr).toEqual([["ok", "mqtt answers"]]);
    expect(sinkResults("short")).toEqual([
      ["ok", "influxdb answers"],
      ["warning", expect.stringMatching(/^It keeps 10d, and the history deep of main asks for the past 365d:/)],
    ]);
    expect(sinkResults("short-alarms"), "it gets no history").toEqual([["ok", "influxdb answers"]]);
    expect(sinkResults("tomorrow")).toEqual([["ok", "influxdb answers"]]);
    expect(sinkResults("missing")).toEqual([["wrong", expect.stringContaining("CREATE DATABASE")]]);
    expect(code).toBe(78);
  });
});

const TAG = { type: "boolean", site_id: 6, tag_id: "10170" };
const BROKER = { url: "mqtt://127.0.0.1:1883", commands: { enabled: true } };

interface Settings {
  readonly source?: object;
  readonly sinks?: object;
  readonly commands?: object;
  readonly tag?: object;
}

interface State {
  readonly folder: string;
  readonly isNew?: boolean;
  readonly isArmed?: boolean;
  readonly hasOfflineGateway?: boolean;
}

async function prepareState({ folder, isArmed = true, hasOfflineGateway = false }: State): Promise<void> {
  const store = await openStore({ folder, clock: systemClock });
  const gateway = { id: "7", displayName: "Cellar", online: false };
  const storedGateway = { value: gateway, siteId: 6, missingSince: null };
  await store.commit({
    documents: [
      ...(isArmed ? [armingDocument({ at: "2026-11-20T12:00:00.000Z", by: "a test", damaged: 0 })] : []),
      ...(hasOfflineGateway ? [{ set: documentSet("gateway", "main"), put: [["7", storedGateway] as const] }] : []),
    ],
  });
  await store.close();
}

/** No worker runs in any case, so that line is left out. */
async function findObstacles(settings: Settings, state: Partial<State> = {}): Promise<readonly CheckResult[]> {
  const folder = join(testFolder("plenum-locks"), "state");
  if (state.isNew !== true) await prepareState({ folder, ...state });
  if (settings.commands !== undefined && "stopped" in settings.commands)
    writeFileSync(join(folder, "WRITES-STOPPED"), "");
  const { stopped: _, ...commands } = (settings.commands ?? {}) as Record<string, unknown>;
  const parsed = Config.parse({
    state: { folder },
    sources: {
      main: { ...{ base_url: "http://127.0.0.1:1", token: { file: "token" }, time_zone: "UTC" }, ...settings.source },
    },
    sinks: settings.sinks ?? { broker: { mqtt: BROKER } },
    commands: { enabled: true, allow: [{ ...TAG, ...settings.tag }], ...commands },
  });
  const isFull = commands.audit_max_bytes === "1MiB";
  const config = isFull ? { ...parsed, commands: { ...parsed.commands, audit_max_bytes: 0 } } : parsed;
  const report = createCheckReport((path) => path.join("."));
  await checkTagWriting(config, report, AbortSignal.timeout(60_000));
  return report.results.filter(({ detail }) => !detail.startsWith("No worker is running here"));
}

function otherHours(): string {
  const hour = (n: number) => `${(new Date().getUTCHours() + n) % 24}`.padStart(2, "0");
  return `${hour(6)}:00-${hour(8)}:00`;
}

const MQTT_OFF = { broker: { mqtt: { url: BROKER.url } } };

type Case = readonly [what: string, detail: RegExp, settings: Settings, state?: Partial<State>];

const CASES: readonly Case[] = [
  ["writing is off", /^Writing is off .* set commands\.enabled: true\.$/, { commands: { enabled: false } }],
  ["a rehearsal", /^Commands are only rehearsed .* restart the worker\.$/, { commands: { rehearsal: true } }],
  ["no entry", /^No tag may be written, because commands\.allow is empty: add/, { commands: { allow: [] } }],
  ["no list of tags", /^The worker does not list the tags of main /, { source: { schedules: { tags: false } } }],
  [
    "no listener at the broker",
    /^No sink listens for commands, .* set sinks\.broker\.mqtt\.commands: \{ enabled: true \};/,
    { sinks: MQTT_OFF },
  ],
  ["no broker", /^No sink listens for commands, .* add an mqtt sink with/, { sinks: {} }],
  [
    "a sender that cannot send",
    /^The sink files cannot send commands, because file only receives events: name an mqtt sink/,
    { sinks: { files: { file: { folder: "events" } } }, tag: { from: ["files"] } },
  ],
  [
    "a sender that is switched off",
    /^The sink broker is switched off, .* set sinks\.broker\.enabled: true\.$/,
    { sinks: { broker: { enabled: false, mqtt: BROKER } }, tag: { from: ["broker", "operator"] } },
  ],
  [
    "a sender that does not listen",
    /^The sink broker does not listen for commands: set sinks\.broker\.mqtt\.commands: \{ enabled: true \}\.$/,
    { sinks: MQTT_OFF, tag: { from: ["broker"] } },
  ],
  ["no sender", /^Tag 10170 may be written by no sender, because its from is empty/, { tag: { from: [] } }],
  [
    "a second person without a way to agree",
    /^Tag 10170 needs a second person, who agrees .* set commands: \{ enabled: true \} at an mqtt sink\.$/,
    { sinks: MQTT_OFF, tag: { from: ["operator"], second_person: true } },
  ],
  [
    "hours that are over",
    /^Tag 10170 is closed now: The tag may be written from \d\d:00 to \d\d:00 only\.$/,
    { tag: { hours: otherHours() } },
  ],
  [
    "the kill switch",
    /^Writing is stopped by the kill switch: .*`plenum writes resume`\.$/,
    { commands: { stopped: 1 } },
  ],
  [
    "a state that is not armed",
    /^Writing was never armed in the state .* run plenum writes arm once\.$/,
    {},
    { isArmed: false },
  ],
  ["no state yet", /^This machine has no state yet, .* run plenum writes arm once/, {}, { isNew: true }],
  [
    "a full audit log",
    /^The audit log is full, .* raise commands\.audit_max_bytes\.$/,
    { commands: { audit_max_bytes: "1MiB" } },
  ],
  [
    "a gateway that is offline",
    /^Tag 10170 is not written until its gateway is back\. The gateway is offline: Cellar\.$/,
    {},
    { hasOfflineGateway: true },
  ],
];

test.for(CASES)(
  "plenum check reports exactly one obstacle to tag writes for the case: %s",
  async ([, detail, settings, state]) => {
    const obstacles = await findObstacles(settings, state);
    expect(obstacles.map((line) => line.detail)).toEqual([expect.stringMatching(detail)]);
    expect(obstacles[0]?.what).toBe("writing");
  },
);

test("plenum check reports no obstacle to tag writes when every condition is met, or when only the operator may write", async () => {
  expect(await findObstacles({})).toEqual([]);
  expect(await findObstacles({ sinks: {}, tag: { from: ["operator"] } })).toEqual([]);
});

test("docs/troubleshooting.md quotes each message of plenum check about blocked tag writes and names the command", async () => {
  const page = readFileSync(join(import.meta.dirname, "../../docs/troubleshooting.md"), "utf8");
  const [, section = ""] = /^## A command has no effect\n([\s\S]*?)^## /m.exec(page) ?? [];
  expect(section).toContain("`plenum check`");
  const quotes = [...section.matchAll(/^\| `([^`]+)` \|/gm)].map(([, quote = ""]) => quote);
  const pattern = (quote: string) =>
    new RegExp(
      quote
        .split("…")
        .map((part) => RegExp.escape(part))
        .join(".*"),
    );
  const details = await Promise.all(
    CASES.map(async ([, , settings, state]) => (await findObstacles(settings, state))[0]?.detail ?? ""),
  );
  expect(details.filter((detail) => quotes.filter((quote) => pattern(quote).test(detail)).length !== 1)).toEqual([]);
  // Other tests have: worker, approval, token, clock.
  const unmatchedQuotes = quotes.filter((quote) => !details.some((detail) => pattern(quote).test(detail)));
  expect(unmatchedQuotes).toEqual([
    "No worker is running here",
    "What may be written is not approved as it stands",
    "the token lacks",
    "nothing is written until it is set",
  ]);
});

test.skipIf(absent("mosquitto"))(
  "plenum check reports that a tag may be written once the last missing condition is met",
  async () => {
    const [service, broker] = await Promise.all([simulatedServer({ sites: [6] }), startMosquitto()]);
    onTestFinished(() => broker.stop());
    const cli = openHarness(service.url);
    const configure = (isListening: boolean) =>
      cli.configure({
        sinks: { broker: { mqtt: { url: broker.url, commands: { enabled: isListening } } } },
        commands: { enabled: true, allow: [TAG] },
      });
    const checkLinesOfTag = async () =>
      (await cli.plenum("check")).stdout.split("\n").filter((line) => /^(writing|main: commands) /.test(line));
    configure(true);
    await cli.run("--arm-writing");
    expect(await checkLinesOfTag()).toEqual([
      expect.stringMatching(/^main: commands +ok +1 tag of commands\.allow found in the building: 10170$/),
      expect.stringMatching(/^writing +ok +1 tag may be written: 10170$/),
    ]);
    configure(false);
    expect(await checkLinesOfTag()).toEqual([
      expect.stringMatching(/^writing +warning +plenum\.yaml:\d+:\d+ No sink listens for commands, /),
      expect.stringMatching(/^main: commands +ok /),
    ]);
  },
);
