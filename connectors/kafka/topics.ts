import { hash } from "node:crypto";
import { type Event, KINDS, sourceName } from "../../src/core/model/event.ts";

/** Kinds of subjects; a command's is its tag. Each key has one noun, so topics by noun keep its order. */
const NOUNS = ["alarm", "tag", "gateway", "host", "system", "site", "worker"] as const;
type TopicNoun = (typeof NOUNS)[number];

const PLACEHOLDERS = ["noun", "kind", "source", "site"] as const;
type Placeholder = (typeof PLACEHOLDERS)[number];

const MAX_TOPIC = 249;
const MAX_VALUE = 64;
const KEPT_OF_LONG = 31;
const PLACEHOLDER = /\{([^{}]*)\}/g;

const longest = (texts: readonly string[]) => Math.max(...texts.map(({ length }) => length));
const LONGEST: Readonly<Record<Placeholder, number>> = {
  noun: longest(NOUNS),
  kind: longest(KINDS),
  source: MAX_VALUE,
  site: MAX_VALUE,
};

export function templateError(template: string): string | null {
  const used = [...template.matchAll(PLACEHOLDER)].map(([, name = ""]) => name);
  const unknown = used.find((name) => !isPlaceholder(name));
  if (unknown !== undefined) {
    return `There is no {${unknown}}; use ${PLACEHOLDERS.map((name) => `{${name}}`).join(", ")}.`;
  }
  if (new Set(used).size < used.length) return "Use each placeholder once.";
  const literals = template.split(PLACEHOLDER).filter((_, n) => n % 2 === 0);
  const strange = literals.join("").match(/[^A-Za-z0-9._-]/)?.[0];
  if (strange !== undefined) {
    return `A topic consists of letters, digits, ".", "_" and "-"; "${strange}" is none of them.`;
  }
  if (literals.slice(1, -1).some((literal) => !literal.includes("."))) {
    return "Put a point between two placeholders, so that no two things get one topic.";
  }
  if (template === "" || /^\.{1,2}$/.test(template)) return 'A topic needs a name; "." and ".." are none.';
  if (template.startsWith("__")) return 'Topics that begin with "__" are those of Kafka itself.';
  const length = literals.join("").length + used.filter(isPlaceholder).reduce((sum, n) => sum + LONGEST[n], 0);
  if (length > MAX_TOPIC) return `Topics could become ${length} characters long; Kafka takes ${MAX_TOPIC}.`;
  return null;
}

/**
 * Builds topics from a template such as `plenum.{noun}`. In values, UTF-8 bytes except letters, digits and `-` become
 * `_` and their code (`north_2` becomes `north_5f2`), so two objects never share a topic.
 */
export function createTopics(template: string) {
  const parts = template.split(PLACEHOLDER);
  const filled = (value: (name: Placeholder) => string) =>
    parts.map((part, n) => (n % 2 === 0 ? part : value(part as Placeholder))).join("");
  const uses = (name: Placeholder) => template.includes(`{${name}}`);
  const nouns: readonly string[] = uses("noun") ? NOUNS : [""];
  const kinds: readonly string[] = uses("kind") ? KINDS : [""];
  const depends = uses("source") || uses("site");
  const pattern = new RegExp(`^${parts.map((part, n) => (n % 2 === 0 ? RegExp.escape(part) : "[\\w-]+")).join("")}$`);
  return {
    topicOf: (event: Event) => filled((name) => VALUES[name](event)),
    possibleTopics: depends
      ? null
      : nouns.flatMap((noun) => kinds.map((kind) => filled((name) => (name === "noun" ? noun : kind)))),
    matches: (topic: string) => pattern.test(topic),
  };
}

const VALUES: Readonly<Record<Placeholder, (event: Event) => string>> = {
  noun: ({ subject }) => nounOf(subject),
  kind: ({ type }) => type,
  source: (event) => {
    const name = sourceName(event);
    return name === null ? "_worker" : encodeForTopic(name);
  },
  site: ({ siteid }) => (siteid === undefined ? "_none" : encodeForTopic(siteid)),
};

/** The noun of `site/1/alarm/500001` is alarm, of `site/1` site, of `audit` worker. */
export function nounOf(subject: string): TopicNoun {
  const [first = "", , third] = subject.split("/");
  const noun = first === "site" && third !== undefined ? third : first;
  return NOUNS.find((known) => known === noun) ?? "worker";
}

export function encodeForTopic(text: string): string {
  const bytes = Buffer.from(text);
  const written = bytes
    .toString("latin1")
    .replaceAll(/[^A-Za-z0-9-]/g, (byte) => `_${byte.charCodeAt(0).toString(16).padStart(2, "0")}`);
  if (written.length <= MAX_VALUE) return written;
  return `${written.slice(0, KEPT_OF_LONG)}_h${hash("sha256", bytes).slice(0, MAX_VALUE - KEPT_OF_LONG - 2)}`;
}

const isPlaceholder = (name: string): name is Placeholder => (PLACEHOLDERS as readonly string[]).includes(name);
