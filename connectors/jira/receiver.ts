import { hash } from "node:crypto";
import { z } from "zod";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { Rejected } from "../../src/core/errors/errors.ts";
import type { AlarmReceiver, IncidentMessage } from "../shared/receiver/receiver-interface.ts";
import {
  createTicketReceiver,
  createWarnOncePerMessage,
  type Ticket,
  type TicketSystem,
} from "../shared/receiver/ticket-receiver.ts";
import { createJiraApi, parseJiraResponse } from "./api.ts";
import type { JiraConfig } from "./config.ts";
import { ADF_FORMAT, formatSummary, renderComment, renderDescription, WIKI_FORMAT } from "./issue-text.ts";

const ISSUE_SEARCH_LAG_MS = { cloud: 300_000, data_center: 60_000 };
const MAX_ISSUE_SEARCH_RESULTS = 20;

const IssueKey = z.string().regex(/^[A-Za-z][A-Za-z0-9_]*-\d{1,20}$/);
/** Id of an issue. Unlike the key, the id stays the same when the issue moves to another project. */
const IssueId = z.string().regex(/^\d{1,20}$/);
const CreatedIssue = z.object({ id: IssueId, key: IssueKey });
const IssueStatusCategory = z.object({ key: z.string() });
const IssueStatus = z.object({ fields: z.object({ status: z.object({ statusCategory: IssueStatusCategory }) }) });
const IssueSearchResponse = z.object({ issues: z.array(IssueStatus.extend({ id: IssueId, key: IssueKey })) });

const isIssueDone = ({ fields }: z.infer<typeof IssueStatus>) => fields.status.statusCategory.key === "done";

export function createJiraReceiver(config: JiraConfig, context: ConnectorContext): AlarmReceiver {
  const isJiraCloud = config.deployment === "cloud";
  const format = isJiraCloud ? ADF_FORMAT : WIKI_FORMAT;
  const jiraSiteUrl = config.url.replace(/\/+$/, "");
  const jira = createJiraApi(config, context.clock);
  const warnOnce = createWarnOncePerMessage(context.log, { project: config.project });

  function toTicket({ id, key }: z.infer<typeof CreatedIssue>): Ticket {
    return { id, ticket: key, link: `${jiraSiteUrl}/browse/${key}` };
  }

  async function editIssue(id: string, incident: IncidentMessage, signal: AbortSignal): Promise<boolean> {
    const fields = {
      description: renderDescription(incident, format),
      // The summary of a single alarm never changes in Plenum. An update could overwrite the edit of a person.
      summary: incident.kind === "alarm" ? undefined : formatSummary(incident),
    };
    const request = { method: "PUT", path: `/issue/${id}`, json: { fields }, allow: [404] } as const;
    return (await jira.request(request, signal)).status !== 404;
  }

  async function addComment(id: string, body: unknown, signal: AbortSignal, allow: readonly number[] = [404]) {
    const path = `/issue/${id}/comment`;
    if (config.comments) await jira.request({ method: "POST", path, json: { body }, allow }, signal);
  }

  async function readTransitions(id: string, signal: AbortSignal): Promise<readonly Transition[]> {
    const path = `/issue/${id}/transitions?expand=transitions.fields`;
    return (await jira.readJson({ method: "GET", path }, TransitionsResponse, signal)).transitions;
  }

  /** Executes an issue transition. Returns false for a null `body`, or if a workflow rule rejects the transition. */
  async function executeTransition(id: string, body: TransitionBody | null, signal: AbortSignal): Promise<boolean> {
    if (body === null) return false;
    const path = `/issue/${id}/transitions`;
    return (await jira.request({ method: "POST", path, json: body, allow: [400] }, signal)).status !== 400;
  }

  const jiraTicketSystem: TicketSystem = {
    ticketPlural: "issues",
    idPattern: /^\d{1,20}$/,
    searchLagMs: ISSUE_SEARCH_LAG_MS[config.deployment],

    async createTicket(incident, signal) {
      const priority = config.priority[incident.priority];
      const fields = {
        ...config.fields,
        project: { key: config.project },
        issuetype: { name: config.issue_type },
        summary: formatSummary(incident),
        description: renderDescription(incident, format),
        labels: [...new Set(["plenum", buildIncidentLabel(incident), ...config.labels])],
        ...(priority === undefined ? {} : { priority: { name: priority } }),
      };
      return toTicket(await jira.readJson({ method: "POST", path: "/issue", json: { fields } }, CreatedIssue, signal));
    },

    async readState(id, signal) {
      const path = `/issue/${id}?fields=status`;
      const response = await jira.request({ method: "GET", path, allow: [404] }, signal);
      if (response.status !== 404)
        return isIssueDone(parseJiraResponse(response, IssueStatus, jira.origin)) ? "done" : "open";
      // Jira responds 404 for a deleted issue, but also for a project that the account may not see.
      await jira.checkProjectIsVisible(signal);
      return null;
    },

    async update(id, { incident, noteLabels, reference, reopens }, signal) {
      const { reopen } = config;
      const reopenTransition =
        reopens && reopen !== undefined
          ? chooseIssueTransition(await readTransitions(id, signal), [reopen], undefined)
          : null;
      const isOpen = !reopens || (await executeTransition(id, reopenTransition, signal));
      if (!isOpen) warnOnce("an alarm is back and its issue stays closed, because no transition opens it", reference);
      if (isOpen && !(await editIssue(id, incident, signal))) return false;
      // A workflow may reject comments on a closed issue.
      const allowedStatuses = isOpen ? [404] : [400, 403, 404];
      if (noteLabels !== null)
        await addComment(id, renderComment(incident, noteLabels, format), signal, allowedStatuses);
      return true;
    },

    async close(id, { incident, noteLabels, reference }, signal) {
      const transition = chooseIssueTransition(await readTransitions(id, signal), config.done, config.resolution);
      if (!(await editIssue(id, incident, signal))) return false;
      // Comment before the transition, because a closed issue may reject comments.
      await addComment(id, renderComment(incident, noteLabels ?? [], format), signal);
      if (!(await executeTransition(id, transition, signal)))
        warnOnce("an issue stays open although its alarm is over, because no transition closes it", reference);
      return true;
    },

    async search(incident, signal) {
      const jql = `project = "${config.project}" AND labels = "${buildIncidentLabel(incident)}" ORDER BY created ASC`;
      const json = { jql, fields: ["status"], maxResults: MAX_ISSUE_SEARCH_RESULTS };
      const path = isJiraCloud ? "/search/jql" : "/search";
      const request = jira.readJson({ method: "POST", path, json }, IssueSearchResponse, signal);
      const { issues } = await request.catch(async (error: unknown) => {
        // Jira rejects the search for a project that the account may not see.
        if (error instanceof Rejected) await jira.checkProjectIsVisible(signal);
        throw error;
      });
      if (issues.length === 0) await jira.checkProjectIsVisible(signal);
      const issuesOldestFirst = issues.toSorted((a, b) => Number(a.id) - Number(b.id));
      return issuesOldestFirst.map((issue) => ({ ...toTicket(issue), isDone: isIssueDone(issue) }));
    },

    addNote: (id, note, signal) => addComment(id, format.renderParagraph(note), signal),
  };

  return {
    ...createTicketReceiver(jiraTicketSystem, config, context),
    serverId: hash("sha256", jiraSiteUrl),
    progressMs: jira.progressMs,
    probe: jira.probe,
    dispose: jira.close,
  };
}

