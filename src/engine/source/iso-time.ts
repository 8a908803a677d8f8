import { DateTime } from "luxon";
import { isoUtc } from "../../core/values/iso-utc.ts";

export interface WireTime {
  readonly text: string;
  readonly known: boolean;
}

/** The usual form of history stamps. Days 29 to 31 need `Date.parse`, because not every month has them. */
const PLAIN_UTC = /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ$/;
const COMMON_UTC = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
/** The usual form of alarm times, which `Date.parse` reads as ISO 8601. */
const COMMON_OFFSET =
  /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d[+-]([01]\d|2[0-3]):[0-5]\d$/;
const OFFSET = /T.*(Z|[+-]\d\d(:?\d\d)?)(\[[\w/+-]+\])?$/;
/** Longest time in characters. The expressions below need quadratic time: a minute for 200,000 characters. */
const TIME_LENGTH_MAX = 200;
const LEAP_SECOND = /^(.*T\d\d:?\d\d:?)60/;

/** Converts ISO 8601 into UTC with milliseconds. Keeps other text, `known` if only the offset is missing. */
export function wireTime(raw: string): WireTime {
  if (PLAIN_UTC.test(raw)) return { text: `${raw.slice(0, 19)}.000Z`, known: true };
  if (COMMON_UTC.test(raw)) {
    const ms = Date.parse(raw);
    const text = `${raw.slice(0, 19)}.000Z`;
    if (!Number.isNaN(ms) && isoUtc(ms) === text) return { text, known: true };
  }
  if (COMMON_OFFSET.test(raw)) return { text: isoUtc(Date.parse(raw)), known: true };
  if (raw.length > TIME_LENGTH_MAX) return { text: raw, known: false };
  const upper = raw.trim().replace(/[a-z](?![^[]*\])/g, (letter) => letter.toUpperCase());
  const spelled = upper.replace(/^(\d{4}-\d\d-\d\d) +(?=\d\d:)/, "$1T").replace(/ +(?=(Z|[+-]\d\d:?\d\d)$)/, "");
  const leap = LEAP_SECOND.test(spelled);
  const time = DateTime.fromISO(leap ? spelled.replace(LEAP_SECOND, "$159") : spelled, { zone: "utc" });
  if (!time.isValid) return { text: raw, known: false };
  if (!OFFSET.test(spelled)) return { text: raw, known: true };
  const ms = leap ? time.startOf("second").toMillis() + 1000 : time.toMillis();
  return { text: isoUtc(ms), known: true };
}

/** Formats a time for a history request: full seconds and a trailing `Z`. Null if it is not ISO 8601 in UTC. */
export function requestTime(iso: string): string | null {
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(iso)) return null;
  const ms = Date.parse(iso);
  const seconds = iso.slice(0, 19);
  return !Number.isNaN(ms) && isoUtc(ms).startsWith(seconds) ? `${seconds}Z` : null;
}
