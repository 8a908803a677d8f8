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

/** Every connector there is, by the name that a configuration uses. A new one is one line here. */
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
