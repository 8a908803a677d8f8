import { describe, expect, test } from "vitest";
import type { Config } from "#src/app/config/config.ts";
import { computeConfigInForce, findConfigChanges } from "#src/app/config/config-changes.ts";
import { configured, KEY, type Parts } from "./configured.ts";

const changesAfter = (change: (parts: Parts) => void) => findConfigChanges(configured(), configured(change));

describe("findConfigChanges (two configurations)", () => {
  test("returns no changes for equal configurations", () => {
    expect(changesAfter(() => undefined)).toEqual([]);
  });

  test("identifies a read class by its name, and prints a duration as written in the file", () => {
    const path = "sources.main.read.rooms.every";
    expect(changesAfter((parts) => (parts.sources.main.read[0].every = "5m"))).toEqual([
      { path, before: "10m", after: "5m", effect: "alone", how: "with the next request" },
    ]);
  });

  test("reports a changed order of read classes as one change", () => {
    const [only, ...others] = changesAfter((parts) => parts.sources.main.read.reverse());
    expect(others).toEqual([]);
    expect(only).toMatchObject({
      path: "sources.main.read.(order)",
      before: '["rooms","rest"]',
      after: '["rest","rooms"]',
      effect: "alone",
    });
  });

  test("reports added, removed, disabled and changed sinks", () => {
    const all = changesAfter((parts) => {
      parts.sinks.lines = { file: { folder: "events" }, from: "beginning" };
      parts.sinks.lake.enabled = false;
      parts.sinks.chat.filter.kinds = ["alarm-raised"];
    });
    expect(all.map(({ path, before, after, effect }) => [path, before, after, effect])).toEqual([
      ["sinks.lake.enabled", "true", "false", "alone"],
      ["sinks.chat.filter.kinds", '["alarm-*"]', '["alarm-raised"]', "alone"],
      ["sinks.lines", null, "file", "alone"],
    ]);
    expect(all.map(({ how }) => how)).toEqual([
      "the sink finishes its batch, keeps its place and gets nothing more",
      "the sink finishes its batch and goes on at the same place",
      "the sink begins with from: beginning; one of this name that was there before goes on where it was",
    ]);
    expect(changesAfter((parts) => delete parts.sinks.chat)).toMatchObject([
      { path: "sinks.chat", before: "webhook", after: null, effect: "alone" },
    ]);
  });

  test("hides changed secrets", () => {
    const all = changesAfter((parts) => {
      parts.sinks.lake.influxdb.token = { file: "/run/secrets/influx" };
      parts.sinks.chat.webhook.url = "https://hooks.example.com/T000/B000/YYYY";
      parts.sinks.chat.webhook.headers = { authorization: { env: "CHAT" } };
      parts.status.password = { file: "/run/secrets/page" };
    });
    const changesText = JSON.stringify(all);
    for (const secret of ["XXXX", "YYYY", "/run/secrets", "CHAT"]) expect(changesText).not.toContain(secret);
    const { before, after } = all.find(({ path }) => path === "sinks.lake.influxdb.token") ?? {};
    expect([before, after]).toEqual(["secret", "another secret"]);
    expect(all.find(({ path }) => path === "sinks.chat.webhook.url")).toMatchObject({
      before: "https://hooks.example.com/…",
      after: "another https://hooks.example.com/…",
    });
    expect(all.find(({ path }) => path === "status.password")).toMatchObject({ before: null, after: "secret" });
  });

  test("requires a restart for an added or removed source", () => {
    const twoSources = configured((parts) => {
      parts.sources.other = { ...parts.sources.main, token: { file: "other.txt" } };
      parts.commands.allow[0].source = "main";
    });
    for (const [before, after] of [
      [configured(), twoSources],
      [twoSources, configured()],
    ] as const) {
      const sourceChange = findConfigChanges(before, after).find(({ path }) => path === "sources.other");
      expect(sourceChange).toMatchObject({ effect: "restart", how: "sources are connected at a start" });
      expect(Object.keys(computeConfigInForce(before, after).sources)).toEqual(Object.keys(before.sources));
    }
  });

  test("reports an added read class without reporting a changed order", () => {
    const all = changesAfter((parts) => {
      parts.sources.main.read.splice(1, 0, { name: "doors", select: { units: ["-"] }, every: "5m" });
    });
    expect(all.map(({ path, effect }) => [path, effect])).toEqual([["sources.main.read.doors", "alone"]]);
  });

  test("identifies a writable tag by its source and id", () => {
    const limits = (max: number, source?: string) =>
      configured((parts) => {
        const entry = { type: "number", site_id: 1, min: 18, ...(source !== undefined && { source }) };
        parts.commands.allow = [
          { ...entry, tag_id: "10", max },
          { ...entry, tag_id: "11", max: 24 },
        ];
      });
    const changedLimits = (before: Config, after: Config) =>
      findConfigChanges(before, after).map(({ path, before: was, after: now }) => [path, was, now]);
    expect(changedLimits(limits(24), limits(22))).toEqual([["commands.allow.10.max", "24", "22"]]);
    expect(changedLimits(limits(24, "main"), limits(22, "main"))).toEqual([["commands.allow.main/10.max", "24", "22"]]);
  });

  test("reports a changed list of unnamed items as one change", () => {
    const signed = (...names: readonly string[]) =>
      configured((parts) => {
        const secrets = names.map((env) => ({ env }));
        parts.sinks.chat.webhook = { url: "https://hooks.example.com/T000", secrets };
      });
    const paths = findConfigChanges(signed("ONE"), signed("TWO", "THREE")).map(({ path }) => path);
    expect(paths).toEqual(["sinks.chat.webhook.secrets"]);
    expect(findConfigChanges(signed("ONE"), signed("TWO")).map(({ path }) => path)).toEqual(paths);
  });

  test("reports a list that becomes empty or non-empty as one change", () => {
    const path = "sinks.chat.filter.kinds";
    const emptied = configured((parts) => (parts.sinks.chat.filter.kinds = []));
    expect(findConfigChanges(configured(), emptied)).toMatchObject([{ path, before: '["alarm-*"]' }]);
    expect(findConfigChanges(emptied, configured())).toMatchObject([{ path, after: '["alarm-*"]' }]);
  });

  test("returns the changes that apply at once plus the changes that wait for a restart", () => {
    const oldConfig = configured();
    const newConfig = configured((parts) => {
      parts.state = { folder: "elsewhere", max_age: "3d" };
      parts.sources.main.base_url = "https://other.example.com";
      parts.sources.main.quota = { requests_per_minute: 10, separate_endpoints: true };
      parts.sources.main.history = [];
      parts.log = { level: "debug" };
      delete parts.sinks.lake;
      parts.commands.allow[0].max = 22;
    });
    const now = computeConfigInForce(oldConfig, newConfig);
    const all = findConfigChanges(oldConfig, newConfig);
    expect(findConfigChanges(oldConfig, now)).toEqual(all.filter(({ effect }) => effect === "alone"));
    expect(findConfigChanges(now, newConfig)).toEqual(all.filter(({ effect }) => effect === "restart"));
    expect(all.filter(({ effect }) => effect === "restart").map(({ path }) => path)).toEqual([
      "state.folder",
      "sources.main.base_url",
      "sources.main.quota.separate_endpoints",
    ]);
  });

  test("requires a restart for writable tags when the sources change too", () => {
    const all = changesAfter((parts) => {
      parts.sources.other = { ...parts.sources.main, token: { file: "other.txt" } };
      parts.commands.allow = [{ type: "number", source: "other", site_id: 1, tag_id: "10", min: 18, max: 24 }];
    });
    expect(all.every(({ effect }) => effect === "restart")).toBe(true);
  });

  test("requires a restart for passwords when the address of the status page changes too", () => {
    const all = changesAfter((parts) => {
      parts.status = { port: 9851, password: { env: "PAGE" } };
    });
    expect(all.map(({ path, effect }) => [path, effect])).toEqual([
      ["status.port", "restart"],
      ["status.password", "restart"],
    ]);
    const approval = { file: "approvals.json", approvers: { ann: KEY }, needed: 1 };
    expect(changesAfter((parts) => (parts.commands.approval = approval))).toMatchObject([
      { path: "commands.approval", effect: "alone", how: "at once, as far as it is approved" },
    ]);
  });
});
