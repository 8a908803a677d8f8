/** What a path is made of. */
export interface Place {
  readonly kind: string;
  /** Null for what is about no single site. */
  readonly site: string | null;
  /** `2026-11-02`, UTC. */
  readonly date: string;
}

/** What stands in a path for "belongs to no site", as in the topics of `mqtt`. */
const NO_SITE = "_";

const PLACEHOLDERS = ["kind", "site", "date"] as const;

/** What is wrong with a template of folders; null when nothing is. */
export function templateComplaint(template: string): string | null {
  const levels = template.split("/");
  if (levels.some((level) => !/^([A-Za-z0-9_=.-]|\{[a-z]+\})+$/.test(level) || /^\.+$/.test(level))) {
    return "Write folders with `/` between them, of letters, digits, `_`, `=`, `.`, `-` and {kind}, {site}, {date}.";
  }
  const names = [...template.matchAll(/\{([a-z]+)\}/g)].map(([, name]) => name);
  const unknown = names.find((name) => !PLACEHOLDERS.some((known) => known === name));
  if (unknown !== undefined) return `There is no {${unknown}}; use {kind}, {site} and {date}.`;
  return names.includes("date") ? null : "Put {date} into it, so that a day can be read by itself.";
}

/** The folder of a place: `{kind}/{site}/{date}` becomes `tag-value/1/2026-11-02`. */
export function folderOf(template: string, { kind, site, date }: Place): string {
  const parts = { kind, site: site === null ? NO_SITE : spelled(site), date };
  return template.replaceAll(/\{(kind|site|date)\}/g, (_, name: keyof typeof parts) => parts[name]);
}

/** An id as a part of a path: what a file system may take for something else is written as `%XX` (UTF-8). */
function spelled(id: string): string {
  const text = id.toWellFormed().slice(0, 100);
  const coded = encodeURIComponent(text).replaceAll(/[!'()*~]/g, (letter) => percent(letter));
  if (coded === "") return "~";
  return /^(\.+|_)$/.test(coded) ? [...coded].map(percent).join("") : coded;
}

function percent(letter: string): string {
  return `%${letter.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;
}

/** The day that a time says; `unknown` where it is no time of the usual form. */
export function dayOf(time: string): string {
  return /^\d{4}-\d{2}-\d{2}/.exec(time)?.[0] ?? "unknown";
}
