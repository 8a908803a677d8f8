import { startAlertmanagerEnd } from "./alertmanager-end.ts";
import type { Contestant } from "./battery.ts";
import { startEmailEnd } from "./email-end.ts";
import { startJiraEnd } from "./jira-end.ts";
import { startServiceNowEnd } from "./servicenow-end.ts";
import { startSlackEnd } from "./slack-end.ts";

/** Every receiver, for the battery of crashes. */
export const CONTESTANTS: readonly Contestant[] = [
  {
    name: "slack",
    connector: "slack",
    most: 1,
    start: () => startSlackEnd(),
    options: ({ config }) => config.slack,
  },
  {
    name: "jira cloud",
    connector: "jira",
    most: 1,
    // A search shows a new issue a minute and a half after it was made.
    start: (now) => startJiraEnd({ now, searchLagMs: 90_000 }),
    options: ({ config }) => ({ ...config, reopen: "Åpne igjen" }),
  },
  {
    name: "jira data center",
    connector: "jira",
    most: 1,
    start: (now) => startJiraEnd({ deployment: "data_center", now }),
    options: ({ config }) => ({ ...config, reopen: "Åpne igjen" }),
  },
  {
    name: "servicenow",
    connector: "servicenow",
    most: 1,
    start: () => startServiceNowEnd(),
    options: ({ config }) => ({ ...config, reopen_state: "2" }),
  },
  {
    name: "alertmanager",
    connector: "alertmanager",
    most: 1,
    start: (now) => startAlertmanagerEnd(now),
    options: ({ config }) => config.alertmanager,
  },
  {
    name: "email",
    connector: "email",
    most: 2,
    start: () => startEmailEnd(),
    options: ({ config }) => config.email,
  },
];
