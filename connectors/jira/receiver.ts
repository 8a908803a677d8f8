import { hash } from "node:crypto";
import { z } from "zod";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { Rejected } from "../../src/core/errors/errors.ts";
import type { IncidentMessage, Receiver } from "../shared/receiver/receiver.ts";
import { createTicketReceiver, createWarnOnce, type Ticket, type TicketSystem } from "../shared/receiver/ticket.ts";
import { createJira, readAs } from "./api.ts";
import { ADF, commentOf, descriptionOf, summaryOf, WIKI } from "./body.ts";
import type { JiraConfig } from "./config.ts";

/** Cloud's search lags by seconds to minutes (Atlassian); on Data Center the request may still run. */
const SEARCH_LAG_MS = { cloud: 300_000, data_center: 60_000 };
const MAX_FOUND = 20;

const Key = z.string().regex(/^[A-Za-z][A-Za-z0-9_]*-\d{1,20}$/);
/** The id survives a move to another project. */
const Id = z.string().regex(/^\d{1,20}$/);
const Created = z.object({ id: Id, key: Key });
const Category = z.object({ key: z.string() });
const Status = z.object({ fields: z.object({ status: z.object({ statusCategory: Category }) }) });
const Found = z.object({ issues: z.array(Status.extend({ id: Id, key: Key })) });

const isDone = ({ fields }: z.infer<typeof Status>) => fields.status.statusCategory.key === "done";

export function createJiraReceiver(config: JiraConfig, context: ConnectorContext): Receiver {
  const isCloud = config.deployment === "cloud";
  const format = isCloud ? ADF : WIKI;
  const site = config.url.replace(/\/+$/, "");
  const jira = createJira(config, context.clock);
  const warnOnce = createWarnOnce(context.log);

  const ticketOf = ({ id, key }: z.infer<typeof Created>): Ticket => ({
    id,
    ticket: key,
    link: `${site}/browse/${key}`,
  });

  async function edit(id: string, incident: IncidentMessage, signal: AbortSignal): Promise<boolean> {
    const fields = {
      description: descriptionOf(incident, format),
      // The summary of one alarm is stable, and a person may have edited it.
      summary: incident.kind === "alarm" ? undefined : summaryOf(incident),
    };
    const request = { method: "PUT", path: `/issue/${id}`, json: { fields }, allow: [404] } as const;
    return (await jira.request(request, signal)).status !== 404;
  }

  async function comment(id: string, body: unknown, signal: AbortSignal, allow: readonly number[] = [404]) {
    const path = `/issue/${id}/comment`;
    if (config.comments) await jira.request({ method: "POST", path, json: { body }, allow }, signal);
  }

  async function transitions(id: string, signal: AbortSignal): Promise<readonly Transition[]> {
    const path = `/issue/${id}/transitions?expand=transitions.fields`;
    return (await jira.read({ method: "GET", path }, Transitions, signal)).transitions;
  }

  /** Returns false when no transition is possible, or a rule of the workflow rejects it. */
  async function carryOut(id: string, body: TransitionBody | null, signal: AbortSignal): Promise<boolean> {
    if (body === null) return false;
    const path = `/issue/${id}/transitions`;
    return (await jira.request({ method: "POST", path, json: body, allow: [400] }, signal)).status !== 400;
  }

  const system: TicketSystem = {
    tickets: "issues",
    idPattern: /^\d{1,20}$/,
    searchLagMs: SEARCH_LAG_MS[config.deployment],

    async create(incident, signal) {
      const priority = config.priority[incident.priority];
      const fields = {
        ...config.fields,
        project: { key: config.project },
        issuetype: { name: config.issue_type },
        summary: summaryOf(incident),
        description: descriptionOf(incident, format),
        labels: [...new Set(["plenum", labelOf(incident), ...config.labels])],
        ...(priority === undefined ? {} : { priority: { name: priority } }),
      };
      return ticketOf(await jira.read({ method: "POST", path: "/issue", json: { fields } }, Created, signal));
    },

    async stateOf(id, signal) {
      const path = `/issue/${id}?fields=status`;
      const response = await jira.request({ method: "GET", path, allow: [404] }, signal);
      if (response.status !== 404) return isDone(readAs(response, Status, jira.origin)) ? "done" : "open";
      // Jira reports a hidden project like a deleted issue.
      await jira.checkProjectIsVisible(signal);
      return null;
    },

    async update(id, { incident, noteLabels, reference, reopens }, signal) {
      const { reopen } = config;
      const isOpen =
        !reopens ||
        (reopen !== undefined &&
          (await carryOut(id, bodyOfFirst(await transitions(id, signal), [reopen], undefined), signal)));
      if (!isOpen)
        warnOnce("an alarm is back and its issue stays closed, because no transition opens it", {
          ticket: reference.ticket,
          project: config.project,
        });
      if (isOpen && !(await edit(id, incident, signal))) return false;
      // A workflow may reject comments on a closed issue.
      const allow = isOpen ? [404] : [400, 403, 404];
      if (noteLabels !== null) await comment(id, commentOf(incident, noteLabels, format), signal, allow);
      return true;
    },

    async close(id, { incident, noteLabels, reference }, signal) {
      const transition = bodyOfFirst(await transitions(id, signal), config.done, config.resolution);
      if (!(await edit(id, incident, signal))) return false;
      // Comment before the transition, because a closed issue may reject comments.
      await comment(id, commentOf(incident, noteLabels ?? [], format), signal);
      if (!(await carryOut(id, transition, signal)))
        warnOnce("an issue stays open although its alarm is over, because no transition closes it", {
          ticket: reference.ticket,
          project: config.project,
        });
      return true;
    },

    async search(incident, signal) {
      const jql = `project = "${config.project}" AND labels = "${labelOf(incident)}" ORDER BY created ASC`;
      const json = { jql, fields: ["status"], maxResults: MAX_FOUND };
      const path = isCloud ? "/search/jql" : "/search";
      const found = await jira.read({ method: "POST", path, json }, Found, signal).catch(async (error: unknown) => {
        // Jira rejects the search for a project that the account may not see.
        if (error instanceof Rejected) await jira.checkProjectIsVisible(signal);
        throw error;
      });
      if (found.issues.length === 0) await jira.checkProjectIsVisible(signal);
      const oldestFirst = found.issues.toSorted((a, b) => Number(a.id) - Number(b.id));
      return oldestFirst.map((issue) => ({ ...ticketOf(issue), isDone: isDone(issue) }));
    },

    addNote: (id, note, signal) => comment(id, format.sentence(note), signal),
  };

  return {
    ...createTicketReceiver(system, config, context),
    serverId: hash("sha256", site),
    progressMs: jira.progressMs,
    probe: jira.probe,
    dispose: jira.close,
  };
}

