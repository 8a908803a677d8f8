import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv } from "ajv";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { CONNECTOR_NAMES } from "#connectors/catalog.ts";
import { Config } from "#src/app/config/config.ts";
import { loadYamlConfig } from "#src/app/config/load.ts";
import { listOptionPaths } from "#src/app/config/schema-lookup.ts";
import { PostgresState, StateConfig } from "#src/engine/store/state-config.ts";

const root = join(import.meta.dirname, "../..");
const file = join(root, "config/example.yaml");
const text = readFileSync(file, "utf8");
const environment = { PLENUM_SERVICE_URL: "https://monitoring.example.com" };

/** Paths as `listOptionPaths` spells them: `*` for a user-defined name, `[]` for an entry. */
function usedPaths(value: unknown, known: ReadonlySet<string>, path = ""): readonly string[] {
  if (Array.isArray(value)) return [path, ...value.flatMap((entry) => usedPaths(entry, known, `${path}[]`))];
  if (typeof value !== "object" || value === null) return path.endsWith("]") ? [] : [path];
  const hasOwnNames = [...known].some((each) => each.startsWith(`${path}.*.`));
  const keys = Object.entries(value).flatMap(([key, inner]) =>
    usedPaths(inner, known, path === "" ? key : `${path}.${hasOwnNames ? "*" : key}`),
  );
  return path === "" || path.endsWith("*") || path.endsWith("]") ? keys : [path, ...keys];
}

