import type { ConnectorDefinition } from "../src/core/connector.ts";
import { alertmanager } from "./alertmanager/definition.ts";
import { email } from "./email/definition.ts";
import { file } from "./file/definition.ts";
import { influxdb } from "./influxdb/definition.ts";
import { jira } from "./jira/definition.ts";
import { kafka } from "./kafka/definition.ts";
import { mqtt } from "./mqtt/definition.ts";
import { parquet } from "./parquet/definition.ts";
import { postgres } from "./postgres/definition.ts";
import { servicenow } from "./servicenow/definition.ts";
import { slack } from "./slack/definition.ts";
import { stdout } from "./stdout/definition.ts";
import { webhook } from "./webhook/definition.ts";

/**
 * All connectors by name. The configuration schema is derived from this list. A definition imports its sink only when
 * a configuration uses the sink, so the libraries of unused connectors are not loaded.
 */
export const CONNECTORS = {
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

export type ConnectorName = keyof typeof CONNECTORS;

export const CONNECTOR_NAMES = Object.keys(CONNECTORS) as readonly ConnectorName[];

export const getConnector = (name: ConnectorName): ConnectorDefinition => CONNECTORS[name] as ConnectorDefinition;
