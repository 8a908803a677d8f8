import { createHash } from "node:crypto";
import { z } from "zod";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError } from "../../src/core/errors/errors.ts";
import { printable } from "../../src/core/values/printable.ts";
import { type PhraseName, vocabulary } from "../shared/receiver/phrases.ts";
import type { IncidentMessage, IncidentReference, Receiver } from "../shared/receiver/receiver.ts";
import { cut, withFewerTimeSeries } from "../shared/receiver/text.ts";
import { createTable, type Row } from "./api.ts";
import type { ServiceNowConfig } from "./config.ts";

/** For so long after an opening in doubt the instance may still be at it, in milliseconds: rules run in the request. */
const SETTLED_MS = 60_000;
/** Key that never occurs, for the probe. */
const UNUSED_KEY = "plenum-probe";

/** Stored reference. `over`: the last message was the end, so any later one means that the alarm is back. */
const Ref = z.object({ id: z.string().regex(/^[0-9a-f]{32}$/), over: z.boolean() });

/** An incident for every alarm. */
export function createServiceNowReceiver(config: ServiceNowConfig, context: ConnectorContext): Receiver {
  const { clock, log } = context;
  const site = config.url.replace(/\/+$/, "");
  const table = createTable(config, clock);
  const words = vocabulary(config.language, config.words);
  const said = new Set<string>();

  function referenceOf({ sys_id, number }: Row): IncidentReference {
    const record = encodeURIComponent(`${config.table}.do?sys_id=${sys_id}`);
    return {
      ref: { id: sys_id, over: false } satisfies z.infer<typeof Ref>,
      ticket: number !== undefined && /^[\w-]{1,40}$/.test(number) ? number : null,
      link: `${site}/nav_to.do?uri=${record}`,
    };
  }

  /** Logs each message once, because it would repeat for every alarm. */
  function warnOnce(message: string, reference: IncidentReference): void {
    if (said.has(message)) return;
    said.add(message);
    log.warn({ ticket: reference.ticket, table: config.table }, message);
  }

  const labelsOf = (names: readonly PhraseName[]) => names.map((name) => words[name]);

  /** Texts of an incident. The title of one alarm is stable and a person may have edited it. */
  const textsOf = (incident: IncidentMessage) => ({
    description: descriptionOf(incident),
    ...(incident.kind === "alarm" ? {} : { short_description: shortDescriptionOf(incident) }),
  });

  const noteFor = (incident: IncidentMessage, cameBack: boolean) => {
    const repeated = phrasesOfNote(incident, cameBack);
    return repeated === null ? {} : { work_notes: noteOf(incident, labelsOf(repeated)) };
  };

  const isClosed = ({ active }: Row) => active === "false";
  const isResolved = ({ state }: Row) => state === config.resolved_state;

  /** Changes of a resolved incident whose alarm is back. */
  function reopening(incident: IncidentMessage, reference: IncidentReference): Readonly<Record<string, unknown>> {
    if (config.reopen_state !== undefined)
      return { ...textsOf(incident), ...noteFor(incident, true), state: config.reopen_state };
    warnOnce("an alarm is back and its incident stays resolved, because there is no reopen_state", reference);
    return noteFor(incident, true);
  }

  /** The records of an incident that are active, the oldest first. */
  async function recordsOf(key: string, signal: AbortSignal): Promise<readonly Row[]> {
    const rows = await table.search(`correlation_id=${key}^active=true`, signal);
    // An instance ignores unknown parts of a query and finds all records.
    if (rows.every(({ correlation_id }) => correlation_id === key)) return rows;
    throw new ConfigError(`The table ${config.table} cannot be searched by correlation_id.`, {
      field: "table",
      hint: "Use a table that extends task, such as incident, and let the user read that field.",
    });
  }

  return {
    opensAgain: "findable",
    farEnd: createHash("sha256").update(`${site} ${config.table}`).digest("hex"),
    lastStepMs: table.lastStepMs,

    async open(incident, signal) {
      const row = await table.create(
        {
          ...config.fields,
          ...config.priority[incident.priority],
          ...(config.assignment_group === undefined ? {} : { assignment_group: config.assignment_group }),
          short_description: shortDescriptionOf(incident),
          description: descriptionOf(incident),
          correlation_id: incident.key,
          correlation_display: "plenum",
        },
        signal,
      );
      const reference = referenceOf(row);
      if (row.correlation_id !== incident.key)
        warnOnce("a record did not keep its correlation_id, so a crash may make a second one", reference);
      return reference;
    },

    async update(incident, reference, signal) {
      const { id, over } = Ref.parse(reference.ref);
      const now = await table.read(id, signal);
      if (now === null) return "gone";
      const cameBack = over || incident.change === "retriggered";
      const isOver = isClosed(now) || isResolved(now);
      // A person ended it; leave it.
      if (isOver && !cameBack) return reference;
      // A closed incident cannot be reopened: the alarm gets a new one.
      if (isClosed(now)) return "gone";
      const fields = isOver ? reopening(incident, reference) : { ...textsOf(incident), ...noteFor(incident, cameBack) };
      const changed = await table.change(id, fields, signal);
      return changed === null ? "gone" : { ...reference, ref: { id, over: false } };
    },

    async close(incident, reference, signal) {
      const { id } = Ref.parse(reference.ref);
      const now = await table.read(id, signal);
      if (now === null) return "gone";
      const done = { ...reference, ref: { id, over: true } };
      // Resolved by a person, or by us with a lost response.
      if (isClosed(now) || isResolved(now)) return done;
      const fields = {
        ...textsOf(incident),
        state: config.resolved_state,
        ...(config.close_code === undefined ? {} : { close_code: config.close_code }),
        close_notes: noteOf(incident, labelsOf(["ended", "lasted"]), config.close_notes),
      };
      const changed = await table.change(id, fields, signal);
      if (changed === null) return "gone";
      // ServiceNow silently ignores fields that the user may not write.
      if (!isResolved(changed) && !isClosed(changed))
        warnOnce("an incident stays open although its alarm is over, because its state did not change", reference);
      return done;
    },

    async find(incident, sinceMs, signal) {
      const [first, ...others] = await recordsOf(incident.key, signal);
      if (first === undefined) {
        // A clock that was set back must not extend the wait.
        const left = SETTLED_MS - Math.abs(clock.now() - sinceMs);
        return left <= 0 ? null : { againInMs: left };
      }
      const reference = referenceOf(first);
      const duplicates = others.filter((row) => !isResolved(row));
      if (duplicates.length > 0)
        log.warn(
          { ticket: reference.ticket, duplicates: duplicates.map((row) => referenceOf(row).ticket) },
          "an alarm has several incidents; the oldest is kept up to date",
        );
      const work_notes = `Duplicate of ${reference.ticket ?? first.sys_id}; Plenum keeps only that one up to date.`;
      for (const { sys_id } of duplicates) await table.change(sys_id, { work_notes }, signal);
      return reference;
    },

    async probe(signal) {
      await recordsOf(UNUSED_KEY, signal);
    },

    dispose: () => table.close(),
  };
}

