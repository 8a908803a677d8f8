import { isDeepStrictEqual } from "node:util";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { Config } from "#src/app/config/config.ts";
import { computeConfigInForce, findConfigChanges } from "#src/app/config/config-changes.ts";
import { configured, type Parts } from "./configured.ts";

interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema;
}

function withAnother(path: readonly string[]): Config {
  const changedConfig = structuredClone(configured()) as Parts;
  const lastStep = path.at(-1) ?? "";
  const place = path.slice(0, -1).reduce<Parts>((at, key) => at[key], changedConfig);
  place[lastStep] = "another";
  return changedConfig as Config;
}

function everyOption(): readonly (readonly string[])[] {
  const { properties } = z.toJSONSchema(Config, { io: "output", unrepresentable: "any" }) as Schema;
  const listOptions = (at: readonly string[], schema: Schema | undefined): readonly (readonly string[])[] =>
    Object.keys(schema?.properties ?? {}).map((key) => [...at, key]);
  const source = properties?.sources?.additionalProperties;
  expect(
    Object.keys(properties ?? {})
      .toSorted()
      .join(" "),
  ).toBe("commands log sinks sources state status");
  return [
    ...["state", "log", "status", "commands"].flatMap((section) => listOptions([section], properties?.[section])),
    ...listOptions(["sources", "main"], source),
    ...listOptions(["sources", "main", "quota"], source?.properties?.quota),
  ];
}

const RESTART: readonly string[] = [
  "commands.rehearsal",
  "sources.main.allow_plain_http",
  "sources.main.base_url",
  "sources.main.ca_file",
  "sources.main.deadlines",
  "sources.main.max_body_bytes",
  "sources.main.page_size",
  "sources.main.proxy",
  "sources.main.quota.list_requests_per_minute",
  "sources.main.quota.separate_endpoints",
  "sources.main.time_zone",
  "sources.main.token",
  "state.folder",
  "state.plots",
  "state.postgres",
  "status.behind_tls_proxy",
  "status.host",
  "status.port",
  "status.trusted_proxy",
];

describe("a changed option of the configuration", () => {
  test("is reported for each option of the schema", () => {
    const paths = everyOption();
    expect(paths.length).toBeGreaterThan(45);
    for (const path of paths) {
      const changes = findConfigChanges(configured(), withAnother(path));
      expect(changes.map((each) => each.path)).toEqual([path.join(".")]);
    }
  });

  test("waits for a restart with its old value exactly when the option is in the list of restart options", () => {
    const waitingOptions = everyOption().filter((path) => {
      const [change] = findConfigChanges(configured(), withAnother(path));
      const isUnchanged = isDeepStrictEqual(computeConfigInForce(configured(), withAnother(path)), configured());
      expect(isUnchanged, path.join(".")).toBe(change?.effect === "restart");
      expect(change?.how, path.join(".")).not.toContain("the passwords belong to an address");
      return change?.effect === "restart";
    });
    expect(waitingOptions.map((path) => path.join(".")).toSorted()).toEqual(RESTART);
  });
});
