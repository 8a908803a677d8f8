import { z } from "zod";
import { ConfigError, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import {
  createHttpClient,
  type ReceiverRequest,
  type ReceiverResponse,
  sendRequest,
} from "../../src/core/http/outbound/request.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { printableLine } from "../../src/core/values/printable-text.ts";
import { cutText } from "../shared/receiver/message-texts.ts";
import { createAuthorizationReader, mapTicketError } from "../shared/receiver/ticket-receiver.ts";
import { type JiraConfig, RESERVED_ISSUE_FIELDS } from "./config.ts";

const STATUSES_WITH_ERROR_TEXT = [400, 401, 403, 404, 409, 413];
const MAX_ERROR_TEXT_LENGTH = 400;
/** Values of the header X-Seraph-LoginReason for an unknown user, whom Jira treats as anonymous. */
const UNKNOWN_USER_PATTERN = /AUTHENTICATED_FAILED|AUTHENTICATION_DENIED/;

const JiraErrorResponse = z
  .object({
    errorMessages: z.array(z.string()).default([]),
    errors: z.record(z.string(), z.unknown()).default({}),
  })
  .catch({ errorMessages: [], errors: {} });

const JIRA_PAGE_SIZE = 20;
const MAX_JIRA_PAGES = 50;

const PermissionsResponse = z.object({ permissions: z.record(z.string(), z.object({ havePermission: z.boolean() })) });
const IssueType = z.object({ id: z.string(), name: z.string() });
const IssueField = z.object({
  fieldId: z.string(),
  name: z.string(),
  required: z.boolean(),
  hasDefaultValue: z.boolean().default(false),
});

export function createJiraApi(config: JiraConfig, clock: Clock) {
  const baseUrl = new URL(config.url);
  const jiraApiPath = `${baseUrl.pathname.replace(/\/+$/, "")}/rest/api/${config.deployment === "cloud" ? 3 : 2}`;
  const project = encodeURIComponent(config.project);
  const client = createHttpClient({ url: baseUrl, config, clock });
  const { origin } = client;
  const { user, token } = config;
  const readAuthorization = createAuthorizationReader(
    user === undefined ? { token } : { user, password: token },
    clock,
  );

  async function requestJira(options: ReceiverRequest, signal: AbortSignal): Promise<ReceiverResponse> {
    const path = jiraApiPath + options.path;
    const authorizedRequest = { ...options, path, headers: readAuthorization(), allow: STATUSES_WITH_ERROR_TEXT };
    const response = await sendRequest(client, authorizedRequest, clock, signal);
    if (UNKNOWN_USER_PATTERN.test(response.headers["x-seraph-loginreason"] ?? "")) throw createUnknownUserError(origin);
    if (response.status < 300) return checkSuccessResponse(response, origin);
    if (options.allow?.includes(response.status) && response.json !== undefined) return response;
    throw mapJiraErrorResponse(response, origin, clock.now());
  }

  async function requestJson<T>(options: ReceiverRequest, schema: z.ZodType<T>, signal: AbortSignal): Promise<T> {
    return parseJiraResponse(await requestJira(options, signal), schema, origin);
  }

  async function checkProjectIsVisible(signal: AbortSignal): Promise<void> {
    const path = `/mypermissions?projectKey=${project}&permissions=BROWSE_PROJECTS`;
    const response = await requestJira({ method: "GET", path, allow: [404] }, signal);
    const { permissions } =
      response.status === 404 ? { permissions: {} } : parseJiraResponse(response, PermissionsResponse, origin);
    if (permissions.BROWSE_PROJECTS?.havePermission === true) return;
    throw createProjectError("does not show us the project", "Browse projects");
  }

  /** Reads all pages of a list. Jira Cloud names the list after its content; Data Center names it `values`. */
  async function readAllPages<T>(
    path: string,
    listName: string,
    itemType: z.ZodType<T>,
    signal: AbortSignal,
  ): Promise<T[]> {
    const Page = z.object({ values: z.array(itemType).optional(), total: z.number().optional() }).catchall(z.unknown());
    const records: T[] = [];
    for (let page = 0; page < MAX_JIRA_PAGES; page += 1) {
      const pagePath = `${path}?startAt=${records.length}&maxResults=${JIRA_PAGE_SIZE}`;
      const response = await requestJira({ method: "GET", path: pagePath, allow: [400, 404] }, signal);
      if (response.status >= 400) throw createNoPermissionError(formatJiraErrorText(response));
      const { values, total, ...otherMembers } = parseJiraResponse(response, Page, origin);
      const pageItems =
        values ?? parseJiraResponse({ ...response, json: otherMembers[listName] }, z.array(itemType), origin);
      records.push(...pageItems);
      if (pageItems.length === 0 || (total !== undefined && records.length >= total)) break;
    }
    return records;
  }

  function createProjectError(problem: string, permission: string, errorText = ""): ConfigError {
    const message = `${origin} ${problem} ${config.project}. ${errorText}`.trim();
    const hint = `Check the key of the project, and give the account the permission "${permission}" there.`;
    return new ConfigError(message, { reason: "forbidden", field: "project", hint });
  }

  const createNoPermissionError = (errorText: string) =>
    createProjectError("lets us create nothing in the project", "Create issues", errorText);

  async function readIssueTypeId(signal: AbortSignal): Promise<string> {
    const issueTypes = await readAllPages(`/issue/createmeta/${project}/issuetypes`, "issueTypes", IssueType, signal);
    if (issueTypes.length === 0) throw createNoPermissionError("");
    const issueType = issueTypes.find(({ name }) => name.toLowerCase() === config.issue_type.toLowerCase());
    if (issueType !== undefined) return issueType.id;
    const names = issueTypes.map(({ name }) => printableLine(name)).join(", ");
    const message = `The project ${config.project} has no type of issue named ${config.issue_type}.`;
    throw new ConfigError(message, { field: "issue_type", hint: cutText(`It has ${names}.`, 300) });
  }

  return {
    origin,
    request: requestJira,
    readJson: requestJson,
    checkProjectIsVisible,
    progressMs: client.progressMs,
    close: () => client.close(),

    async probe(signal: AbortSignal): Promise<void> {
      await requestJson({ method: "GET", path: "/myself" }, z.object({ displayName: z.string() }), signal);
      await checkProjectIsVisible(signal);
      const path = `/issue/createmeta/${project}/issuetypes/${encodeURIComponent(await readIssueTypeId(signal))}`;
      checkIssueFields(config, await readAllPages(path, "fields", IssueField, signal));
    },
  };
}

export function parseJiraResponse<T>(response: ReceiverResponse, schema: z.ZodType<T>, origin: string): T {
  const parsedBody = schema.safeParse(response.json);
  if (parsedBody.success) return parsedBody.data;
  throw createNotJiraError(response, origin);
}

function formatJiraErrorText({ json }: ReceiverResponse): string {
  const { errorMessages, errors } = JiraErrorResponse.parse(json);
  const fieldErrorTexts = Object.entries(errors).map(([field, text]) => `${field}: ${String(text)}`);
  return cutText(printableLine([...errorMessages, ...fieldErrorTexts].join(" ")), MAX_ERROR_TEXT_LENGTH);
}

function mapJiraErrorResponse(response: ReceiverResponse, origin: string, nowMs: number): Error {
  const { status } = response;
  const errorText = formatJiraErrorText(response);
  if (status === 409) return new Retryable(`${origin} answered 409: somebody else edits it just now. ${errorText}`);
  if (status === 400 && errorText !== "") return mapRefusedFieldsError(response, origin);
  return mapTicketError(response, errorText, origin, nowMs);
}

/** Maps an error about fields: `Rejected` if only fields with texts of the alarm are wrong, otherwise `ConfigError`. */
function mapRefusedFieldsError(response: ReceiverResponse, origin: string): ConfigError | Rejected {
  const fields = Object.keys(JiraErrorResponse.parse(response.json).errors);
  const refusedConfiguredFields = fields.filter((field) => field !== "summary" && field !== "description");
  const errorMessage = `${origin} answered 400. It said: ${formatJiraErrorText(response)}`;
  const [firstOptionField] = refusedConfiguredFields;
  if (firstOptionField === undefined) return new Rejected(errorMessage);
  return new ConfigError(errorMessage, {
    reason: "validation",
    field: firstOptionField === "issuetype" ? "issue_type" : firstOptionField === "project" ? "project" : "fields",
    hint: `Check ${refusedConfiguredFields.map((field) => printableLine(field)).join(", ")} in the options, or what the project asks for.`,
  });
}

function createUnknownUserError(origin: string): ConfigError {
  const hint = "Check user and token: the token may be wrong, have expired, or want a sign-in in the browser first.";
  return new ConfigError(`${origin} does not accept who we are.`, { reason: "unauthenticated", hint });
}

function checkSuccessResponse(response: ReceiverResponse, origin: string): ReceiverResponse {
  if (response.body.trim() !== "" && response.json === undefined) throw createNotJiraError(response, origin);
  const errorText = formatJiraErrorText(response);
  if (errorText === "") return response;
  throw new Rejected(`${origin} answered ${response.status}, and refused it all the same. It said: ${errorText}`);
}

function createNotJiraError({ status }: ReceiverResponse, origin: string): Retryable {
  const hint = "Check that url leads to Jira itself, and not to a page for signing in.";
  return new Retryable(`${origin} answered ${status}, but not as Jira does.`, { hint });
}

function checkIssueFields(config: JiraConfig, fields: readonly z.infer<typeof IssueField>[]): void {
  const configuredFieldIds = new Set([...RESERVED_ISSUE_FIELDS, ...Object.keys(config.fields)]);
  if (Object.keys(config.priority).length > 0) configuredFieldIds.add("priority");
  const missingFields = fields.filter(
    // Jira itself fills the required field `reporter`, with the account that creates the issue.
    ({ fieldId, required, hasDefaultValue }) =>
      required && !hasDefaultValue && !configuredFieldIds.has(fieldId) && fieldId !== "reporter",
  );
  if (missingFields.length > 0) {
    const names = missingFields.map(({ fieldId, name }) => `${printableLine(name)} (${printableLine(fieldId)})`);
    const message = `The project ${config.project} requires fields that have no value: ${cutText(names.join(", "), 300)}.`;
    const hint = "Give each a value under `fields`, or make it optional in Jira.";
    throw new ConfigError(message, { reason: "validation", field: "fields", hint });
  }
  const existingIssueFieldIds = new Set(["project", "issuetype", ...fields.map(({ fieldId }) => fieldId)]);
  const unknownIssueFieldIds = [...configuredFieldIds].filter((id) => !existingIssueFieldIds.has(id));
  if (unknownIssueFieldIds.length === 0) return;
  const message = `New issues of ${config.project} have no field ${unknownIssueFieldIds.join(", ")}.`;
  const hint = "Put it on the screen for new issues in Jira, or take it out of the options.";
  throw new ConfigError(message, { reason: "validation", field: "fields", hint });
}
