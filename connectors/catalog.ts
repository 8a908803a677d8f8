import type { ConnectorDefinition } from "../src/core/connector.ts";
import { alertmanager } from "./alertmanager/config.ts";
import { email } from "./email/config.ts";
import { file } from "./file/definition.ts";
import { influxdb } from "./influxdb/definition.ts";
import { jira } from "./jira/config.ts";
import { kafka } from "./kafka/definition.ts";
import { mqtt } from "./mqtt/definition.ts";
import { parquet } from "./parquet/definition.ts";
import { postgres } from "./postgres/definition.ts";
import { servicenow } from "./servicenow/config.ts";
import { slack } from "./slack/config.ts";
import { stdout } from "./stdout/definition.ts";
import { webhook } from "./webhook/definition.ts";

/** All connectors by the name that a configuration uses. The configuration's schema is derived from this list. */
export const CATALOG = {
  mqtt,
  influxdb,
  kafka,
  webhook,
  slack,
  jira,
  servicenow,
  alertmanager,
  email,
  postgres,
  file,
  parquet,
  stdout,
} as const;

export type ConnectorName = keyof typeof CATALOG;

export const CONNECTOR_NAMES = Object.keys(CATALOG) as readonly ConnectorName[];

/** The definition of a connector whose options are not known at compile time. */
export function definitionOf(name: ConnectorName): ConnectorDefinition {
  return CATALOG[name] as ConnectorDefinition;
}
