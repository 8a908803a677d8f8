import { describe, expect, onTestFinished, test } from "vitest";
import { absent, startInflux, startMosquitto } from "../real-servers.ts";
import { simulatedServer, workplace } from "./plenum.ts";

describe.skipIf(absent("influxd") || absent("mosquitto"))("the sinks of a configuration", () => {
  test("plenum check accepts correct sinks, and warns of a backfill that is longer than a sink's retention", async () => {
    const service = await simulatedServer();
    const [influx, broker] = await Promise.all([startInflux(), startMosquitto()]);
    onTestFinished(async () => {
      await Promise.all([influx.stop(), broker.stop()]);
    });
    const create = new URLSearchParams({ q: "CREATE DATABASE short WITH DURATION 240h" });
    await fetch(`${influx.url}/query?${create.toString()}`, { method: "POST" });
    const cli = workplace(service.url);
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
