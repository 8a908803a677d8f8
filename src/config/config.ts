import { z } from "zod";
import { CATALOG } from "../../connectors/catalog.ts";
import { CommandsConfig } from "../commands/config.ts";
import { DeliveryConfig } from "../delivery/config.ts";
import { SourceConfig } from "../source/config.ts";
import { StatusConfig } from "../status/config.ts";
import { StateConfig } from "../store/config.ts";
import { SyncConfig } from "../sync/config.ts";
import { HistoryConfig, ReadConfig } from "../sync/read-config.ts";

/**
 * The whole configuration file. Each room declares its own part beside the code that uses it; here they are only
 * put together.
 */

/** Names go into topics, metrics and file names. */
const Name = z
  .string()
  .regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, "Use up to 64 of a-z, 0-9, _ and -, a letter or digit first.");

const Source = SourceConfig.safeExtend({
  ...SyncConfig.shape,
  read: ReadConfig.prefault([]),
  history: HistoryConfig.prefault([]),
}).meta({ description: "One monitored service: a base address and a token, with a quota of its own." });

const connectorFields = {
  mqtt: CATALOG.mqtt.Config.optional(),
  influxdb: CATALOG.influxdb.Config.optional(),
  webhook: CATALOG.webhook.Config.optional(),
  file: CATALOG.file.Config.optional(),
  stdout: CATALOG.stdout.Config.optional(),
} satisfies Record<keyof typeof CATALOG, z.ZodType>;

const CONNECTORS = Object.keys(connectorFields) as readonly (keyof typeof CATALOG)[];

const Sink = z
  .strictObject({
    enabled: z
      .boolean()
      .default(true)
      .meta({ description: "False keeps the sink's place but sends nothing." }),
    ...connectorFields,
    ...DeliveryConfig.shape,
  })
  .superRefine((sink, context) => {
    const chosen = CONNECTORS.filter((name) => sink[name] !== undefined);
    if (chosen.length === 1) return;
    const message =
      chosen.length === 0
        ? `Say which connector this sink uses: one of ${CONNECTORS.join(", ")}, with its options.`
        : `A sink uses one connector, not ${chosen.join(" and ")}; make it ${chosen.length} sinks.`;
    context.addIssue({ code: "custom", message });
  })
  .meta({ description: "Where events go: one connector with its options, and how events get there." });
export type SinkEntry = z.output<typeof Sink>;

const LogConfig = z.strictObject({
  level: z
    .enum(["trace", "debug", "info", "warn", "error", "silent"])
    .default("info")
    .meta({ description: "JSON lines of this level and above go to standard error." }),
});

export const Config = z
  .strictObject({
    state: StateConfig.prefault({}),
    log: LogConfig.prefault({}).meta({ description: "The log." }),
    status: StatusConfig.prefault({}).meta({ description: "Status page, health and metrics." }),
    sources: z
      .record(Name, Source)
      .refine((sources) => Object.keys(sources).length > 0, "Name at least one source.")
      .meta({ description: "The monitored services, by a name of your own." }),
    sinks: z.record(Name, Sink).prefault({}).meta({ description: "Where events go, by a name of your own." }),
    commands: CommandsConfig.prefault({}).meta({
      description: "Tag writes from MQTT and the command line. Closed unless opened here.",
    }),
  })
  .superRefine((config, context) => {
    const names = Object.keys(config.sources);
    for (const [index, entry] of config.commands.allow.entries()) {
      if (entry.source === undefined ? names.length === 1 : names.includes(entry.source)) continue;
      context.addIssue({
        code: "custom",
        path: ["commands", "allow", index, "source"],
        message: `Name the source of this tag: ${names.join(", ")}.`,
      });
    }
  });
export type Config = z.output<typeof Config>;
export type SourceEntry = Config["sources"][string];

/** Which connector a sink entry uses; the schema has made sure that it is exactly one. */
export function connectorOf(sink: SinkEntry): keyof typeof CATALOG {
  const name = CONNECTORS.find((each) => sink[each] !== undefined);
  if (name === undefined) throw new Error("a sink without a connector passed the schema");
  return name;
}