/** Longest short_description, in characters (ServiceNow, as it is delivered). */
const MAX_SHORT = 160;
/** Longest description, note or close_notes, in characters (ServiceNow, as it is delivered). */
const MAX_LONG = 4_000;

function shortDescriptionOf({ text }: IncidentMessage): string {
  return cut(withoutMarkup(printable(text.title)), MAX_SHORT);
}

/**
 * Plain text of several lines. How the values went goes first where there is no room, line by line; then every text is
 * shortened by half until the whole has room, the link never.
 */
export function descriptionOf({ link, text }: IncidentMessage): string {
  const untruncated = withFewerTimeSeries(text)
    .map((each) => described({ link, text: each }, MAX_LONG))
    .find((each) => each.length <= MAX_LONG);
  if (untruncated !== undefined) return untruncated;
  const incident = { link, text: { ...text, curves: [] } };
  let longest = MAX_LONG;
  let description = described(incident, longest);
  while (description.length > MAX_LONG && longest > 1) {
    longest = Math.floor(longest / 2);
    description = described(incident, longest);
  }
  return description;
}

/** The status and some of the fields; `labels` are theirs. */
export function noteOf({ text }: IncidentMessage, labels: readonly string[], before?: string): string {
  const fields = text.fields.filter(({ label }) => labels.includes(label));
  return cut([...(before === undefined ? [] : [before]), text.status, ...linesOf(fields, 1_000)].join("\n"), MAX_LONG);
}

/** Phrases of the fields in the work note for a change; null for no note. */
function phrasesOfNote(incident: IncidentMessage, cameBack: boolean): readonly PhraseName[] | null {
  if (cameBack) return ["since"];
  if (incident.change === "acknowledged") return ["acknowledgedBy", "message"];
  if (incident.change === "recovering") return [];
  return incident.change === "vanished" || incident.change === "out-of-scope" ? ["unknown"] : null;
}

function described({ text, link }: Pick<IncidentMessage, "text" | "link">, longest: number): string {
  const list = text.list.map((line) => `- ${cut(withoutMarkup(printable(line)), longest)}`);
  return [
    printable(text.status),
    ...linesOf(text.fields, longest),
    ...(list.length === 0 ? [] : ["", ...list]),
    ...(text.curves.length === 0 ? [] : ["", ...text.curves.map((line) => withoutMarkup(printable(line)))]),
    ...(link === null ? [] : ["", `${printable(text.linkText)}: ${new URL(link).href}`]),
  ].join("\n");
}

/** `Label: text`; what a text has of further lines is moved in, so that none of them looks like a label. */
function linesOf(fields: IncidentMessage["text"]["fields"], longest: number): readonly string[] {
  return fields.map(({ label, text }) => {
    const lines = cut(text, longest)
      .split(/[\r\n\u0085\u2028\u2029]+/)
      .map((line) => withoutMarkup(printable(line)).trim());
    return `${printable(label)}: ${lines.filter((line) => line !== "").join("\n  ")}`;
  });
}

/** Disables `[code]` HTML and mentions `@[sys_id:name]` in notes. */
function withoutMarkup(text: string): string {
  return text.replaceAll(/\[(?=\s*(?:\/\s*)?code)/gi, "[ ").replaceAll(/@(?=\s*\[)/g, "@ ");
}
