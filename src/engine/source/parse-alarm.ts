import type { Alarm, AlarmActivity, Site } from "../../core/model/building.ts";
import { wireTime } from "./iso-time.ts";
import { isRecord } from "./reply.ts";
import { PRIORITIES, STATUSES, timeText, wellFormed } from "./wire.ts";

/**
 * Parses an alarm record without a schema when each field is exactly as the interface says, or returns null: then
 * `schema.ts` parses the record and counts what is unusual. A list of 5,000 alarms has 115,000 fields, and zod takes ten
 * times as long.
 */
export function parseAlarmFast(record: unknown, askedSiteId: number | undefined): Alarm | null {
  if (!isRecord(record) || !isRecord(record.attributes) || !isId(record.id)) return null;
  const attributes = record.attributes;
  const site = parseSite(attributes.site);
  const trigger = parseTrigger(attributes.trigger);
  const lastActiveEvent = parseActivity(attributes.last_active_event);
  if (site === null || trigger === null || lastActiveEvent === undefined) return null;
  const { status, source, description, acknowledged, acknowledged_by, acknowledged_message } = attributes;
  if (typeof status !== "string" || !STATUSES.includes(status) || typeof acknowledged !== "boolean") return null;
  if (typeof source !== "string" || typeof description !== "string") return null;
  if (!isTextOrNull(acknowledged_by) || !isTextOrNull(acknowledged_message)) return null;
  const triggeredAt = parseTime(attributes.triggered_at);
  const resolvedAt = parseTimeOrNull(attributes.resolved_at);
  const recoveringUntil = parseTimeOrNull(attributes.recovering_until);
  const acknowledgedAt = parseTimeOrNull(attributes.acknowledged_at);
  if (!triggeredAt || !resolvedAt || !recoveringUntil || !acknowledgedAt) return null;
  return {
    id: wellFormed(record.id),
    site: site.id === 0 && askedSiteId !== undefined ? { ...site, id: askedSiteId } : site,
    trigger,
    status,
    source: wellFormed(source),
    description: wellFormed(description),
    triggeredAt: triggeredAt.text,
    triggeredAtRaw: triggeredAt.raw,
    resolvedAt: resolvedAt.text,
    resolvedAtRaw: resolvedAt.raw,
    recoveringUntil: recoveringUntil.text,
    acknowledged,
    acknowledgedBy: textOrNull(acknowledged_by),
    acknowledgedMessage: textOrNull(acknowledged_message),
    acknowledgedAt: acknowledgedAt.text,
    lastActiveEvent,
  };
}

function parseSite(site: unknown): Site | null {
  if (!isRecord(site) || !isWhole(site.id) || typeof site.display_name !== "string") return null;
  return { id: site.id, displayName: wellFormed(site.display_name) };
}

function parseTrigger(trigger: unknown): Alarm["trigger"] | null {
  if (!isRecord(trigger) || !isWhole(trigger.id)) return null;
  const { id, display_name, description, priority, enabled } = trigger;
  if (typeof display_name !== "string" || !isTextOrNull(description) || typeof enabled !== "boolean") return null;
  if (typeof priority !== "string" || !PRIORITIES.includes(priority)) return null;
  return {
    id,
    displayName: wellFormed(display_name),
    description: textOrNull(description),
    priority,
    enabled,
  };
}

/** Undefined where it takes the schema to say what it is. */
function parseActivity(activity: unknown): AlarmActivity | null | undefined {
  if (activity === null) return null;
  if (!isRecord(activity) || !isWhole(activity.id)) return undefined;
  const { id, source, type, triggered_on, value, textlist_value } = activity;
  if (typeof source !== "string" || typeof type !== "string" || typeof triggered_on !== "string") return undefined;
  if (value !== null && !(typeof value === "number" && Number.isFinite(value))) return undefined;
  if (!isTextOrNull(textlist_value)) return undefined;
  const triggeredAt = parseTime(activity.triggered_at);
  if (triggeredAt === null) return undefined;
  return {
    id,
    source: wellFormed(source),
    type: wellFormed(type),
    triggeredOn: wellFormed(triggered_on),
    value,
    textlistValue: textOrNull(textlist_value),
    triggeredAt: triggeredAt.text,
  };
}

function isId(id: unknown): id is string {
  return typeof id === "string" && id.length > 0 && id.length <= 255;
}

function isWhole(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value);
}

function isTextOrNull(value: unknown): value is string | null {
  return value === null || typeof value === "string";
}

function textOrNull(text: string | null): string | null {
  return text === null ? null : wellFormed(text);
}

/** A time and its raw text; null for what is no time at all. */
function parseTime(value: unknown): { readonly text: string; readonly raw: string } | null {
  if (typeof value !== "string") return null;
  const raw = timeText(value);
  const { text, known } = wireTime(raw);
  return known ? { text, raw } : null;
}

const NO_TIME = { text: null, raw: null } as const;

function parseTimeOrNull(value: unknown) {
  return value === null ? NO_TIME : parseTime(value);
}
