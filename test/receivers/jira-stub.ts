import { Ajv } from "ajv";
import type { SeenRequest, StubResponse } from "../connectors/stub-server.ts";
import { ADF_SCHEMA } from "./adf-schema.ts";
import { jsonReply, type ReceiverIncident, startReceiverStub } from "./receiver-server.ts";

export const JIRA_TOKEN = "ATATT3xFfGF0-canary-of-jira-9c41d7";
export const JIRA_USER = "plenum@example.com";

interface JiraOptions {
  readonly deployment?: "cloud" | "data_center";
  readonly now?: () => number;
  readonly searchLagMs?: number;
}

export interface JiraIssue {
  readonly id: string;
  readonly key: string;
  readonly createdMs: number;
  readonly fields: Record<string, unknown>;
  status: JiraStatus;
  readonly comments: string[];
  readonly texts: string[];
  readonly steps: Record<string, unknown>[];
}

interface JiraStatus {
  readonly name: string;
  readonly category: "new" | "indeterminate" | "done";
}

export interface JiraTransition {
  readonly id: string;
  readonly name: string;
  readonly from: readonly string[];
  readonly to: JiraStatus;
  readonly fields?: Record<string, unknown>;
}

export type JiraStub = Awaited<ReturnType<typeof startJiraStub>>;

const TO_DO: JiraStatus = { name: "Å gjøre", category: "new" };
const IN_PROGRESS: JiraStatus = { name: "Under arbeid", category: "indeterminate" };
export const DONE_STATUS: JiraStatus = { name: "Ferdig", category: "done" };

const isAdf = new Ajv({ strict: false }).compile(ADF_SCHEMA);

