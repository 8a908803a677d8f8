import { z } from "zod";
import { CONNECTOR_NAMES, CONNECTORS, type ConnectorName, getConnector } from "../../../connectors/catalog.ts";
import { EVENT_KINDS } from "../../core/model/event.ts";
import { Duration, formatDuration } from "../../core/values/duration.ts";
import { globMatches } from "../../core/values/glob.ts";
import { CommandsConfig } from "../../engine/commands/config.ts";
import { DeliveryConfig } from "../../engine/delivery/config.ts";
import { SourceConfig } from "../../engine/source/config.ts";
import { StateConfig } from "../../engine/store/state-config.ts";
import { SyncConfig } from "../../engine/sync/config.ts";
import { HistoryConfig } from "../../engine/sync/history/config.ts";
import { ReadConfig } from "../../engine/sync/read/config.ts";
import { StatusConfig } from "../../ui/status/status-config.ts";

/** Name that the user gives to a source or sink. */
const EntryName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, "Use up to 64 of a-z, 0-9, _ and -, a letter or digit first.");

const SourceSection = SourceConfig.safeExtend({
  ...SyncConfig.shape,
  read: ReadConfig.prefault([]),
  history: HistoryConfig.prefault([]),
  names: z.string().min(1).optional().meta({
    description:
      "CSV file with names of tags for other systems, relative to the folder of this file: columns tag_id,path,alias,unit_code. The worker reads it again when it changes; `plenum names` writes and checks it.",
  }),
}).meta({ description: "One monitoring service: an address, a token and a quota." });

type ConnectorConfigOptions = { readonly [Id in ConnectorName]: z.ZodOptional<(typeof CONNECTORS)[Id]["Config"]> };

const connectorConfigOptions = Object.fromEntries(
  CONNECTOR_NAMES.map((name) => [name, CONNECTORS[name].Config.optional()]),
) as unknown as ConnectorConfigOptions;

/** Default retry schedules of all connectors, for the description of the option `schedule`. */
const DEFAULT_RETRY_SCHEDULES_TEXT = [
  "false",
  ...CONNECTOR_NAMES.flatMap((name) => {
    const { retryWaitsMs } = getConnector(name);
    return retryWaitsMs === undefined ? [] : [`for ${name} [${retryWaitsMs.map(formatDuration).join(", ")}]`];
  }),
].join(", but ");

const SinkSection = z
  .strictObject({
    enabled: z.boolean().default(true).meta({ description: "False keeps the sink's position but sends nothing." }),
    ...connectorConfigOptions,
    ...DeliveryConfig.shape,
    schedule: z
      .union([z.literal(false), z.array(Duration)])
      .optional()
      .meta({
        description: `Waits between attempts for one event that the server answers but does not accept, e.g. [5s, 5m, 30m, 2h]; after the last attempt it becomes a dead letter. An outage does not count. False: retry with the waits of \`retry\` while the event is stored. The default is the connector's: ${DEFAULT_RETRY_SCHEDULES_TEXT}.`,
      }),
  })
  .superRefine((sink, context) => {
    const connectorsOfSink = listSinkConnectors(sink);
    if (sink.sequence && !connectorsOfSink.some(canSendSequenceNumber)) {
      const connectorsWithSequence = CONNECTOR_NAMES.filter(canSendSequenceNumber).join(", ");
      const message = `Nothing there carries a number; \`sequence\` is for ${connectorsWithSequence}.`;
      context.addIssue({ code: "custom", path: ["sequence"], message });
    }
    if (connectorsOfSink.length === 1) return;
    const message =
      connectorsOfSink.length === 0
        ? `Say which connector this sink uses: one of ${CONNECTOR_NAMES.join(", ")}, with its options.`
        : `A sink uses one connector, not ${connectorsOfSink.join(" and ")}; make it ${connectorsOfSink.length} sinks.`;
    context.addIssue({ code: "custom", message });
  })
  .transform(({ schedule, ...sink }) => {
    const retryWaits = schedule ?? findDefaultSchedule(sink);
    return { ...sink, filter: buildEventFilter(sink), ...(retryWaits === false ? {} : { schedule: retryWaits }) };
  })
  .meta({ description: "A destination of events: one connector with its options, and the delivery." });
export type SinkConfigEntry = z.output<typeof SinkSection>;

function listSinkConnectors(sink: Readonly<Partial<Record<ConnectorName, unknown>>>): readonly ConnectorName[] {
  return CONNECTOR_NAMES.filter((name) => sink[name] !== undefined);
}

const canSendSequenceNumber = (name: ConnectorName): boolean => getConnector(name).carriesSequence === true;

function findDefaultSchedule(sink: Parameters<typeof listSinkConnectors>[0]): number[] | false {
  const [name] = listSinkConnectors(sink);
  const retryWaitsMs = name && getConnector(name).retryWaitsMs;
  return retryWaitsMs === undefined ? false : [...retryWaitsMs];
}

/** Removes event kinds that the connector does not use from the filter, unless no kind would remain. */
function buildEventFilter({ filter, ...sink }: DeliveryConfig): DeliveryConfig["filter"] {
  const [name] = listSinkConnectors(sink as Parameters<typeof listSinkConnectors>[0]);
  if (name === undefined) return filter;
  const connectorKinds = getConnector(name).kinds?.((sink as Record<string, unknown>)[name]);
  if (connectorKinds === undefined) return filter;
  if (filter.kinds.length === 0) return { ...filter, kinds: [...connectorKinds] };
  const matchesGlob = (patterns: readonly string[], kind: string) => patterns.some((glob) => globMatches(glob, kind));
  const eventKinds = EVENT_KINDS.filter((kind) => matchesGlob(filter.kinds, kind) && matchesGlob(connectorKinds, kind));
  return eventKinds.length === 0 ? filter : { ...filter, kinds: eventKinds };
}

const LogLevel = z.enum(["trace", "debug", "info", "warn", "error", "silent"]).default("info");
const LOG_LEVEL_DESCRIPTION = "Minimum level of the JSON lines on standard error.";
const LogConfig = z.strictObject({ level: LogLevel.meta({ description: LOG_LEVEL_DESCRIPTION }) });

export const ConfigSections = z.strictObject({
  state: StateConfig.prefault({}),
  log: LogConfig.prefault({}).meta({ description: "The log." }),
  status: StatusConfig.prefault({}).meta({ description: "Status page, health and metrics." }),
  sources: z
    .record(EntryName, SourceSection)
    .refine((sources) => Object.keys(sources).length > 0, "Name at least one source.")
    .meta({ description: "The monitoring services, with names that you choose." }),
  sinks: z
    .record(EntryName, SinkSection)
    .prefault({})
    .meta({ description: "Destinations of events, with names that you choose." }),
  commands: CommandsConfig.prefault({}).meta({
    description: "Tag writes from MQTT and the command line. Disabled by default.",
  }),
});
export type ConfigSections = z.output<typeof ConfigSections>;

export function findSinkConnector(sink: SinkConfigEntry): ConnectorName {
  const [name] = listSinkConnectors(sink);
  if (name === undefined) throw new Error("a sink without a connector passed the schema");
  return name;
}
