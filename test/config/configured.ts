import { readFileSync } from "node:fs";
import { join } from "node:path";
import { CONNECTOR_NAMES } from "#connectors/catalog.ts";
import { Config } from "#src/app/config/config.ts";

export const KEY = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";

export function configured(change: (parts: Parts) => void = () => undefined): Config {
  const configParts: Parts = {
    state: { folder: "state" },
    status: { port: 9850 },
    sources: {
      main: {
        base_url: "https://monitoring.example.com",
        token: { file: "token.txt" },
        time_zone: "Europe/Oslo",
        read: [
          { name: "rooms", select: { units: ["°C"] }, every: "10m" },
          { name: "rest", every: "1h" },
        ],
        history: [{ name: "all", resolution: "1h" }],
      },
    },
    sinks: {
      lake: { influxdb: { url: "http://127.0.0.1:8086", org: "o", bucket: "b", token: { env: "T" } } },
      chat: {
        webhook: { url: "https://hooks.example.com/T000/B000/XXXX", unsigned: true },
        filter: { kinds: ["alarm-*"] },
      },
    },
    commands: { enabled: true, allow: [{ type: "number", site_id: 1, tag_id: "10", min: 18, max: 24 }] },
  };
  change(configParts);
  return Config.parse(configParts);
}
// biome-ignore lint/suspicious/noExplicitAny: a test writes into any part of a configuration
export type Parts = Record<string, any>;

const listConnectors = (message: string) => message.replaceAll("$CONNECTORS", CONNECTOR_NAMES.join(", "));

/** YAML text of a valid source. */
export const SOURCE = `sources:
  main:
    base_url: https://monitoring.example.com
    token: { env: TOKEN }
    time_zone: Europe/Stockholm
`;

/**
 * Cases of mistakes.txt: text after `===`, expected message after `>>>`. `$S` stands for a valid source, `$CONNECTORS`
 * for the names of all connectors.
 */
export const MISTAKES = readFileSync(join(import.meta.dirname, "mistakes.txt"), "utf8")
  .split(/^=== /m)
  .slice(1)
  .map((text) => {
    const [, what = "", written = "", said = ""] = /^(.*)\n([\s\S]*?)^>>>\n([\s\S]*)$/m.exec(text) ?? [];
    return { what, written: written.replace("$S\n", SOURCE), said: listConnectors(said).trimEnd().split("\n") };
  });
