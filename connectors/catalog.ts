import type { ConnectorDefinition } from "../src/core/connector.ts";
import { AlertmanagerConfig } from "./alertmanager/config.ts";
import { EmailConfig } from "./email/config.ts";
import { file } from "./file/definition.ts";
import { influxdb } from "./influxdb/definition.ts";
import { JiraConfig } from "./jira/config.ts";
import { kafka } from "./kafka/definition.ts";
import { mqtt } from "./mqtt/definition.ts";
import { ParquetConfig, parquetQuery, sharedTables } from "./parquet/config.ts";
import { PostgresConfig, postgresQuery } from "./postgres/config.ts";
import { ServiceNowConfig } from "./servicenow/config.ts";
import { receiverConnector } from "./shared/receiver/sink.ts";
import { SlackConfig } from "./slack/config.ts";
import { stdout } from "./stdout/definition.ts";
import { webhook } from "./webhook/definition.ts";

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
