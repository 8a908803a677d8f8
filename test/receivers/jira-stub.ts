import { Ajv } from "ajv";
import type { SeenRequest, StubAnswer } from "../connectors/stub-server.ts";
import { ADF_SCHEMA } from "./adf-schema.ts";
import { json, startReceiverStub, type Thing } from "./receiver-server.ts";

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

export type JiraEnd = Awaited<ReturnType<typeof startJiraEnd>>;

const TO_DO: JiraStatus = { name: "Å gjøre", category: "new" };
const IN_PROGRESS: JiraStatus = { name: "Under arbeid", category: "indeterminate" };
export const FERDIG: JiraStatus = { name: "Ferdig", category: "done" };

const isAdf = new Ajv({ strict: false }).compile(ADF_SCHEMA);

export async function startJiraEnd(options: JiraOptions = {}) {
  const { deployment = "cloud", now = Date.now, searchLagMs = 0 } = options;
  const isCloud = deployment === "cloud";
  const root = isCloud ? "/rest/api/3" : "/jira/rest/api/2";
  const busy = { status: 429, headers: { "retry-after": "7", "ratelimit-reason": "jira-burst-based" } };
  const { common, interrupt, secret } = await startReceiverStub(busy);
  const { stub } = common;
  const url = isCloud ? stub.url : `${stub.url}/jira`;
  const end = {
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
      { id: "31", name: "Fullfør", from: [TO_DO.name, IN_PROGRESS.name], to: FERDIG },
      { id: "41", name: "Åpne igjen", from: [FERDIG.name], to: TO_DO },
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
    things: (): readonly Thing[] => end.issues.map(thingOf),
    clear: (): void => void end.issues.splice(0),
  };

  stub.answer = (seen, response) => {
    const { path } = partsOf(seen);
    const changes = seen.method !== "GET" && !path.startsWith("/search");
    return changes ? interrupt(() => route(seen), response) : route(seen);
  };

  function partsOf(seen: SeenRequest) {
    const { pathname, searchParams } = new URL(seen.url, stub.url);
    return { path: pathname.startsWith(root) ? pathname.slice(root.length) : "", query: searchParams };
  }

  function route(seen: SeenRequest): StubAnswer {
    const { path, query } = partsOf(seen);
    if (path === "") return { status: 404, body: "<html>Oops, you've found a dead link.</html>" };
    const known = isCloud
      ? `Basic ${Buffer.from(`${JIRA_USER}:${end.token}`).toString("base64")}`
      : `Bearer ${end.token}`;
    if (seen.headers.authorization !== known) return asNobody(path);
    const body = seen.body.length === 0 ? {} : (JSON.parse(seen.body.toString()) as Record<string, unknown>);
    const is = (method: string, pattern: RegExp) => (seen.method === method ? pattern.exec(path) : null);

    if (is("GET", /^\/myself$/)) return json(200, { displayName: "Plenum", accountId: "5b10" });
    if (is("GET", /^\/mypermissions$/)) return permissions(query);
    if (is("POST", isCloud ? /^\/search\/jql$/ : /^\/search$/)) return search(body);
    if (is("POST", /^\/issue$/)) return create(body);
    const page = is("GET", /^\/issue\/createmeta\/([^/]+)\/issuetypes(?:\/(\d+))?$/);
    if (page) return createmeta(page[1] ?? "", page[2], query);
    const found = /^\/issue\/(\d+)(\/comment|\/transitions)?$/.exec(path);
    const issue = end.issues.find(({ id }) => id === found?.[1]);
    if (found === null) return json(404, { errorMessages: ["no such path"], errors: {} });
    if (issue === undefined || !end.mayBrowse) return noIssue();
    return about(issue, seen.method, found[2] ?? "", body);
  }

  function about(issue: JiraIssue, method: string, part: string, body: Record<string, unknown>): StubAnswer {
    if (part === "/comment" && method === "POST") {
      if (end.refuseLateComments && issue.status.category === "done")
        return json(403, { errorMessages: ["Du kan ikke kommentere saken."], errors: {} });
      if (!isText(body.body)) return refusal({ comment: "INVALID_INPUT" });
      issue.comments.push(plain(body.body));
      issue.texts.push(plain(body.body));
      return json(201, { id: String(90_000 + issue.comments.length) });
    }
    if (part === "/transitions") {
      const offered = end.transitions.filter(({ from }) => from.includes(issue.status.name));
      if (method === "GET") return json(200, { transitions: offered.map(shownTransition) });
      const id = (body.transition as { id?: string } | undefined)?.id;
      const chosen = offered.find((transition) => transition.id === id);
      const given = (body.fields ?? {}) as Record<string, unknown>;
      const lacks = Object.entries(chosen?.fields ?? {}).some(
        ([name, field]) => (field as { required?: boolean }).required === true && given[name] === undefined,
      );
      if (chosen === undefined || lacks || end.refuseTransitions)
        return json(400, { errorMessages: ["Arbeidsflyten tillater det ikke."], errors: {} });
      issue.status = chosen.to;
      issue.steps.push(body);
      return { status: 204 };
    }
    if (method === "GET") return json(200, shown(issue));
    const fields = body.fields as Record<string, unknown>;
    const fault = faultOf(fields);
    if (fault !== null) return refusal(fault);
    Object.assign(issue.fields, fields);
    issue.texts.push(...textsOf(fields));
    return { status: 204 };
  }

  function create(body: Record<string, unknown>): StubAnswer {
    const fields = body.fields as Record<string, unknown>;
    const missing = [...end.screen].filter(
      ([id, { required, hasDefaultValue }]) =>
        required && hasDefaultValue !== true && id !== "reporter" && fields[id] === undefined,
    );
    if (missing.length > 0)
      return refusal(Object.fromEntries(missing.map(([id, { name }]) => [id, `${name} er påkrevd.`])));
    const fault = faultOf(fields);
    if (fault !== null) return refusal(fault);
    const number = end.issues.length + 1;
    end.issues.push({
      id: String(10_000 + number),
      key: `FM-${number}`,
      createdMs: now(),
      fields,
      status: TO_DO,
      comments: [],
      texts: textsOf(fields),
      steps: [],
    });
    return json(201, { id: String(10_000 + number), key: `FM-${number}`, self: `${url}/x` });
  }

  function faultOf(fields: Record<string, unknown>): Record<string, string> | null {
    const { summary = "x", description = "x", labels = [] } = fields;
    const absent = Object.keys(fields).filter((id) => !end.screen.has(id));
    if (absent.length > 0) return Object.fromEntries(absent.map((id) => [id, `Field '${id}' cannot be set.`]));
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

  function search({ jql }: Record<string, unknown>): StubAnswer {
    const [, project, label] = /^project = "(\w+)" AND labels = "([\w-]+)"/.exec(String(jql)) ?? [];
    if (project === undefined) return json(400, { errorMessages: ["Error in the JQL Query"], errors: {} });
    if (!end.mayBrowse && !end.hidesSilently)
      return json(400, { errorMessages: ["Verdien 'FM' finnes ikke for feltet 'project'."], errors: {} });
    const found = end.issues.filter(
      ({ fields, createdMs }) =>
        end.mayBrowse &&
        project === "FM" &&
        (fields.labels as string[]).includes(label ?? "") &&
        now() - createdMs >= searchLagMs,
    );
    return json(200, { issues: found.map(shown), ...(isCloud ? { isLast: true } : { total: found.length }) });
  }

  function permissions(query: URLSearchParams): StubAnswer {
    if (query.get("projectKey") !== "FM") return json(404, { errorMessages: ["No project"], errors: {} });
    return json(200, { permissions: { BROWSE_PROJECTS: { id: "10", havePermission: end.mayBrowse } } });
  }

  function createmeta(project: string, type: string | undefined, query: URLSearchParams): StubAnswer {
    if (project !== "FM" || !end.mayBrowse) return json(404, { errorMessages: ["Prosjektet finnes ikke."] });
    const records =
      type === undefined
        ? [
            { id: "1", name: "Feil" },
            { id: "2", name: "Task" },
          ]
        : [...end.screen].map(([fieldId, field]) => ({ fieldId, key: fieldId, ...field }));
    const startAt = Number(query.get("startAt"));
    const shownRecords = records.slice(startAt, startAt + Math.min(5, Number(query.get("maxResults"))));
    const name = isCloud ? (type === undefined ? "issueTypes" : "fields") : "values";
    return json(200, { startAt, maxResults: 5, total: records.length, [name]: shownRecords });
  }

  return end;
}

function asNobody(path: string): StubAnswer {
  const headers = { "x-seraph-loginreason": "AUTHENTICATED_FAILED" };
  if (path.startsWith("/search")) return { ...json(200, { issues: [] }), headers };
  if (path === "/myself") return { status: 401, headers, body: "Client must be authenticated." };
  return { ...noIssue(), headers };
}

function noIssue(): StubAnswer {
  return json(404, { errorMessages: ["Saken finnes ikke, eller du har ikke tilgang."], errors: {} });
}

const refusal = (errors: Record<string, string>): StubAnswer => json(400, { errorMessages: [], errors });

function shown({ id, key, status }: JiraIssue) {
  return { id, key, fields: { status: { name: status.name, statusCategory: { key: status.category } } } };
}

function shownTransition({ id, name, to, fields = {} }: JiraTransition) {
  return { id, name, to: { name: to.name, statusCategory: { key: to.category } }, fields };
}

function thingOf({ fields, status, texts }: JiraIssue): Thing {
  const label = (fields.labels as string[]).find((each) => /^plenum-[0-9a-f]{32}$/.test(each));
  return { key: label?.slice("plenum-".length) ?? null, isOpen: status.category !== "done", texts };
}

function textsOf({ summary, description }: Record<string, unknown>): string[] {
  return [summary, description].filter((text) => text !== undefined).map(plain);
}

function plain(text: unknown): string {
  if (typeof text === "string") return text.replaceAll(/&#(\d+);/g, (_, code) => String.fromCharCode(Number(code)));
  const { text: own = "", content = [] } = text as { text?: string; content?: unknown[] };
  const inner = content.map(plain).join("");
  return (text as { type: string }).type === "paragraph" ? `${inner}\n` : own + inner;
}
