import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { buildMessagesSchema } from "../connectors/mqtt/message-schemas.ts";
import { configJsonSchema } from "../src/app/config/config.ts";
import { completeProgram } from "../test/cli/complete-program.ts";
import { sampleOfEveryForm } from "../test/sample-events.ts";
import { COMMANDS_FILE, commandsText } from "./reference/commands.ts";
import { CONFIGURATION_FILE, configurationText } from "./reference/configuration.ts";
import { eventTypes } from "./reference/event-types.ts";
import { EVENTS_FILE, eventsText } from "./reference/events.ts";
import { describeMetrics, METRICS_FILE, metricsText } from "./reference/metrics.ts";

/** `npm run reference` generates docs/reference from the code. */

const ROOT = join(import.meta.dirname, "..");

export const MQTT_SCHEMA_FILE = "docs/reference/mqtt.schema.json";

export interface ReferenceDocument {
  readonly file: string;
  text(): string | Promise<string>;
  /** The only platform whose text is committed. */
  readonly platform?: NodeJS.Platform;
}

export const DOCUMENTS: readonly ReferenceDocument[] = [
  { file: EVENTS_FILE, text: () => eventsText(eventTypes(ROOT), sampleOfEveryForm()) },
  { file: CONFIGURATION_FILE, text: () => configurationText(configJsonSchema()) },
  { file: METRICS_FILE, text: () => metricsText(describeMetrics()), platform: "linux" },
  { file: MQTT_SCHEMA_FILE, text: () => `${JSON.stringify(buildMessagesSchema(), null, 2)}\n` },
  { file: COMMANDS_FILE, text: async () => commandsText(await completeProgram()) },
];

if (import.meta.main) {
  for (const { file, text, platform = process.platform } of DOCUMENTS) {
    if (platform !== process.platform) continue;
    const path = join(ROOT, file);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, await text());
  }
  // Modules of the command line keep timers running, which would keep the process from ending.
  process.exit();
}
