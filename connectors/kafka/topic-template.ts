import { hash } from "node:crypto";
import { EVENT_KINDS, type Event, eventSourceName } from "../../src/core/model/event.ts";

/** Kinds of event subjects (a command's is its tag). Each key has one noun, so topics by noun keep order. */
const TOPIC_NOUNS = ["alarm", "tag", "gateway", "host", "system", "site", "worker"] as const;
type TopicNoun = (typeof TOPIC_NOUNS)[number];

const TOPIC_PLACEHOLDERS = ["noun", "kind", "source", "site"] as const;
type TopicPlaceholder = (typeof TOPIC_PLACEHOLDERS)[number];

const MAX_TOPIC_LENGTH = 249;
const MAX_VALUE_LENGTH = 64;
const KEPT_PREFIX_LENGTH = 31;
const PLACEHOLDER_PATTERN = /\{([^{}]*)\}/g;

const maxTextLength = (texts: readonly string[]) => Math.max(...texts.map(({ length }) => length));
const MAX_LENGTH_BY_PLACEHOLDER: Readonly<Record<TopicPlaceholder, number>> = {
  noun: maxTextLength(TOPIC_NOUNS),
  kind: maxTextLength(EVENT_KINDS),
  source: MAX_VALUE_LENGTH,
  site: MAX_VALUE_LENGTH,
};

export function findTemplateError(template: string): string | null {
  const usedNames = [...template.matchAll(PLACEHOLDER_PATTERN)].map(([, name = ""]) => name);
  const unknownName = usedNames.find((name) => !isPlaceholder(name));
  if (unknownName !== undefined)
    return `There is no {${unknownName}}; use ${TOPIC_PLACEHOLDERS.map((name) => `{${name}}`).join(", ")}.`;
  if (new Set(usedNames).size < usedNames.length) return "Use each placeholder once.";
  const literals = template.split(PLACEHOLDER_PATTERN).filter((_, n) => n % 2 === 0);
  const invalidCharacter = literals.join("").match(/[^A-Za-z0-9._-]/)?.[0];
  if (invalidCharacter !== undefined)
    return `A topic consists of letters, digits, ".", "_" and "-"; "${invalidCharacter}" is none of them.`;
  if (literals.slice(1, -1).some((literal) => !literal.includes(".")))
    return "Put a point between two placeholders, so that no two things get one topic.";
  if (template === "" || /^\.{1,2}$/.test(template)) return 'A topic needs a name; "." and ".." are none.';
  if (template.startsWith("__")) return 'Topics that begin with "__" are those of Kafka itself.';
  const valueLengths = usedNames.filter(isPlaceholder).map((name) => MAX_LENGTH_BY_PLACEHOLDER[name]);
  const maxLength = valueLengths.reduce((sum, length) => sum + length, literals.join("").length);
  if (maxLength > MAX_TOPIC_LENGTH)
    return `Topics could become ${maxLength} characters long; Kafka takes ${MAX_TOPIC_LENGTH}.`;
  return null;
}

/**
 * Builds topics from a template such as `plenum.{noun}`. In values, UTF-8 bytes except letters, digits and `-` become
 * `_` and their code (`north_2` becomes `north_5f2`), so two objects never share a topic.
 */
export function createTopics(template: string) {
  const templateParts = template.split(PLACEHOLDER_PATTERN);
  const fillTemplate = (value: (name: TopicPlaceholder) => string, encodeLiteral = (text: string) => text) =>
    templateParts.map((part, n) => (n % 2 === 0 ? encodeLiteral(part) : value(part as TopicPlaceholder))).join("");
  const usesPlaceholder = (name: TopicPlaceholder) => template.includes(`{${name}}`);
  const nounValues: readonly string[] = usesPlaceholder("noun") ? TOPIC_NOUNS : [""];
  const kindValues: readonly string[] = usesPlaceholder("kind") ? EVENT_KINDS : [""];
  const dependsOnObject = usesPlaceholder("source") || usesPlaceholder("site");
  const pattern = new RegExp(`^${fillTemplate(() => "[\\w-]+", RegExp.escape)}$`);
  return {
    buildTopic: (event: Event) => fillTemplate((name) => VALUE_BY_PLACEHOLDER[name](event)),
    possibleTopics: dependsOnObject
      ? null
      : nounValues.flatMap((noun) => kindValues.map((kind) => fillTemplate((name) => (name === "noun" ? noun : kind)))),
    matches: (topic: string) => pattern.test(topic),
  };
}

const VALUE_BY_PLACEHOLDER: Readonly<Record<TopicPlaceholder, (event: Event) => string>> = {
  noun: ({ subject }) => findSubjectNoun(subject),
  kind: ({ type }) => type,
  source: (event) => {
    const eventSource = eventSourceName(event);
    return eventSource === null ? "_worker" : encodeTopicValue(eventSource);
  },
  site: ({ siteid }) => (siteid === undefined ? "_none" : encodeTopicValue(siteid)),
};

/** Returns alarm for `site/1/alarm/500001`, site for `site/1`, worker for `audit`. */
export function findSubjectNoun(subject: string): TopicNoun {
  const [first = "", , third] = subject.split("/");
  const subjectNoun = first === "site" && third !== undefined ? third : first;
  return TOPIC_NOUNS.find((known) => known === subjectNoun) ?? "worker";
}

export function encodeTopicValue(text: string): string {
  const bytes = Buffer.from(text);
  const encodedText = bytes
    .toString("latin1")
    .replaceAll(/[^A-Za-z0-9-]/g, (byte) => `_${byte.charCodeAt(0).toString(16).padStart(2, "0")}`);
  if (encodedText.length <= MAX_VALUE_LENGTH) return encodedText;
  return `${encodedText.slice(0, KEPT_PREFIX_LENGTH)}_h${hash("sha256", bytes).slice(0, MAX_VALUE_LENGTH - KEPT_PREFIX_LENGTH - 2)}`;
}

const isPlaceholder = (name: string): name is TopicPlaceholder =>
  (TOPIC_PLACEHOLDERS as readonly string[]).includes(name);
