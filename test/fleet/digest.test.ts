import { describe, expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { digestSharedConfig } from "#src/scale/fleet/fleet-tables.ts";

const SOURCE = { base_url: "http://127.0.0.1", token: { env: "TOKEN" }, time_zone: "UTC" };
const SINKS = { lake: { webhook: { url: "https://lake.example.com/in", secrets: [{ env: "LAKE_SECRET" }] } } };

const parseConfig = (changes: object) => Config.parse({ sources: { main: SOURCE }, sinks: SINKS, ...changes });
const digest = (changes = {}): string => digestSharedConfig(parseConfig(changes));

describe("the digest of a configuration", () => {
  test("the digest of a configuration is the same for any order of keys and for explicit default values", () => {
    expect(digest()).toMatch(/^[0-9a-f]{16}$/);
    const backwards = Object.fromEntries(Object.entries(SOURCE).toReversed());
    expect(digest({ sources: { main: backwards } })).toBe(digest());
    expect(digest({ state: { max_age: "168h" } })).toBe(digest());
  });

  test.each([
    ["log", { log: { level: "debug" } }],
    ["folder", { state: { folder: "elsewhere" } }],
  ])("the digest of a configuration ignores options that may differ between machines: %s", (_, changes) => {
    expect(digest(changes)).toBe(digest());
  });

  test.each([
    ["a source more", { sources: { main: SOURCE, other: { ...SOURCE, token: { env: "OTHER" } } } }],
    ["another address", { sources: { main: { ...SOURCE, base_url: "http://127.0.0.2" } } }],
    ["no sink", { sinks: {} }],
    ["commands", { commands: { rehearsal: true } }],
    ["a bound of the state", { state: { max_age: "1d" } }],
    ["plots", { state: { plots: false } }],
  ])("the digest of a configuration changes with options that affect how a source is handled: %s", (_, changes) => {
    expect(digest(changes)).not.toBe(digest());
  });

  test("the digest of a configuration distinguishes numbers that JSON does not support", () => {
    const config = parseConfig({});
    const digestWithAge = (max_age: number | null) =>
      digestSharedConfig({ ...config, state: { ...config.state, max_age: max_age as number } });
    const all = [null, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY].map(digestWithAge);
    expect(new Set(all).size).toBe(4);
  });
});
