import { createHash } from "node:crypto";
import { z } from "zod";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { Rejected } from "../../src/core/errors/errors.ts";
import { vocabulary } from "../shared/receiver/phrases.ts";
import type { IncidentMessage, IncidentReference, Receiver } from "../shared/receiver/receiver.ts";
import { createChecks, createJira, readAs } from "./api.ts";
import { ADF, commentOf, descriptionOf, phrasesOfComment, summaryOf, WIKI } from "./body.ts";
import type { JiraConfig } from "./config.ts";

/**
 * Time after an opening in doubt during which the search may miss the issue, in milliseconds: the search of Cloud lags
 * by seconds to minutes (Atlassian); on Data Center the request may still run.
 */
const SETTLED_MS = { cloud: 300_000, data_center: 60_000 };
/** How long until the next look, in milliseconds. */
const LOOK_AGAIN_MS = 60_000;
/** Most issues of one alarm that are read. */
const MAX_FOUND = 20;

const Id = z.string().regex(/^\d{1,20}$/);
const Key = z.string().regex(/^[A-Za-z][A-Za-z0-9_]*-\d{1,20}$/);
const Created = z.object({ id: Id, key: Key });
const Status = z.object({
  fields: z.object({ status: z.object({ statusCategory: z.object({ key: z.string() }) }) }),
});
const Found = z.object({ issues: z.array(Status.extend({ id: Id, key: Key })) });

/**
 * Stored reference. The id survives a move to another project. `over`: the last message was the end, so any later one
 * means that the alarm is back.
 */
const Ref = z.object({ id: Id, over: z.boolean() });

/** An issue for every alarm. */
export function createJiraReceiver(config: JiraConfig, context: ConnectorContext): Receiver {
  const { clock, log } = context;
  const isCloud = config.deployment === "cloud";
  const format = isCloud ? ADF : WIKI;
  const site = config.url.replace(/\/+$/, "");
  const jira = createJira(config, clock);
  const checks = createChecks(config, jira);
  const words = vocabulary(config.language, config.words);
  const said = new Set<string>();

  const referenceOf = (id: string, key: string): IncidentReference => ({
    ref: { id, over: false } satisfies z.infer<typeof Ref>,
    ticket: key,
    link: `${site}/browse/${key}`,
  });

  /** Logs each message once, because it would repeat for every alarm. */
  function warnOnce(message: string, reference: IncidentReference): void {
    if (said.has(message)) return;
    said.add(message);
    log.warn({ ticket: reference.ticket, project: config.project }, message);
  }

  /** True when the issue is done; null when it no longer exists. */
  async function isDone(id: string, signal: AbortSignal): Promise<boolean | null> {
    const answer = await jira.ask({ method: "GET", path: `/issue/${id}?fields=status`, allow: [404] }, signal);
    if (answer.status === 404) return gone(signal);
    return readAs(answer, Status, jira.origin).fields.status.statusCategory.key === "done";
  }

  /** Jira reports a hidden project like a deleted issue, so check the permission. */
  async function gone(signal: AbortSignal): Promise<null> {
    await checks.seesProject(signal);
    return null;
  }

  /** False when it is not there any more. */
  async function edit(id: string, incident: IncidentMessage, signal: AbortSignal): Promise<boolean> {
    const fields = {
      description: descriptionOf(incident, format),
      // Update the summary of groups only: the summary of one alarm is stable and a person may have edited it.
      ...(incident.kind === "alarm" ? {} : { summary: summaryOf(incident) }),
    };
    const answer = await jira.ask({ method: "PUT", path: `/issue/${id}`, json: { fields }, allow: [404] }, signal);
    return answer.status !== 404;
  }

  /** `allow`: statuses that reject only this comment. */
  async function comment(
    id: string,
    body: unknown,
    signal: AbortSignal,
    allow: readonly number[] = [404],
  ): Promise<void> {
    if (!config.comments) return;
    await jira.ask({ method: "POST", path: `/issue/${id}/comment`, json: { body }, allow }, signal);
  }

  function commentFor(incident: IncidentMessage, cameBack: boolean): unknown {
    const repeated = phrasesOfComment(incident, cameBack);
    if (repeated === null) return null;
    const labels = repeated.map((name) => words[name]);
    return commentOf(incident, labels, format);
  }

  async function transitions(id: string, signal: AbortSignal) {
    const path = `/issue/${id}/transitions?expand=transitions.fields`;
    return (await jira.read({ method: "GET", path }, Transitions, signal)).transitions;
  }

  /** False where a rule of the workflow refuses it. */
  async function carryOut(id: string, step: Step, signal: AbortSignal): Promise<boolean> {
    const path = `/issue/${id}/transitions`;
    const answer = await jira.ask({ method: "POST", path, json: step, allow: [400] }, signal);
    return answer.status !== 400;
  }

  async function reopen(id: string, reference: IncidentReference, signal: AbortSignal): Promise<boolean> {
    const { reopen: name } = config;
    if (name !== undefined) {
      const step = stepNamed(await transitions(id, signal), name);
      if (step !== null && (await carryOut(id, step, signal))) return true;
    }
    warnOnce("an alarm is back and its issue stays closed, because no transition opens it", reference);
    return false;
  }

  return {
    opensAgain: "findable",
    farEnd: createHash("sha256").update(site).digest("hex"),
    lastStepMs: jira.lastStepMs,

    async open(incident, signal) {
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
      const { id, key } = await jira.read({ method: "POST", path: "/issue", json: { fields } }, Created, signal);
      return referenceOf(id, key);
    },

    async update(incident, reference, signal) {
      const { id, over } = Ref.parse(reference.ref);
      const wasDone = await isDone(id, signal);
      if (wasDone === null) return "gone";
      const cameBack = over || incident.change === "retriggered";
      // A person closed it; leave it.
      if (wasDone && !cameBack) return reference;
      const isOpen = !wasDone || (await reopen(id, reference, signal));
      if (isOpen && !(await edit(id, incident, signal))) return "gone";
      const body = commentFor(incident, cameBack);
      // A workflow may refuse comments on what is closed.
      if (body !== null) await comment(id, body, signal, isOpen ? [404] : [400, 403, 404]);
      return { ...reference, ref: { id, over: false } };
    },

    async close(incident, reference, signal) {
      const { id } = Ref.parse(reference.ref);
      const wasDone = await isDone(id, signal);
      if (wasDone === null) return "gone";
      const done = { ...reference, ref: { id, over: true } };
      // Closed by a person, or by us with a lost response.
      if (wasDone) return done;
      const step = stepToDone(await transitions(id, signal), config.done, config.resolution);
      if (!(await edit(id, incident, signal))) return "gone";
      // Before the transition: what is closed may not take comments any more.
      await comment(id, commentFor(incident, false), signal);
      if (step === null || !(await carryOut(id, step, signal)))
        warnOnce("an issue stays open although its alarm is over, because no transition closes it", reference);
      return done;
    },

    async find(incident, sinceMs, signal) {
      const jql = `project = "${config.project}" AND labels = "${labelOf(incident)}" ORDER BY created ASC`;
      const json = { jql, fields: ["status"], maxResults: MAX_FOUND };
      const path = isCloud ? "/search/jql" : "/search";
      const { issues } = await jira
        .read({ method: "POST", path, json }, Found, signal)
        .catch(async (error: unknown) => {
          // A project that the account may not see is a mistake in the search.
          if (error instanceof Rejected) await checks.seesProject(signal);
          throw error;
        });
      // Ids count up.
      const [first, ...others] = issues.toSorted((a, b) => Number(a.id) - Number(b.id));
      if (first === undefined) {
        // A search finds nothing without the permission.
        await checks.seesProject(signal);
        // A clock that was set back must not extend the wait.
        const left = SETTLED_MS[config.deployment] - Math.abs(clock.now() - sinceMs);
        return left <= 0 ? null : { againInMs: Math.min(left, LOOK_AGAIN_MS) };
      }
      const duplicates = others.filter(({ fields }) => fields.status.statusCategory.key !== "done");
      if (duplicates.length > 0)
        log.warn(
          { ticket: first.key, duplicates: duplicates.map(({ key }) => key) },
          "an alarm has several issues; the oldest is kept up to date",
        );
      const sentence = `Duplicate of ${first.key}; Plenum keeps only that one up to date.`;
      for (const { id } of duplicates) await comment(id, format.sentence(sentence), signal);
      return referenceOf(first.id, first.key);
    },

    probe: (signal) => checks.probe(signal),
    dispose: () => jira.close(),
  };
}

