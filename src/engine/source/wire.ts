import { z } from "zod";
import type { TagValue } from "../../core/model/building.ts";
import { masked } from "../../core/values/masking.ts";
import { printable } from "../../core/values/printable.ts";
import { wireTime } from "./iso-time.ts";
import { isRecord, textOf } from "./reply.ts";

/**
 * Tolerant field parsers for `schema.ts`. Unknown members are ignored. A member of the wrong type becomes the empty
 * value of the right type and is counted through `note`. Only ids are strict, because they
 * identify records.
 */
export type Note = (field: string, times?: number) => void;

/** Names and descriptions beyond this are cut; no screen, topic or column can take them. */
const LONGEST_TEXT = 10_000;

/** The words that the interface names. */
export const STATUSES: readonly string[] = ["active", "resolved"];
export const PRIORITIES: readonly string[] = ["A", "B", "C"];

/** An id in text form. The interface gives strings, and integers for sites; both are taken for either. */
export const RecordId = z.union([z.string().min(1).max(255), z.int()]).transform((id) => wellFormed(String(id)));

export const NumericId = z.union([z.int(), z.string().regex(/^\d{1,15}$/)]).transform(Number);

/**
 * Whether a record is of a site with a number beyond 2^53, which no number here can hold: it is left out, counted and
 * logged, and the list that has it is no complete one. The other sites are followed.
 */
export function isBeyondNumbers(record: unknown): boolean {
  if (!isRecord(record)) return false;
  const { id } = record;
  return typeof id === "string" && /^\d+$/.test(id) && !Number.isSafeInteger(Number(id));
}

const Flag = z.union([z.boolean(), z.literal([0, 1]).transform((bit) => bit === 1)]);

/**
 * UTF-8 has no lone surrogates: one that stayed would come back from every store as another text. And a service that
 * echoes what it was sent, in a name of all places, must not have us tell it to everybody.
 */
export function wellFormed(text: string): string {
  return masked(text.slice(0, LONGEST_TEXT)).toWellFormed();
}

/** The times of the interface have 25 characters or fewer, come by the thousand, and hold no part of a secret. */
const USUAL_TIME = /^[\d-]{10}T[\d:.]{8,12}(Z|[+-][\d:]{4,5})?$/;

export function timeText(raw: string): string {
  return USUAL_TIME.test(raw) ? raw : wellFormed(raw);
}

export function fields(note: Note) {
  const noted =
    <T>(field: string, instead: T) =>
    () => {
      note(field);
      return instead;
    };

  return {
    text: (field: string) => z.string().transform(wellFormed).catch(noted(field, "")),

    textOrNull: (field: string) =>
      z
        .string()
        .transform(wellFormed)
        .nullish()
        .transform((text) => text ?? null)
        .catch(noted(field, null)),

    /** A word of which the interface names the usual ones; any other is kept and counted. */
    word: (field: string, usual: readonly string[]) =>
      z
        .string()
        .transform((text) => {
          if (!usual.includes(text)) note(field);
          return wellFormed(text);
        })
        .catch(noted(field, "")),

    numberOrNull: (field: string) =>
      z
        .number()
        .nullish()
        .transform((value) => value ?? null)
        .catch(noted(field, null)),

    id: (field: string) => NumericId.catch(noted(field, 0)),

    flag: (field: string, instead: boolean) => Flag.catch(noted(field, instead)),

    /** For what must not be guessed either way. */
    flagOrNull: (field: string) => Flag.nullable().catch(noted(field, null)),

    /** A time and its raw text. Other text stays as received. */
    time: (field: string) =>
      z
        .string()
        .transform((raw) => {
          const told = timeText(raw);
          const { text, known } = wireTime(told);
          if (!known) note(field);
          return { text, raw: told };
        })
        .catch(noted(field, { text: "", raw: "" })),

    /** Text that is no time becomes null: a broken `resolved_at` must not resolve an alarm. */
    timeOrNull: (field: string) =>
      z
        .string()
        .nullish()
        .transform((raw) => {
          if (raw === null || raw === undefined || raw === "") return { text: null, raw: null };
          const told = timeText(raw);
          const { text, known } = wireTime(told);
          if (!known) note(field);
          return { text: known ? text : null, raw: told };
        })
        .catch(noted(field, { text: null, raw: null })),

    /** A list; PHP writes an empty one, and one with gaps in its numbers, as an object. */
    list: <Item extends z.ZodType>(item: Item) => z.preprocess((value) => listIn(value) ?? value, z.array(item)),

    /** An object, or one without members where none came, so that its own fields can say what is missing. */
    inside: <Shape extends z.ZodRawShape>(shape: Shape) =>
      z.preprocess((value) => (isRecord(value) ? value : {}), z.object(shape)),
  };
}

/**
 * A list as it came, or as PHP spells one: an empty one may be `{}`, and one from which something was taken out has
 * its numbers as names. Null for what is no list. A name that is no number says that it is one thing, not many.
 */
export function listIn(value: unknown): readonly unknown[] | null {
  if (Array.isArray(value)) return value;
  if (!isRecord(value)) return null;
  return Object.keys(value).every((name) => /^(0|[1-9]\d{0,8})$/.test(name)) ? Object.values(value) : null;
}

export type Fields = ReturnType<typeof fields>;

/** A number as JSON writes it, and nothing else: not " 21.5", "21,5", "0x10", "+1", "1." or "". */
const JSON_NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
/** Characters of a value that a message shows. */
const SHOWN = 60;
/** Members of a list or object that a message shows. */
const MEMBERS = 3;

/**
 * A value of a tag: a number, a boolean or null (interface, Tag), or a text that is exactly a JSON number, as PHP prints
 * the decimals of a database. Undefined for everything else, which is unreadable: neither null nor absent.
 */
export function tagValueIn(raw: unknown): TagValue | undefined {
  if (raw === null || typeof raw === "boolean") return raw;
  return numberIn(raw);
}

/** A finite number, or the finite number that a text is. */
export function numberIn(raw: unknown): number | undefined {
  const number = typeof raw === "string" && JSON_NUMBER.test(raw) ? Number(raw) : raw;
  return typeof number === "number" && Number.isFinite(number) ? number : undefined;
}

/** Describes an unreadable value with the service's own words: `the text "n/a"`. */
export function kindOf(raw: unknown): string {
  if (typeof raw === "number" && Number.isFinite(raw)) return String(raw);
  if (raw === undefined) return "missing";
  if (typeof raw === "number") return "a number beyond every bound";
  if (raw === null) return "null";
  const words = printable(textOf(beginningOf(raw)));
  const shown = words.length > SHOWN ? `${words.slice(0, SHOWN).toWellFormed()}…` : words;
  if (typeof raw === "string") return `the text "${shown}"`;
  if (typeof raw === "boolean") return shown;
  return `${Array.isArray(raw) ? "the list" : "the object"} ${shown}`;
}

/** A few members are enough for a message, and a list may have a quarter of a million. */
function beginningOf(raw: unknown): unknown {
  if (Array.isArray(raw)) return raw.slice(0, MEMBERS);
  return isRecord(raw) ? Object.fromEntries(Object.entries(raw).slice(0, MEMBERS)) : raw;
}