export async function startJiraStub(options: JiraOptions = {}) {
  const { deployment = "cloud", now = Date.now, searchLagMs = 0 } = options;
  const isCloud = deployment === "cloud";
  const apiRoot = isCloud ? "/rest/api/3" : "/jira/rest/api/2";
  const busy = { status: 429, headers: { "retry-after": "7", "ratelimit-reason": "jira-burst-based" } };
  const { common, interrupt, secret } = await startReceiverStub(busy);
  const { stub } = common;
  const url = isCloud ? stub.url : `${stub.url}/jira`;
  const server = {
    ...common,
    url,
    config: {
      url,
      deployment,
      ...(isCloud ? { user: JIRA_USER } : {}),
      token: secret(JIRA_TOKEN),
      project: "FM",
      allow_networks: ["127.0.0.0/8"],
    },
    issues: [] as JiraIssue[],
    seen: stub.seen,
    transitions: [
      { id: "11", name: "Start", from: [TO_DO.name], to: IN_PROGRESS },
      { id: "31", name: "Fullfør", from: [TO_DO.name, IN_PROGRESS.name], to: DONE_STATUS },
      { id: "41", name: "Åpne igjen", from: [DONE_STATUS.name], to: TO_DO },
    ] as JiraTransition[],
    /** Fields of the screen for new issues, by id. */
    screen: new Map<string, { name: string; required: boolean; hasDefaultValue?: boolean }>([
      ["project", { name: "Prosjekt", required: true }],
      ["issuetype", { name: "Sakstype", required: true }],
      ["summary", { name: "Sammendrag", required: true }],
      ["description", { name: "Beskrivelse", required: false }],
      ["labels", { name: "Etiketter", required: false }],
      ["priority", { name: "Prioritet", required: true, hasDefaultValue: true }],
      ["reporter", { name: "Innmelder", required: true }],
    ]),
    refuseTransitions: false,
    mayBrowse: true,
    hidesSilently: false,
    /** Closed issues refuse comments. */
    refuseLateComments: false,
    token: JIRA_TOKEN,
    incidents: (): readonly ReceiverIncident[] => server.issues.map(toReceiverIncident),
    clear: (): void => void server.issues.splice(0),
  };

  stub.respond = (seen, response) => {
    const { path } = splitUrl(seen);
    const changes = seen.method !== "GET" && !path.startsWith("/search");
    return changes ? interrupt(() => route(seen), response) : route(seen);
  };

  function splitUrl(seen: SeenRequest) {
    const { pathname, searchParams } = new URL(seen.url, stub.url);
    return { path: pathname.startsWith(apiRoot) ? pathname.slice(apiRoot.length) : "", query: searchParams };
  }

  function route(seen: SeenRequest): StubResponse {
    const { path, query } = splitUrl(seen);
    if (path === "") return { status: 404, body: "<html>Oops, you've found a dead link.</html>" };
    const expectedAuthorization = isCloud
      ? `Basic ${Buffer.from(`${JIRA_USER}:${server.token}`).toString("base64")}`
      : `Bearer ${server.token}`;
    if (seen.headers.authorization !== expectedAuthorization) return anonymousReply(path);
    const body = seen.body.length === 0 ? {} : (JSON.parse(seen.body.toString()) as Record<string, unknown>);
    const matchRequest = (method: string, pattern: RegExp) => (seen.method === method ? pattern.exec(path) : null);
    if (matchRequest("GET", /^\/myself$/)) return jsonReply(200, { displayName: "Plenum", accountId: "5b10" });
    if (matchRequest("GET", /^\/mypermissions$/)) return permissions(query);
    if (matchRequest("POST", isCloud ? /^\/search\/jql$/ : /^\/search$/)) return search(body);
    if (matchRequest("POST", /^\/issue$/)) return create(body);
    const page = matchRequest("GET", /^\/issue\/createmeta\/([^/]+)\/issuetypes(?:\/(\d+))?$/);
    if (page) return createmeta(page[1] ?? "", page[2], query);
    const found = /^\/issue\/(\d+)(\/comment|\/transitions)?$/.exec(path);
    const issue = server.issues.find(({ id }) => id === found?.[1]);
    if (found === null) return jsonReply(404, { errorMessages: ["no such path"], errors: {} });
    if (issue === undefined || !server.mayBrowse) return missingIssueReply();
    return handleIssue(issue, seen.method, found[2] ?? "", body);
  }

  function handleIssue(issue: JiraIssue, method: string, part: string, body: Record<string, unknown>): StubResponse {
    if (part === "/comment" && method === "POST") {
      if (server.refuseLateComments && issue.status.category === "done")
        return jsonReply(403, { errorMessages: ["Du kan ikke kommentere saken."], errors: {} });
      if (!isText(body.body)) return fieldErrorsReply({ comment: "INVALID_INPUT" });
      issue.comments.push(toPlainText(body.body));
      issue.texts.push(toPlainText(body.body));
      return jsonReply(201, { id: String(90_000 + issue.comments.length) });
    }
    if (part === "/transitions") {
      const offeredTransitions = server.transitions.filter(({ from }) => from.includes(issue.status.name));
      if (method === "GET") return jsonReply(200, { transitions: offeredTransitions.map(formatTransition) });
      const id = (body.transition as { id?: string } | undefined)?.id;
      const chosenTransition = offeredTransitions.find((transition) => transition.id === id);
      const givenFields = (body.fields ?? {}) as Record<string, unknown>;
      const lacksField = Object.entries(chosenTransition?.fields ?? {}).some(
        ([name, field]) => (field as { required?: boolean }).required === true && givenFields[name] === undefined,
      );
      if (chosenTransition === undefined || lacksField || server.refuseTransitions)
        return jsonReply(400, { errorMessages: ["Arbeidsflyten tillater det ikke."], errors: {} });
      issue.status = chosenTransition.to;
      issue.steps.push(body);
      return { status: 204 };
    }
    if (method === "GET") return jsonReply(200, formatIssue(issue));
    const fields = body.fields as Record<string, unknown>;
    const fieldError = findFieldError(fields);
    if (fieldError !== null) return fieldErrorsReply(fieldError);
    Object.assign(issue.fields, fields);
    issue.texts.push(...listTexts(fields));
    return { status: 204 };
  }

  function create(body: Record<string, unknown>): StubResponse {
    const fields = body.fields as Record<string, unknown>;
    const missingFields = [...server.screen].filter(
      ([id, { required, hasDefaultValue }]) =>
        required && hasDefaultValue !== true && id !== "reporter" && fields[id] === undefined,
    );
    if (missingFields.length > 0)
      return fieldErrorsReply(Object.fromEntries(missingFields.map(([id, { name }]) => [id, `${name} er påkrevd.`])));
    const fieldError = findFieldError(fields);
    if (fieldError !== null) return fieldErrorsReply(fieldError);
    const number = server.issues.length + 1;
    server.issues.push({
      id: String(10_000 + number),
      key: `FM-${number}`,
      createdMs: now(),
      fields,
      status: TO_DO,
      comments: [],
      texts: listTexts(fields),
      steps: [],
    });
    return jsonReply(201, { id: String(10_000 + number), key: `FM-${number}`, self: `${url}/x` });
  }

  function findFieldError(fields: Record<string, unknown>): Record<string, string> | null {
    const { summary = "x", description = "x", labels = [] } = fields;
    const unknownFields = Object.keys(fields).filter((id) => !server.screen.has(id));
    if (unknownFields.length > 0)
      return Object.fromEntries(unknownFields.map((id) => [id, `Field '${id}' cannot be set.`]));
    if (typeof summary !== "string" || summary === "" || summary.length > 255 || /[\r\n]/.test(summary))
      return { summary: "Sammendraget er ikke gyldig." };
    if (description !== "x" && !isText(description)) return { description: "INVALID_INPUT" };
    if ((labels as string[]).some((label) => /\s/.test(label) || label.length > 255))
      return { labels: "The label contains spaces which is invalid." };
    return null;
  }

  function isText(value: unknown): boolean {
    if (!isCloud) return typeof value === "string" && value.length <= 32_767;
    return isAdf(value) && JSON.stringify(value).length <= 32_767;
  }

  function search({ jql }: Record<string, unknown>): StubResponse {
    const [, project, label] = /^project = "(\w+)" AND labels = "([\w-]+)"/.exec(String(jql)) ?? [];
    if (project === undefined) return jsonReply(400, { errorMessages: ["Error in the JQL Query"], errors: {} });
    if (!server.mayBrowse && !server.hidesSilently)
      return jsonReply(400, { errorMessages: ["Verdien 'FM' finnes ikke for feltet 'project'."], errors: {} });
    const found = server.issues.filter(
      ({ fields, createdMs }) =>
        server.mayBrowse &&
        project === "FM" &&
        (fields.labels as string[]).includes(label ?? "") &&
        now() - createdMs >= searchLagMs,
    );
    return jsonReply(200, {
      issues: found.map(formatIssue),
      ...(isCloud ? { isLast: true } : { total: found.length }),
    });
  }

  function permissions(query: URLSearchParams): StubResponse {
    if (query.get("projectKey") !== "FM") return jsonReply(404, { errorMessages: ["No project"], errors: {} });
    return jsonReply(200, { permissions: { BROWSE_PROJECTS: { id: "10", havePermission: server.mayBrowse } } });
  }

  function createmeta(project: string, type: string | undefined, query: URLSearchParams): StubResponse {
    if (project !== "FM" || !server.mayBrowse) return jsonReply(404, { errorMessages: ["Prosjektet finnes ikke."] });
    const records =
      type === undefined
        ? [
            { id: "1", name: "Feil" },
            { id: "2", name: "Task" },
          ]
        : [...server.screen].map(([fieldId, field]) => ({ fieldId, key: fieldId, ...field }));
    const startAt = Number(query.get("startAt"));
    const pageRecords = records.slice(startAt, startAt + Math.min(5, Number(query.get("maxResults"))));
    const name = isCloud ? (type === undefined ? "issueTypes" : "fields") : "values";
    return jsonReply(200, { startAt, maxResults: 5, total: records.length, [name]: pageRecords });
  }

  return server;
}

