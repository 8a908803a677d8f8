import { z } from "zod";
import { OUTBOUND_HTTP_OPTIONS, ReceiverUrl } from "../../src/core/http/outbound/config.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { PriorityLetter, RECEIVER_OPTIONS } from "../shared/receiver/config.ts";

export const RESERVED_ISSUE_FIELDS = ["project", "issuetype", "summary", "description", "labels"];

const JiraObjectName = z.string().min(1).max(255);

const IssueLabel = z.string().regex(/^\S{1,255}$/, "A label has no blanks and at most 255 characters.");

const IssueFieldId = z
  .string()
  .regex(/^[A-Za-z][A-Za-z0-9_-]*$/, "Write the id of a field, such as customfield_10042.")
  .refine((id) => !RESERVED_ISSUE_FIELDS.includes(id), "Plenum fills this field by itself; there are options for it.");

export const JiraConfig = z
  .strictObject({
    url: ReceiverUrl.refine((text) => !URL.canParse(text) || isJiraBaseUrl(new URL(text)), {
      error: "Write the address of Jira itself, without /rest, ? and #, such as https://example.atlassian.net.",
    }).meta({ description: "Address of Jira, such as https://example.atlassian.net." }),
    deployment: z.enum(["cloud", "data_center"]).default("cloud").meta({
      description: "Kind of Jira: cloud, or data_center for your own server.",
    }),
    user: z
      .string()
      .regex(/^[^:\p{Cc}]{1,255}$/u, "A user has neither `:` nor control characters.")
      .optional()
      .meta({ description: "E-mail address of the account of the API token (Cloud only)." }),
    token: SecretRef.meta({
      description: "API token of the account (Cloud), or a personal access token (Data Center).",
    }),
    project: z
      .string()
      .regex(/^[A-Za-z][A-Za-z0-9_]{0,254}$/, "Write the key of the project, such as FM.")
      .meta({ description: "Key of the project in which issues are created.", examples: ["FM"] }),
    issue_type: JiraObjectName.default("Task").meta({ description: "Name of the issue type, as in Jira." }),
    priority: z.record(PriorityLetter, JiraObjectName).default({}).meta({
      description: "Jira priority name for each alarm priority; Jira's default for omitted ones.",
    }),
    labels: z.array(IssueLabel).max(20).default([]).meta({ description: "Additional labels of every issue." }),
    fields: z.record(IssueFieldId, z.json()).default({}).meta({
      description: "Additional fields of every new issue by id, with values as in Jira's interface.",
    }),
    done: z.array(JiraObjectName).max(20).default([]).meta({
      description:
        "Names of transitions, or of their target statuses, that close an issue, best first; by default any that leads to a status of the category Done.",
    }),
    resolution: JiraObjectName.optional().meta({
      description: "Name of the resolution, if the transition requires one; its first by default.",
    }),
    reopen: JiraObjectName.optional().meta({
      description: "Name of a transition, or of its target status, that reopens a closed issue when the alarm returns.",
    }),
    comments: z.boolean().default(true).meta({
      description: "Add a comment when an alarm is acknowledged, recovers, returns or ends.",
    }),
    ...OUTBOUND_HTTP_OPTIONS,
    ...RECEIVER_OPTIONS,
  })
  .superRefine((config, context) => {
    const reportIssue = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
    const isJiraCloud = config.deployment === "cloud";
    if (isJiraCloud && config.user === undefined)
      reportIssue("user", "Jira Cloud wants the e-mail address of the account whose token it is.");
    if (!isJiraCloud && config.user !== undefined)
      reportIssue("user", "A personal access token says itself whose it is; take the user away.");
    if (config.fields.priority !== undefined && Object.keys(config.priority).length > 0)
      reportIssue("fields", "The priority is given twice, by `priority` and in `fields`; take one away.");
    if (config.proxy !== undefined && URL.parse(config.url)?.protocol === "http:")
      reportIssue("url", "Through a proxy use https://, because the proxy would read the token.");
  })
  .meta({ description: "A Jira issue per alarm, edited in place and closed at the end." });
export type JiraConfig = z.infer<typeof JiraConfig>;

const isJiraBaseUrl = (url: URL): boolean => url.search === "" && url.hash === "" && !/\/rest(\/|$)/.test(url.pathname);
