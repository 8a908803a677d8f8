/** Texts with `{{field}}` in them. */

/** What stands between the braces of a text, as it is written there. */
export function fieldsIn(text: string): readonly string[] {
  return [...text.matchAll(/\{\{([^{}]*)\}\}/g)].map(([, name = ""]) => name.trim());
}

/** The text without its fields; what is left of braces there opens or closes nothing. */
export function withoutFields(text: string): string {
  return text.replaceAll(/\{\{[^{}]*\}\}/g, "");
}

/** Each field by way of `value`; nothing in a value is read as a field again. */
export function filledIn(text: string, value: (name: string) => string): string {
  return text.replaceAll(/\{\{([^{}]*)\}\}/g, (_, name: string) => value(name.trim()));
}

/** The field where the text is one field and nothing else: `{{site.id}}`. */
export function onlyFieldOf(text: string): string | null {
  const [, name] = /^\{\{([^{}]*)\}\}$/.exec(text) ?? [];
  return name?.trim() ?? null;
}

/** A value inside a text: a text as it is, nothing for null, anything else as JSON. */
export function asText(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Steps into an answer: `$.data[0].id` is data, 0, id. */
export function stepsOf(path: string): readonly string[] {
  return [...path.matchAll(/\.([A-Za-z_][\w-]*)|\[(\d+)\]/g)].map(([, name, index]) => name ?? index ?? "");
}

export const ANSWER_PATH = /^\$(\.[A-Za-z_][\w-]*|\[\d{1,4}\])*$/;