function anonymousReply(path: string): StubResponse {
  const headers = { "x-seraph-loginreason": "AUTHENTICATED_FAILED" };
  if (path.startsWith("/search")) return { ...jsonReply(200, { issues: [] }), headers };
  if (path === "/myself") return { status: 401, headers, body: "Client must be authenticated." };
  return { ...missingIssueReply(), headers };
}

function missingIssueReply(): StubResponse {
  return jsonReply(404, { errorMessages: ["Saken finnes ikke, eller du har ikke tilgang."], errors: {} });
}

const fieldErrorsReply = (errors: Record<string, string>): StubResponse =>
  jsonReply(400, { errorMessages: [], errors });

function formatIssue({ id, key, status }: JiraIssue) {
  return { id, key, fields: { status: { name: status.name, statusCategory: { key: status.category } } } };
}

function formatTransition({ id, name, to, fields = {} }: JiraTransition) {
  return { id, name, to: { name: to.name, statusCategory: { key: to.category } }, fields };
}

function toReceiverIncident({ fields, status, texts }: JiraIssue): ReceiverIncident {
  const label = (fields.labels as string[]).find((each) => /^plenum-[0-9a-f]{32}$/.test(each));
  return { key: label?.slice("plenum-".length) ?? null, isOpen: status.category !== "done", texts };
}

function listTexts({ summary, description }: Record<string, unknown>): string[] {
  return [summary, description].filter((text) => text !== undefined).map(toPlainText);
}

function toPlainText(text: unknown): string {
  if (typeof text === "string") return text.replaceAll(/&#(\d+);/g, (_, code) => String.fromCharCode(Number(code)));
  const { text: own = "", content = [] } = text as { text?: string; content?: unknown[] };
  const innerText = content.map(toPlainText).join("");
  return (text as { type: string }).type === "paragraph" ? `${innerText}\n` : own + innerText;
}
