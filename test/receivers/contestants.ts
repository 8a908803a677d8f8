import { CATALOG } from "#connectors/catalog.ts";
import type { ConnectorContext, ConnectorDefinition, Sink } from "#src/core/connector.ts";
import { startAlertmanagerEnd } from "./alertmanager-end.ts";
import type { Contestant } from "./battery.ts";
import { startEmailEnd } from "./email-end.ts";
import type { ReceiverFarEnd } from "./far-end.ts";
import { startJiraEnd } from "./jira-end.ts";
import { startServiceNowEnd } from "./servicenow-end.ts";
import { startSlackEnd } from "./slack-end.ts";
import { startPagerdutyEnd } from "./webhook-end.ts";

const ONE = () => 1;

/**
 * Every receiver of which people see what belongs together, for the battery of crashes. A chat without ids shows messages
 * one after the other, and no key in them.
 */
export const CONTESTANTS: readonly Contestant[] = [
  {
    name: "slack",
    connector: "slack",
    most: ONE,
    editsLists: true,
    start: (now) => startSlackEnd(now),
    options: ({ config }) => config.slack,
  },
  {
    name: "jira cloud",
    connector: "jira",
    most: ONE,
    editsLists: true,
    // A search shows a new issue a minute and a half after it was made.
    start: (now) => startJiraEnd({ now, searchLagMs: 90_000 }),
    options: ({ config }) => ({ ...config, reopen: "Åpne igjen" }),
  },
  {
    name: "jira data center",
    connector: "jira",
    most: ONE,
    editsLists: true,
    start: (now) => startJiraEnd({ deployment: "data_center", now }),
    options: ({ config }) => ({ ...config, reopen: "Åpne igjen" }),
  },
  {
    name: "servicenow",
    connector: "servicenow",
    most: ONE,
    editsLists: true,
    start: () => startServiceNowEnd(),
    options: ({ config }) => ({ ...config, reopen_state: "2" }),
  },
  {
    name: "alertmanager",
    connector: "alertmanager",
    most: ONE,
    editsLists: true,
    start: (now) => startAlertmanagerEnd(now),
    options: ({ config }) => config.alertmanager,
  },
  {
    name: "webhook pagerduty",
    connector: "webhook",
    // A trigger on a key that was resolved makes a new one there.
    most: (returns) => 1 + returns,
    // What it was triggered with stays.
    editsLists: false,
    start: () => startPagerdutyEnd(),
    options: ({ config }) => config,
  },
  {
    name: "email",
    connector: "email",
    most: () => 2,
    // A list that changes is no mail.
    editsLists: false,
    start: () => startEmailEnd(),
    options: ({ config }) => config.email,
  },
];

/** Creates the sink of a receiver that is connected to its test server. */
export async function sinkOf(
  { connector, options }: Contestant,
  end: ReceiverFarEnd,
  context: ConnectorContext,
  more: object = {},
): Promise<Sink> {
  const definition = (CATALOG as Readonly<Record<string, ConnectorDefinition>>)[connector];
  const config = definition?.Config.parse({ ...(options(end) as object), ...more });
  const sink = await definition?.sink?.(config, context);
  if (sink === undefined) throw new Error(`The connector ${connector} has no sink.`);
  return sink;
}
