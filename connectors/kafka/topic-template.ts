import { hash } from "node:crypto";
import { EVENT_KINDS, type Event, eventSourceName } from "../../src/core/model/event.ts";

/** Nouns of subjects (`tag` in `site/1/tag/7`). Equal keys have one noun, so a topic per noun keeps their order. */
const TOPIC_SUBJECT_NOUNS = ["alarm", "tag", "gateway", "host", "system", "site", "worker"] as const;
type TopicSubjectNoun = (typeof TOPIC_SUBJECT_NOUNS)[number];

const TOPIC_PLACEHOLDERS = ["noun", "kind", "source", "site"] as const;
type TopicPlaceholder = (typeof TOPIC_PLACEHOLDERS)[number];

const MAX_TOPIC_LENGTH = 249;
const MAX_PLACEHOLDER_LENGTH = 64;
const HASHED_VALUE_PREFIX_LENGTH = 31;
const TOPIC_PLACEHOLDER_PATTERN = /\{([^{}]*)\}/g;

const getMaxTextLength = (texts: readonly string[]) => Math.max(...texts.map(({ length }) => length));
const MAX_LENGTH_BY_PLACEHOLDER: Readonly<Record<TopicPlaceholder, number>> = {
  noun: getMaxTextLength(TOPIC_SUBJECT_NOUNS),
  kind: getMaxTextLength(EVENT_KINDS),
  source: MAX_PLACEHOLDER_LENGTH,
  site: MAX_PLACEHOLDER_LENGTH,
};

export function findTopicTemplateError(template: string): string | null {
  const usedPlaceholders = [...template.matchAll(TOPIC_PLACEHOLDER_PATTERN)].map(([, name = ""]) => name);
  const unknownPlaceholder = usedPlaceholders.find((name) => !isPlaceholder(name));
  if (unknownPlaceholder !== undefined)
    return `There is no {${unknownPlaceholder}}; use ${TOPIC_PLACEHOLDERS.map((name) => `{${name}}`).join(", ")}.`;
  if (new Set(usedPlaceholders).size < usedPlaceholders.length) return "Use each placeholder once.";
  const literalTexts = template.split(TOPIC_PLACEHOLDER_PATTERN).filter((_, n) => n % 2 === 0);
  const invalidCharacter = literalTexts.join("").match(/[^A-Za-z0-9._-]/)?.[0];
  if (invalidCharacter !== undefined)
    return `A topic consists of letters, digits, ".", "_" and "-"; "${invalidCharacter}" is none of them.`;
  if (literalTexts.slice(1, -1).some((literal) => !literal.includes(".")))
    return "Put a point between two placeholders, so that no two things get one topic.";
  if (template === "" || /^\.{1,2}$/.test(template)) return 'A topic needs a name; "." and ".." are none.';
  if (template.startsWith("__")) return 'Topics that begin with "__" are those of Kafka itself.';
  const placeholderLengths = usedPlaceholders.filter(isPlaceholder).map((name) => MAX_LENGTH_BY_PLACEHOLDER[name]);
  const maxTopicLength = placeholderLengths.reduce((sum, length) => sum + length, literalTexts.join("").length);
  if (maxTopicLength > MAX_TOPIC_LENGTH)
    return `Topics could become ${maxTopicLength} characters long; Kafka takes ${MAX_TOPIC_LENGTH}.`;
  return null;
}

/**
 * Builds topics from a template such as `plenum.{noun}`. In values, UTF-8 bytes except letters, digits and `-` become
 * `_` and their code (`north_2` becomes `north_5f2`), so two objects never share a topic.
 */
export function createTopicTemplate(template: string) {
  const templateParts = template.split(TOPIC_PLACEHOLDER_PATTERN);
  const fillTopicTemplate = (getValue: (name: TopicPlaceholder) => string, encodeLiteral = (text: string) => text) =>
    templateParts.map((part, n) => (n % 2 === 0 ? encodeLiteral(part) : getValue(part as TopicPlaceholder))).join("");
  const usesPlaceholder = (name: TopicPlaceholder) => template.includes(`{${name}}`);
  const nouns: readonly string[] = usesPlaceholder("noun") ? TOPIC_SUBJECT_NOUNS : [""];
  const eventKinds: readonly string[] = usesPlaceholder("kind") ? EVENT_KINDS : [""];
  const dependsOnSourceOrSite = usesPlaceholder("source") || usesPlaceholder("site");
  const topicPattern = new RegExp(`^${fillTopicTemplate(() => "[\\w-]+", RegExp.escape)}$`);
  return {
    buildTopic: (event: Event) => fillTopicTemplate((name) => READ_VALUE_BY_PLACEHOLDER[name](event)),
    possibleTopics: dependsOnSourceOrSite
      ? null
      : nouns.flatMap((noun) => eventKinds.map((kind) => fillTopicTemplate((name) => (name === "noun" ? noun : kind)))),
    matchesTopic: (topic: string) => topicPattern.test(topic),
  };
}

const READ_VALUE_BY_PLACEHOLDER: Readonly<Record<TopicPlaceholder, (event: Event) => string>> = {
  noun: ({ subject }) => findSubjectNoun(subject),
  kind: ({ type }) => type,
  source: (event) => {
    const eventSource = eventSourceName(event);
    return eventSource === null ? "_worker" : encodeTopicValue(eventSource);
  },
  site: ({ siteid }) => (siteid === undefined ? "_none" : encodeTopicValue(siteid)),
};

/** Returns alarm for `site/1/alarm/500001`, site for `site/1`, worker for `audit`. */
export function findSubjectNoun(subject: string): TopicSubjectNoun {
  const [firstSegment = "", , thirdSegment] = subject.split("/");
  const subjectNoun = firstSegment === "site" && thirdSegment !== undefined ? thirdSegment : firstSegment;
  return TOPIC_SUBJECT_NOUNS.find((noun) => noun === subjectNoun) ?? "worker";
}

export function encodeTopicValue(text: string): string {
  const bytes = Buffer.from(text);
  const encodedTopicValue = bytes
    .toString("latin1")
    .replaceAll(/[^A-Za-z0-9-]/g, (byte) => `_${byte.charCodeAt(0).toString(16).padStart(2, "0")}`);
  if (encodedTopicValue.length <= MAX_PLACEHOLDER_LENGTH) return encodedTopicValue;
  return `${encodedTopicValue.slice(0, HASHED_VALUE_PREFIX_LENGTH)}_h${hash("sha256", bytes).slice(0, MAX_PLACEHOLDER_LENGTH - HASHED_VALUE_PREFIX_LENGTH - 2)}`;
}

const isPlaceholder = (name: string): name is TopicPlaceholder =>
  (TOPIC_PLACEHOLDERS as readonly string[]).includes(name);