const buildIncidentLabel = ({ key }: IncidentMessage): string => `plenum-${key}`;

const IssueTransitionField = z.object({
  required: z.boolean().optional(),
  hasDefaultValue: z.boolean().optional(),
  allowedValues: z.array(z.object({ id: z.string().optional() })).optional(),
});
const Transition = z.object({
  id: z.string(),
  name: z.string(),
  to: z.object({ name: z.string(), statusCategory: IssueStatusCategory.optional() }),
  fields: z.record(z.string(), IssueTransitionField).optional(),
});
type Transition = z.infer<typeof Transition>;
const TransitionsResponse = z.object({ transitions: z.array(Transition) });

interface TransitionBody {
  readonly transition: { readonly id: string };
  readonly fields?: { readonly resolution: { readonly id: string } | { readonly name: string } };
}

/** Chooses the first possible transition by name, or to a status of category Done; null for none. */
function chooseIssueTransition(
  transitions: readonly Transition[],
  wantedNames: readonly string[],
  resolution: string | undefined,
): TransitionBody | null {
  const isTransitionNamed = ({ name, to }: Transition, wantedName: string) =>
    [name, to.name].some((transitionName) => transitionName.toLowerCase() === wantedName.toLowerCase());
  const candidateTransitions =
    wantedNames.length > 0
      ? wantedNames.flatMap((name) => transitions.filter((transition) => isTransitionNamed(transition, name)))
      : // The names of Jira's statuses depend on the language of the account.
        transitions.filter(({ to }) => to.statusCategory?.key === "done");
  const transitionBodies = candidateTransitions.map((transition) => buildTransitionBody(transition, resolution));
  return transitionBodies.find((body) => body !== null) ?? null;
}

function buildTransitionBody(
  { id, fields = {} }: Transition,
  wantedResolution: string | undefined,
): TransitionBody | null {
  const { resolution, ...otherFields } = fields;
  if (Object.values(otherFields).some((field) => field.required === true && field.hasDefaultValue !== true))
    return null;
  const transition = { id };
  if (resolution === undefined) return { transition };
  if (wantedResolution !== undefined) return { transition, fields: { resolution: { name: wantedResolution } } };
  if (resolution.required !== true) return { transition };
  const defaultResolutionId = resolution.allowedValues?.[0]?.id;
  return defaultResolutionId === undefined ? null : { transition, fields: { resolution: { id: defaultResolutionId } } };
}
