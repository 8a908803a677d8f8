import { hash } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError } from "../../src/core/errors/errors.ts";
import { cutText, shortenUntilFits } from "../shared/receiver/message-texts.ts";
import type { AlarmReceiver, IncidentMessage, IncidentText } from "../shared/receiver/receiver-interface.ts";
import {
  createTicketReceiver,
  createWarnOncePerMessage,
  type Ticket,
  type TicketSystem,
} from "../shared/receiver/ticket-receiver.ts";
import { createServiceNowTableApi, type TaskRecord } from "./api.ts";
import type { ServiceNowConfig } from "./config.ts";

/** A search may miss a new incident for this time, because ServiceNow's rules run before the incident is stored. */
const RECORD_SEARCH_LAG_MS = 60_000;
const PROBE_CORRELATION_ID = "plenum-probe";

export function createServiceNowReceiver(config: ServiceNowConfig, context: ConnectorContext): AlarmReceiver {
  const instanceUrl = config.url.replace(/\/+$/, "");
  const tableApi = createServiceNowTableApi(config, context.clock);
  const warnOnce = createWarnOncePerMessage(context.log, { table: config.table });

  function recordToTicket({ sys_id, number = "" }: TaskRecord): Ticket {
    const recordPath = encodeURIComponent(`${config.table}.do?sys_id=${sys_id}`);
    const ticket = /^[\w-]{1,40}$/.test(number) ? number : null;
    return { id: sys_id, ticket, link: `${instanceUrl}/nav_to.do?uri=${recordPath}` };
  }

  const buildDescriptionFields = (incident: IncidentMessage) => ({
    description: formatDescription(incident),
    short_description: incident.kind === "alarm" ? undefined : formatShortDescription(incident),
  });

  const isRowResolved = ({ state }: TaskRecord) => state === config.resolved_state;
  const toTicketState = (row: TaskRecord) => (row.active === "false" ? "closed" : isRowResolved(row) ? "done" : "open");

  async function searchRecords(key: string, signal: AbortSignal): Promise<readonly TaskRecord[]> {
    const rows = await tableApi.search(`correlation_id=${key}^active=true`, signal);
    // ServiceNow ignores unknown parts of a query and returns all records.
    if (rows.every(({ correlation_id }) => correlation_id === key)) return rows;
    const hint = "Use a table that extends task, such as incident, and let the user read that field.";
    throw new ConfigError(`The table ${config.table} cannot be searched by correlation_id.`, { field: "table", hint });
  }

  const serviceNowTicketSystem: TicketSystem = {
    ticketPlural: "incidents",
    idPattern: /^[0-9a-f]{32}$/,
    searchLagMs: RECORD_SEARCH_LAG_MS,

    async createTicket(incident, signal) {
      const taskRecord = await tableApi.createRecord(
        {
          ...config.fields,
          ...config.priority[incident.priority],
          assignment_group: config.assignment_group,
          short_description: formatShortDescription(incident),
          description: formatDescription(incident),
          correlation_id: incident.key,
          correlation_display: "plenum",
        },
        signal,
      );
      const ticket = recordToTicket(taskRecord);
      if (taskRecord.correlation_id !== incident.key)
        warnOnce("a record did not keep its correlation_id, so a crash may make a second one", ticket);
      return ticket;
    },

    async readState(id, signal) {
      const taskRecord = await tableApi.readRecord(id, signal);
      return taskRecord === null ? null : toTicketState(taskRecord);
    },

    async update(id, { incident, noteLabels, reference, reopens }, signal) {
      const { reopen_state } = config;
      const staysResolved = reopens && reopen_state === undefined;
      if (staysResolved)
        warnOnce("an alarm is back and its incident stays resolved, because there is no reopen_state", reference);
      const fields = {
        ...(staysResolved ? {} : buildDescriptionFields(incident)),
        work_notes: noteLabels === null ? undefined : formatWorkNote(incident, noteLabels),
        state: reopens ? reopen_state : undefined,
      };
      return (await tableApi.changeRecord(id, fields, signal)) !== null;
    },

    async close(id, { incident, noteLabels, reference }, signal) {
      const fields = {
        ...buildDescriptionFields(incident),
        state: config.resolved_state,
        close_code: config.close_code,
        close_notes: formatWorkNote(incident, noteLabels ?? [], config.close_notes),
      };
      const changedRecord = await tableApi.changeRecord(id, fields, signal);
      // ServiceNow silently ignores fields that the user may not write.
      if (changedRecord !== null && toTicketState(changedRecord) === "open")
        warnOnce("an incident stays open although its alarm is over, because its state did not change", reference);
      return changedRecord !== null;
    },

    async search(incident, signal) {
      const rows = await searchRecords(incident.key, signal);
      return rows.map((row) => ({ ...recordToTicket(row), isDone: isRowResolved(row) }));
    },

    async addNote(id, work_notes, signal) {
      await tableApi.changeRecord(id, { work_notes }, signal);
    },
  };

  return {
    ...createTicketReceiver(serviceNowTicketSystem, config, context),
    serverId: hash("sha256", `${instanceUrl} ${config.table}`),
    progressMs: tableApi.progressMs,
    async probe(signal) {
      await searchRecords(PROBE_CORRELATION_ID, signal);
    },
    dispose: tableApi.close,
  };
}

const MAX_SHORT_DESCRIPTION_LENGTH = 160;
const MAX_DESCRIPTION_LENGTH = 4_000;

const formatShortDescription = ({ text }: IncidentMessage): string =>
  cutText(disableWorkNoteMarkup(text.title), MAX_SHORT_DESCRIPTION_LENGTH);

export function formatDescription({ link, text }: IncidentMessage): string {
  const href = link === null ? null : new URL(link).href;
  return shortenUntilFits(
    text,
    MAX_DESCRIPTION_LENGTH,
    ({ status, fields, list, timeSeriesLines, linkText }) =>
      [
        status,
        ...formatFieldLines(fields),
        ...(list.length === 0 ? [] : ["", ...list.map((line) => `- ${disableWorkNoteMarkup(line)}`)]),
        ...(timeSeriesLines.length === 0 ? [] : ["", ...timeSeriesLines.map(disableWorkNoteMarkup)]),
        ...(href === null ? [] : ["", `${linkText}: ${href}`]),
      ].join("\n"),
    (description) => description.length <= MAX_DESCRIPTION_LENGTH,
  );
}

function formatWorkNote({ text }: IncidentMessage, labels: readonly string[], firstLine?: string): string {
  const fields = text.fields.filter(({ label }) => labels.includes(label));
  const shortenedFields = fields.map(({ label, text }) => ({ label, text: cutText(text, 1_000) }));
  return cutText(
    [...(firstLine === undefined ? [] : [firstLine]), text.status, ...formatFieldLines(shortenedFields)].join("\n"),
    MAX_DESCRIPTION_LENGTH,
  );
}

/** Formats fields. Indents further lines of a text, so that no line looks like a label. */
const formatFieldLines = (fields: IncidentText["fields"]): readonly string[] =>
  fields.map(({ label, text }) => `${label}: ${disableWorkNoteMarkup(text).replaceAll("\n", "\n  ")}`);

/** Disables `[code]` HTML and mentions `@[sys_id:name]` in notes. */
const disableWorkNoteMarkup = (text: string): string =>
  text.replaceAll(/\[(?=\s*(?:\/\s*)?code)/gi, "[ ").replaceAll(/@(?=\s*\[)/g, "@ ");
