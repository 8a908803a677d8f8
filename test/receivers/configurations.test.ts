import { describe, expect, test } from "vitest";
import { AlertmanagerConfig } from "#connectors/alertmanager/config.ts";
import { EmailConfig } from "#connectors/email/config.ts";
import { JiraConfig } from "#connectors/jira/config.ts";
import { ServiceNowConfig } from "#connectors/servicenow/config.ts";
import { SlackConfig } from "#connectors/slack/config.ts";

const PROXY = { proxy: { url: "http://proxy.test:3128" } };

const RECEIVERS = {
  slack: {
    Config: SlackConfig,
    smallest: { token: { env: "SLACK_TOKEN" }, channel: "C0123ABCD" },
    defaults: { broadcast: ["A"], base_url: "https://slack.com", timeout: 15_000 },
    rejected: [
      [{ channel: "#alarms" }, "channel: Write the channel's id, such as C0123ABCD"],
      [{ token: "xoxb-1" }, "token: Say where the secret is"],
      [{ broadcast: ["AA"] }, "broadcast,0: Write a priority as one capital letter"],
      [{ base_url: "https://slack.com/?a=b" }, "base_url: Write the address without `?` and `#`"],
      [{ base_url: "https://a:b@slack.com" }, "base_url: Leave user name and password out"],
      [{ base_url: "http://slack.test", ...PROXY }, "base_url: Through a proxy use https"],
    ],
  },
  jira: {
    Config: JiraConfig,
    smallest: { url: "https://x.atlassian.net", user: "a@example.com", token: { env: "T" }, project: "FM" },
    defaults: { deployment: "cloud", issue_type: "Task", comments: true, fields: {}, done: [] },
    rejected: [
      [{ user: undefined }, "user: Jira Cloud wants"],
      [{ deployment: "data_center" }, "user: A personal access token says"],
      [{ url: "https://x.atlassian.net/rest/api/3" }, "url: Write the address of Jira itself"],
      [{ url: "https://x.atlassian.net/?a=b" }, "url: Write the address of Jira itself"],
      [{ url: "https://u:p@x.atlassian.net/" }, "url: Leave user name"],
      [{ token: "secret" }, "token: Say where the secret is"],
      [{ project: 'FM" OR 1=1' }, "project: Write the key"],
      [{ labels: ["two words"] }, "labels,0: A label has no blanks"],
      [{ fields: { summary: "x" } }, "fields,summary:"],
      [{ priority: { high: "x" } }, "priority,high:"],
      [{ fields: { priority: { name: "x" } }, priority: { A: "High" } }, "fields: The priority is given twice"],
    ],
  },
  servicenow: {
    Config: ServiceNowConfig,
    smallest: { url: "https://x.service-now.com", user: "plenum", password: { env: "P" } },
    defaults: { table: "incident", resolved_state: "6", fields: {} },
    rejected: [
      [{ password: undefined }, "user: Give user and password together."],
      [{ user: undefined, password: undefined }, "token: Give either a token"],
      [{ token: { env: "T" } }, "token: Give either a token"],
      [{ url: "https://x.service-now.com/api/now" }, "url: Write the address of the instance"],
      [{ table: "incident?x=1" }, "table: Write the name"],
      [{ assignment_group: "Facility" }, "assignment_group: Write the group's sys_id"],
      [{ fields: { correlation_id: "x" } }, "fields,correlation_id:"],
      [{ priority: { A: { impact: 1 } } }, "priority,A,urgency:"],
      [{ password: "plain text" }, "password: Say where the secret is"],
    ],
  },
  alertmanager: {
    Config: AlertmanagerConfig,
    smallest: { url: "http://am:9093" },
    defaults: { repeat: 60_000, labels: {} },
    rejected: [
      [{ url: "http://am:9093/api/v2/alerts" }, "url: Leave /api/v2 out"],
      [{ user: "plenum" }, "user: Give user and password together"],
      [
        { token: { env: "T" }, user: "u", password: { env: "P" } },
        "token: Give a token, or user and password, not both",
      ],
      [
        { token: { env: "T" }, headers: { authorization: { env: "T" } } },
        "headers: There is a token or a password already",
      ],
      [{ labels: { "a-b": "x" } }, "labels,a-b:"],
      [{ labels: { site: "x" } }, "labels,site:"],
      [{ labels: { __a: "x" } }, "labels,__a:"],
      [{ repeat: "1s" }, "repeat: Choose between 10s and 1h"],
      [PROXY, "url: Through a proxy use https"],
    ],
  },
  email: {
    Config: EmailConfig,
    smallest: { host: "mail.example.com", from: "plenum@example.com", to: ["operations@example.com"] },
    defaults: { security: "starttls", tell: [{ changes: ["acknowledged"], priorities: ["A"] }], timeout: 30_000 },
    rejected: [
      [{ host: "smtp://mail.example.com" }, "host: Write the name of the mail server alone"],
      [{ host: "mail.example.com:25" }, "host: Write the port as an option"],
      [{ security: "none" }, "security: Without TLS everybody on the way"],
      [{ user: "plenum" }, "user: Give user and password together"],
      [{ from: "plenum" }, "from: Write an address"],
      [{ from: "Plenum <plenum@example.com>\nBcc: x@example.com" }, "from: Write an address"],
      [{ to: [] }, "to: "],
      [{ to: ["Ops <ops@example.com>"] }, "to,0: Write an address as operations@example.com"],
      [{ to: ["a@example.com, b@example.com"] }, "to,0: Write an address as operations@example.com"],
      [{ subject_prefix: "a\nb" }, "subject_prefix: A subject is one line"],
      [{ tell: [{ changes: ["raised"] }] }, "tell,0,changes,0:"],
      [{ timeout: "1h" }, "timeout: Choose between 1s and 2m"],
    ],
  },
} as const;

describe.each(Object.entries(RECEIVERS))("configuration of %s", (_, { Config, smallest, defaults, rejected }) => {
  test("adds the default values when only the required options are configured", () => {
    expect(Config.parse(smallest)).toMatchObject(defaults);
  });

  test.each([...rejected] as [object, string][])(
    "rejects %j with one error that names the option",
    (options, message) => {
      const { error } = Config.safeParse({ ...smallest, ...options });
      const errors = error?.issues.map((issue) => `${issue.path.join()}: ${issue.message}`);
      expect(errors).toEqual([expect.stringContaining(message)]);
    },
  );
});

test.each([{ host: "localhost" }, { allow_plain: true }])(
  "configuration of email accepts security: none with %j",
  (options) => {
    expect(EmailConfig.safeParse({ ...RECEIVERS.email.smallest, security: "none", ...options }).success).toBe(true);
  },
);
