import { AlertmanagerConfig } from "#connectors/alertmanager/config.ts";
import { createAlertmanagerReceiver } from "#connectors/alertmanager/receiver.ts";
import { CONNECTORS } from "#connectors/catalog.ts";
import { EmailConfig } from "#connectors/email/config.ts";
import { createEmailReceiver } from "#connectors/email/receiver.ts";
import { JiraConfig } from "#connectors/jira/config.ts";
import { createJiraReceiver } from "#connectors/jira/receiver.ts";
import { ServiceNowConfig } from "#connectors/servicenow/config.ts";
import { createServiceNowReceiver } from "#connectors/servicenow/receiver.ts";
import type { AlarmReceiver } from "#connectors/shared/receiver/receiver-interface.ts";
import { SlackConfig } from "#connectors/slack/config.ts";
import { createSlackReceiver } from "#connectors/slack/receiver.ts";
import { WebhookConfig } from "#connectors/webhook/config.ts";
import { createWebhookReceiver } from "#connectors/webhook/receiver.ts";
import type { ConnectorContext, ConnectorDefinition, Sink } from "#src/core/connector.ts";
import { startAlertmanagerStub } from "./alertmanager-stub.ts";
import { startJiraStub } from "./jira-stub.ts";
import { startMailServerStub } from "./mail-server-stub.ts";
import type { ReceiverServer } from "./receiver-server.ts";
import { startServiceNowStub } from "./servicenow-stub.ts";
import { startSlackStub } from "./slack-stub.ts";
import { startPagerdutyStub } from "./webhook-stubs.ts";

export interface ReceiverCase {
  readonly name: string;
  readonly connector: keyof typeof CREATE_BY_CONNECTOR;
  start(now: () => number): Promise<ReceiverServer>;
  readonly options?: object;
  readonly most?: (returns: number) => number;
  readonly editsLists: boolean;
  readonly waitMs: number;
}

const CREATE_BY_CONNECTOR = {
  slack: (options: object, context: ConnectorContext) => createSlackReceiver(SlackConfig.parse(options), context),
  jira: (options: object, context: ConnectorContext) => createJiraReceiver(JiraConfig.parse(options), context),
  servicenow: (options: object, context: ConnectorContext) =>
    createServiceNowReceiver(ServiceNowConfig.parse(options), context),
  alertmanager: (options: object, context: ConnectorContext) =>
    createAlertmanagerReceiver(AlertmanagerConfig.parse(options), context),
  webhook: (options: object, context: ConnectorContext) => createWebhookReceiver(WebhookConfig.parse(options), context),
  email: (options: object, context: ConnectorContext) => createEmailReceiver(EmailConfig.parse(options), context),
};

export const RECEIVERS: readonly ReceiverCase[] = [
  { name: "slack", connector: "slack", start: startSlackStub, editsLists: true, waitMs: 30_000 },
  {
    ...{ name: "jira cloud", connector: "jira", editsLists: true, waitMs: 7_000 },
    start: (now) => startJiraStub({ now, searchLagMs: 90_000 }),
    options: { reopen: "Åpne igjen" },
  },
  {
    ...{ name: "jira data center", connector: "jira", editsLists: true, waitMs: 7_000 },
    start: (now) => startJiraStub({ deployment: "data_center", now }),
    options: { reopen: "Åpne igjen" },
  },
  {
    ...{ name: "servicenow", connector: "servicenow", editsLists: true, waitMs: 30_000 },
    start: () => startServiceNowStub(),
    options: { reopen_state: "2" },
  },
  { name: "alertmanager", connector: "alertmanager", start: startAlertmanagerStub, editsLists: true, waitMs: 1_000 },
  {
    ...{ name: "webhook pagerduty", connector: "webhook", waitMs: 1_000 },
    start: () => startPagerdutyStub(),
    most: (returns) => 1 + returns,
    editsLists: false,
  },
  {
    ...{ name: "email", connector: "email", waitMs: 300_000 },
    start: () => startMailServerStub(),
    most: () => 2,
    editsLists: false,
  },
];

export function createReceiver(
  connector: keyof typeof CREATE_BY_CONNECTOR,
  { config }: Pick<ReceiverServer, "config">,
  context: ConnectorContext,
  options: object = {},
): AlarmReceiver {
  return CREATE_BY_CONNECTOR[connector]({ ...config, ...options }, context);
}

export async function createSink(
  { connector, options }: ReceiverCase,
  { config }: ReceiverServer,
  context: ConnectorContext,
  more: object = {},
): Promise<Sink> {
  const definition: ConnectorDefinition = CONNECTORS[connector] as ConnectorDefinition;
  const sink = await definition.sink?.(definition.Config.parse({ ...config, ...options, ...more }), context);
  if (sink === undefined) throw new Error(`The connector ${connector} has no sink.`);
  return sink;
}
