import { z } from "zod";
import { masked } from "../../core/values/masking.ts";
import { wireTime } from "./iso-time.ts";
import { isRecord } from "./reply.ts";

/**
 * The tolerant building blocks of src/engine/source/schema.ts. Unknown members are let go, a member of the wrong kind
 * becomes the emptiest value of the right kind and is counted through `note` under its name. Only ids are strict:
 * without them nobody can tell records apart or count them.
 */
export type Note = (field: string, times?: number) => void;

/** Names and descriptions beyond this are cut; no screen, topic or column can take them. */
const LONGEST_TEXT = 10_000;

/** The words that the interface names. */
export const STATUSES: readonly string[] = ["active", "resolved"];
export const PRIORITIES: readonly string[] = ["A", "B", "C"];

/** An id in text form. The interface gives strings, and integers for sites; both are taken for either. */
export const RecordId = z
  .union([z.string().min(1).max(255), z.int()])
  .transform((id) => wellFormed(String(id)));

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

    /** A time and its raw text. What is no time is kept as it came. */
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

    /** What is no time is no time here: a broken `resolved_at` must not resolve an alarm. */
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
    list: <Item extends z.ZodType>(item: Item) =>
      z.preprocess((value) => listIn(value) ?? value, z.array(item)),

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