/** Finds the issue of an incident again. */
function labelOf({ key }: IncidentMessage): string {
  return `plenum-${key}`;
}

const Field = z.object({
  required: z.boolean().optional(),
  hasDefaultValue: z.boolean().optional(),
  allowedValues: z.array(z.object({ id: z.string().optional(), name: z.string().optional() })).optional(),
});

const Transitions = z.object({
  transitions: z.array(
    z.object({
      id: z.string(),
      name: z.string(),
      to: z.object({
        name: z.string(),
        statusCategory: z.object({ key: z.string() }).optional(),
      }),
      fields: z.record(z.string(), Field).optional(),
    }),
  ),
});
type Transition = z.infer<typeof Transitions>["transitions"][number];

/** The body of the request that carries a transition out. */
interface Step {
  readonly transition: { readonly id: string };
  readonly fields?: Readonly<Record<string, unknown>>;
}

/** How an issue is closed; null where no transition can do it. */
function stepToDone(
  transitions: readonly Transition[],
  done: readonly string[],
  resolution: string | undefined,
): Step | null {
  const fitting =
    done.length > 0
      ? done.flatMap((name) => transitions.filter((transition) => isNamed(transition, name)))
      : // The names are those of the account's language; the keys of categories are the same everywhere.
        transitions.filter(({ to }) => to.statusCategory?.key === "done");
  return fitting.map((transition) => stepOf(transition, resolution)).find((step) => step !== null) ?? null;
}

function stepNamed(transitions: readonly Transition[], name: string): Step | null {
  const named = transitions.filter((transition) => isNamed(transition, name));
  return named.map((transition) => stepOf(transition, undefined)).find((step) => step !== null) ?? null;
}

function isNamed({ name, to }: Transition, wanted: string): boolean {
  return [name, to.name].some((each) => each.toLowerCase() === wanted.toLowerCase());
}

/** Null where the transition asks for something that we do not know. */
function stepOf({ id, fields = {} }: Transition, wanted: string | undefined): Step | null {
  const unknown = Object.entries(fields).some(
    ([name, field]) => name !== "resolution" && field.required === true && field.hasDefaultValue !== true,
  );
  if (unknown) return null;
  const { resolution } = fields;
  if (resolution === undefined) return { transition: { id } };
  if (wanted !== undefined) return { transition: { id }, fields: { resolution: { name: wanted } } };
  if (resolution.required !== true) return { transition: { id } };
  const [first] = resolution.allowedValues ?? [];
  if (first?.id === undefined) return null;
  return { transition: { id }, fields: { resolution: { id: first.id } } };
}