function fleetBlock(text: string): string {
  const [, block = ""] = /^( {2}# postgres:\n(?: {2}# {3}.*\n)+)/m.exec(text) ?? [];
  return block.replaceAll(/^ {2}# /gm, "");
}

describe("config/example.yaml", () => {
  test("is valid once its environment variables are set, and has a sink of each connector", () => {
    const config = loadYamlConfig({ schema: Config, file, environment });
    const usedOptions = new Set(Object.values(config.sinks).flatMap((sink) => Object.keys(sink)));
    expect(CONNECTOR_NAMES.filter((name) => !usedOptions.has(name))).toEqual([]);
    expect(config.sources.campus?.base_url).toBe("https://monitoring.example.com");
  });

  test("is rejected with the name of its one required environment variable when the variable is not set", () => {
    expect(() => loadYamlConfig({ schema: Config, file, environment: {} })).toThrow(
      /:\d+:\d+ sources\.campus\.base_url: The environment variable PLENUM_SERVICE_URL is not set\. Set it to the address/,
    );
  });

  test("has every option of the schema, and no other", () => {
    const knownPaths = new Set(listOptionPaths(Config));
    const shown = new Set([
      ...usedPaths(parse(text), knownPaths),
      ...usedPaths({ state: parse(fleetBlock(text)) }, knownPaths),
    ]);
    const otherForm = (path: string) => path.replace(/\.(file|env)$/, (end) => (end === ".env" ? ".file" : ".env"));
    const absent = [...knownPaths].filter((path) => !shown.has(path) && !shown.has(otherForm(path)));
    expect(absent, "options without a line in config/example.yaml").toEqual([]);
    const unknownOptions = [...shown].filter((path) => !knownPaths.has(path));
    const userDefinedKeys = /\.(headers|tags|labels|approvers|jira\.priority|fields|words|body)\./;
    expect(unknownOptions.filter((path) => !userDefinedKeys.test(path))).toEqual([]);
  });

  test("is valid when the commented fleet options are enabled", () => {
    const { postgres } = StateConfig.parse(parse(fleetBlock(text)));
    const defaultPostgres = PostgresState.parse({ url: postgres?.url });
    expect({ ...postgres, password: undefined, ca_file: undefined }).toEqual(defaultPostgres);
  });

  test("shows the default of each option unless a comment says otherwise", () => {
    const config = loadYamlConfig({ schema: Config, file, environment });
    const defaultConfig = Config.parse({
      sources: { campus: { base_url: "https://x", token: { env: "TOKEN" }, time_zone: "Europe/Stockholm" } },
      sinks: {
        broker: { mqtt: { url: "mqtt://x" } },
        lake: { influxdb: { url: "http://x", bucket: "b" } },
        tickets: { webhook: { url: "https://x", unsigned: true } },
        chat: { slack: { token: { env: "T" }, channel: "C0123ABCD" } },
        issues: { jira: { url: "https://x", user: "u", token: { env: "T" }, project: "P" } },
        incidents: { servicenow: { url: "https://x", user: "u", password: { env: "P" } } },
        pager: { webhook: { format: "pagerduty", key: { env: "K" } } },
        database: { postgres: { host: "x", database: "d", user: "u" } },
        files: { file: { folder: "f" } },
        tables: { parquet: { folder: "f" } },
        "tables-in-s3": {
          parquet: { s3: { bucket: "lake", access_key_id: { env: "I" }, secret_access_key: { env: "K" } } },
        },
      },
    });
    const changedDefaults: string[] = [];
    compare(defaultConfig, config, "");
    const connection = "proxy ca_file allow_networks";
    const ticket = "fold.storm quiet status_url";
    const otherThanDefault = {
      "": "sinks.database.from sinks.files.from commands.rehearsal commands.approval commands.allow",
      "status.": "password viewer_password metrics_token trusted_proxy",
      "sources.campus.": "base_url token.env token.file ca_file proxy names read history alarms.sites",
      "sources.campus.inventory.": "sites tags_of_systems",
      "sinks.broker.mqtt.": "url client_id username password tls commands.enabled",
      "sinks.lake.influxdb.": "url org bucket token measurement_prefix tags proxy ca_file",
      "sinks.tickets.webhook.": `url secrets unsigned headers ${connection}`,
      "sinks.tickets.filter.": "kinds priorities sources",
      "sinks.tables.parquet.": "folder",
      "sinks.tables-in-s3.parquet.s3.":
        "endpoint region prefix path_style proxy ca_file session_token access_key_id.file access_key_id.env secret_access_key.env",
      "sinks.chat.slack.": `token.file token.env ${ticket} ${connection}`,
      "sinks.issues.jira.": `url user token.file token.env project priority labels fields done resolution reopen ${ticket} ${connection}`,
      "sinks.incidents.servicenow.": `url user password.file password.env assignment_group priority fields reopen_state close_code close_notes ${ticket} ${connection}`,
      "sinks.pager.webhook.": `url key.env key.file words ${ticket}`,
      "sinks.database.postgres.": "host port database user password sslmode ca_file",
      "sinks.files.file.": "folder path",
    };
    const expectedPaths = Object.entries(otherThanDefault).flatMap(([section, options]) =>
      options.split(" ").map((option) => section + option),
    );
    expect(changedDefaults.toSorted()).toEqual(expectedPaths.toSorted());

    function compare(a: unknown, b: unknown, path: string): void {
      const isSection = (value: unknown): value is Record<string, unknown> =>
        typeof value === "object" && value !== null && !Array.isArray(value);
      if (isSection(a) && isSection(b) && Object.keys(a).length > 0) {
        const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
        for (const key of keys) {
          if (path === "sinks" && !(key in a)) continue;
          compare(a[key], b[key], path === "" ? key : `${path}.${key}`);
        }
      } else if (JSON.stringify(a) !== JSON.stringify(b)) changedDefaults.push(path);
    }
  });
});

describe("config/schema.json", () => {
  const committed = JSON.parse(readFileSync(join(root, "config/schema.json"), "utf8"));

  test("accepts the example and rejects an unknown key", () => {
    const validate = new Ajv({ strict: false, formats: { uri: true } }).compile(committed);
    expect(validate(parse(text)), JSON.stringify(validate.errors)).toBe(true);
    const wrongConfig = parse(text);
    wrongConfig.sinks.files.file.foldr = "x";
    expect(validate(wrongConfig)).toBe(false);
  });

  test("is exactly what plenum schema prints; run npm run schema to write the file", () => {
    const printedSchema = execFileSync(process.execPath, [join(root, "src/cli/main.ts"), "schema"]).toString();
    expect(printedSchema).toBe(readFileSync(join(root, "config/schema.json"), "utf8"));
  });
});