const labelOf = ({ key }: IncidentMessage): string => `plenum-${key}`;

const Field = z.object({
  required: z.boolean().optional(),
  hasDefaultValue: z.boolean().optional(),
  allowedValues: z.array(z.object({ id: z.string().optional() })).optional(),
});
const Transition = z.object({
  id: z.string(),
  name: z.string(),
  to: z.object({ name: z.string(), statusCategory: Category.optional() }),
  fields: z.record(z.string(), Field).optional(),
});
type Transition = z.infer<typeof Transition>;
const Transitions = z.object({ transitions: z.array(Transition) });

interface TransitionBody {
  readonly transition: { readonly id: string };
  readonly fields?: { readonly resolution: { readonly id: string } | { readonly name: string } };
}

/** Returns null when no transition is possible. Without names, a status of the category Done counts. */
function bodyOfFirst(
  transitions: readonly Transition[],
  names: readonly string[],
  resolution: string | undefined,
): TransitionBody | null {
  const isNamed = ({ name, to }: Transition, wanted: string) =>
    [name, to.name].some((known) => known.toLowerCase() === wanted.toLowerCase());
  const candidates =
    names.length > 0
      ? names.flatMap((name) => transitions.filter((transition) => isNamed(transition, name)))
      : // Names depend on the account's language.
        transitions.filter(({ to }) => to.statusCategory?.key === "done");
  const bodies = candidates.map((transition) => transitionBody(transition, resolution));
  return bodies.find((body) => body !== null) ?? null;
}

/** Returns null when the transition requires a field that Plenum cannot fill. */
function transitionBody({ id, fields = {} }: Transition, wanted: string | undefined): TransitionBody | null {
  const { resolution, ...others } = fields;
  if (Object.values(others).some((field) => field.required === true && field.hasDefaultValue !== true)) return null;
  const transition = { id };
  if (resolution === undefined) return { transition };
  if (wanted !== undefined) return { transition, fields: { resolution: { name: wanted } } };
  if (resolution.required !== true) return { transition };
  const first = resolution.allowedValues?.[0]?.id;
  return first === undefined ? null : { transition, fields: { resolution: { id: first } } };
}
