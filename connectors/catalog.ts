import type { ConnectorDefinition } from "../src/core/connector.ts";
import { AlertmanagerConfig } from "./alertmanager/config.ts";
import { EmailConfig } from "./email/config.ts";
import { FileConfig, sharedFolder } from "./file/config.ts";
import { searchCommand } from "./file/layout.ts";
import { exampleQuery, InfluxConfig } from "./influxdb/config.ts";
import { JiraConfig } from "./jira/config.ts";
import { KafkaConfig } from "./kafka/config.ts";
import { createTopics as createKafkaTopics } from "./kafka/topics.ts";
import { MqttConfig } from "./mqtt/config.ts";
import { messagesOf } from "./mqtt/messages.ts";
import { createTopics } from "./mqtt/topics.ts";
import { ParquetConfig, parquetQuery, sharedTables } from "./parquet/config.ts";
import { PostgresConfig, postgresQuery } from "./postgres/config.ts";
import { ServiceNowConfig } from "./servicenow/config.ts";
import { INCIDENT_KINDS } from "./shared/receiver/config.ts";
import { createReceiverSink, receiverConnector } from "./shared/receiver/sink.ts";
import { SlackConfig } from "./slack/config.ts";
import { createStdoutSink, StdoutConfig } from "./stdout/sink.ts";
import { isForEvents, WebhookConfig } from "./webhook/config.ts";

const mqtt = {
  name: "mqtt",
  summary: "Values, alarms and events as topics at an MQTT broker; commands from there.",
  Config: MqttConfig,
  carriesSequence: true,
  whereIs: ({ prefix, topic, retain }, event) =>
    messagesOf(event, createTopics(prefix, topic), retain)[0]?.topic ?? null,
  sink: async (config, context) => (await import("./mqtt/sink.ts")).createMqttSink(config, context),
  commands: async (config, context) => (await import("./mqtt/commands.ts")).createMqttCommands(config, context),
} satisfies ConnectorDefinition<MqttConfig>;

const influxdb = {
  name: "influxdb",
  summary: "Points in InfluxDB 1.x, 2, 3 or VictoriaMetrics.",
  Config: InfluxConfig,
  whereIs: exampleQuery,
  sink: async (config, context) => (await import("./influxdb/sink.ts")).createInfluxSink(config, context),
} satisfies ConnectorDefinition<InfluxConfig>;

const kafka = {
  name: "kafka",
  summary: "Events as CloudEvents in Kafka topics, acknowledged by all replicas in sync.",
  Config: KafkaConfig,
  carriesSequence: true,
  whereIs: ({ topic }, event) => createKafkaTopics(topic).of(event),
  sink: async (config, context) => (await import("./kafka/sink.ts")).createKafkaSink(config, context),
} satisfies ConnectorDefinition<KafkaConfig>;

const file = {
  name: "file",
  summary: "Events as JSON lines in a folder, on disk before they are acknowledged.",
  Config: FileConfig,
  carriesSequence: true,
  whereIs: searchCommand,
  shared: sharedFolder,
  sink: async (config, context) => (await import("./file/sink.ts")).createFileSink(config, context),
} satisfies ConnectorDefinition<FileConfig>;

const stdout = {
  name: "stdout",
  summary: "Events as JSON lines on standard output, for pipes and for looking.",
  Config: StdoutConfig,
  carriesSequence: true,
  sink: () => createStdoutSink(process.stdout),
} satisfies ConnectorDefinition<object>;

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

const webhook = {
  name: "webhook",
  summary: "One signed POST for every event, or alarms in the form of PagerDuty, Slack, Teams and others.",
  Config: WebhookConfig,
  // The first waits of the schedule that Standard Webhooks suggests; after 17.6 h the event is given up.
  scheduleMs: [5_000, 5 * MINUTE_MS, 30 * MINUTE_MS, 2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS],
  carriesSequence: true,
  kinds: ({ format }) => (isForEvents(format) ? undefined : INCIDENT_KINDS),
  async sink(config, context) {
    if (isForEvents(config.format)) return (await import("./webhook/sink.ts")).createWebhookSink(config, context);
    const { createWebhookReceiver } = await import("./webhook/receiver.ts");
    return createReceiverSink(createWebhookReceiver(config, context), config, context);
  },
} satisfies ConnectorDefinition<WebhookConfig>;

/** All connectors by the name that a configuration uses. The configuration's schema is derived from this list. */
export const CATALOG = {
  mqtt,
  influxdb,
  kafka,
  webhook,
  slack: receiverConnector(
    "slack",
    "One message for every alarm in a Slack channel, edited in place.",
    SlackConfig,
    async () => (await import("./slack/receiver.ts")).createSlackReceiver,
  ),
  jira: receiverConnector(
    "jira",
    "One issue in Jira for every alarm, closed when it is over.",
    JiraConfig,
    async () => (await import("./jira/receiver.ts")).createJiraReceiver,
  ),
  servicenow: receiverConnector(
    "servicenow",
    "One incident in ServiceNow for every alarm, resolved when it is over.",
    ServiceNowConfig,
    async () => (await import("./servicenow/receiver.ts")).createServiceNowReceiver,
  ),
  alertmanager: receiverConnector(
    "alertmanager",
    "Alarms as alerts of Prometheus Alertmanager, which routes them further.",
    AlertmanagerConfig,
    async () => (await import("./alertmanager/receiver.ts")).createAlertmanagerReceiver,
  ),
  email: receiverConnector(
    "email",
    "A mail for each alarm and its end, in one thread (SMTP).",
    EmailConfig,
    async () => (await import("./email/receiver.ts")).createEmailReceiver,
  ),
  postgres: {
    name: "postgres",
    summary: "Tables in PostgreSQL or TimescaleDB.",
    Config: PostgresConfig,
    whereIs: postgresQuery,
    sink: async (config, context) => (await import("./postgres/sink.ts")).createPostgresSink(config, context),
  } satisfies ConnectorDefinition<PostgresConfig>,
  file,
  parquet: {
    name: "parquet",
    summary: "Tables as Parquet files in a folder or in S3-compatible storage.",
    Config: ParquetConfig,
    whereIs: parquetQuery,
    shared: sharedTables,
    sink: async (config, context) => (await import("./parquet/sink.ts")).createParquetSink(config, context),
  } satisfies ConnectorDefinition<ParquetConfig>,
  stdout,
} as const;

export type ConnectorName = keyof typeof CATALOG;

export const CONNECTOR_NAMES = Object.keys(CATALOG) as readonly ConnectorName[];

/** The definition of a connector whose options are not known at compile time. */
export function definitionOf(name: ConnectorName): ConnectorDefinition {
  return CATALOG[name] as ConnectorDefinition;
}
