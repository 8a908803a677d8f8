import { createHash } from "node:crypto";
import type { CommandMessage } from "../../src/core/connector.ts";

export interface TopicParts {
  readonly source: string | null;
  readonly site: string | null;
  readonly kind: string;
  readonly id: string;
  /** Path of fixed words below the object, e.g. `value` or `history/5m`. */
  readonly aspect?: string;
}

const RESERVED_LEVELS = new Set(["cmd", "status", "reply", "worker"]);
const TOPIC_PLACEHOLDERS = ["{prefix}", "{source}", "{site}", "{kind}", "{id}", "{aspect}"] as const;
const LITERAL_LEVEL_PATTERN = /^[\w.:@-]{1,64}$/;

const MAX_SEGMENT_LENGTH = 128;
const MAX_REPLY_TOPIC_LENGTH = 1_024;

export type Topics = ReturnType<typeof createTopics>;

/**
 * Builds every topic, so that no `+` or `#` reaches the broker, which would disconnect. No value becomes a reserved
 * first word, so no published message can return as a command. `source` is the only source of a fleet member.
 */
export function createTopics(prefix: string, template: string, source?: string) {
  const layout = template.split("/");
  const status = source === undefined ? `${prefix}/status` : `${prefix}/status/source/${encodeSegment(source)}`;
  const commandTree = `${prefix}/cmd/`;
  const isOwnTopic = createOwnTopicMatcher(prefix, layout);

  return {
    status,
    commandStatus: `${status}/commands`,
    check: `${prefix}/status/check`,
    commandFilters: ["+/set", "set", "second"].map(
      (rest) => `${commandTree}${source === undefined ? "+" : encodeSegment(source)}/${rest}`,
    ),

    /** Retained status of a site. Its place does not depend on the template. */
    siteStatus: (source: string | null, siteId: string) =>
      `${prefix}/${source === null ? "worker" : encodeSegment(source)}/${encodeSegment(siteId)}/status`,

    buildTopic(parts: TopicParts): string {
      let topic = "";
      for (const level of layout) {
        const topicLevel = level.startsWith("{") ? resolvePlaceholder(level, prefix, parts) : level;
        if (topicLevel !== undefined) topic += topic === "" ? topicLevel : `/${topicLevel}`;
      }
      return topic;
    },

    /** Returns the source and tag in a command topic; null for another topic. */
    parseCommand(topic: string): Pick<CommandMessage, "source" | "tagId" | "purpose"> | null {
      if (!topic.startsWith(commandTree)) return null;
      const [level = "", ...rest] = topic.slice(commandTree.length).split("/");
      const commandTarget = { source: decodeSegment(level), tagId: null };
      if (rest.length === 1 && rest[0] === "second") return { ...commandTarget, purpose: "second" };
      const [tag = "", word = tag] = rest;
      if (word !== "set" || rest.length > 2) return null;
      return rest.length === 1 ? commandTarget : { ...commandTarget, tagId: decodeSegment(tag) };
    },

    /** Returns true if a response may be published to a topic: none of Plenum's own, except `<prefix>/reply/…`. */
    mayReply(topic: string): boolean {
      if (topic === "" || topic.startsWith("$") || /[+#\p{Cc}]/u.test(topic) || !topic.isWellFormed()) return false;
      if (topic.length > MAX_REPLY_TOPIC_LENGTH) return false;
      if (topic.startsWith(`${prefix}/reply/`)) return true;
      return topic !== prefix && !topic.startsWith(`${prefix}/`) && !isOwnTopic(topic);
    },
  };
}

function resolvePlaceholder(placeholder: string, prefix: string, parts: TopicParts): string | undefined {
  switch (placeholder) {
    case "{prefix}":
      return prefix;
    case "{source}":
      return parts.source === null ? "worker" : encodeSegment(parts.source);
    case "{site}":
      return parts.site === null ? "_" : encodeSegment(parts.site);
    case "{kind}":
      return encodeSegment(parts.kind);
    case "{id}":
      return encodeSegment(parts.id);
    default:
      return parts.aspect;
  }
}

const PLAIN_SEGMENT_PATTERN = /^[\w.-]{1,128}$/;

/** Encodes a value as a topic level without collisions: `%XX` for special characters, `~` and a hash for long texts. */
export function encodeSegment(value: string): string {
  if (PLAIN_SEGMENT_PATTERN.test(value) && !RESERVED_LEVELS.has(value) && value !== "_") return value;
  if (!value.isWellFormed() || value.length > MAX_SEGMENT_LENGTH) return hashSegment(value);
  if (value === "") return "~";
  if (RESERVED_LEVELS.has(value) || value === "_") return percentEncode(value.charAt(0)) + value.slice(1);
  const encodedValue = value.replace(/[^\w.-]/gu, percentEncode);
  return encodedValue.length > MAX_SEGMENT_LENGTH ? hashSegment(value) : encodedValue;
}

function decodeSegment(level: string): string {
  if (level === "~") return "";
  try {
    return decodeURIComponent(level);
  } catch {
    return level;
  }
}

function percentEncode(characters: string): string {
  return [...Buffer.from(characters)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");
}

function hashSegment(value: string): string {
  return `~${createHash("sha256").update(Buffer.from(value, "utf16le")).digest("base64url")}`;
}

function createOwnTopicMatcher(prefix: string, layout: readonly string[]): (topic: string) => boolean {
  const levelPatterns = layout.map((part) => {
    if (part === "{prefix}") return `${RegExp.escape(prefix)}/`;
    if (part === "{aspect}") return "(.+/)?";
    return part.startsWith("{") ? "[^/]+/" : `${RegExp.escape(part)}/`;
  });
  const pattern = new RegExp(`^${levelPatterns.join("")}$`, "s");
  return (topic) => pattern.test(`${topic}/`);
}

export function findPrefixError(prefix: string): string | null {
  const levels = prefix.split("/");
  if (levels.length > 8 || levels.some((level) => !LITERAL_LEVEL_PATTERN.test(level)))
    return "Write the prefix as one to eight levels of letters, digits, `_.:@-`, such as plenum or acme/plenum.";
  return null;
}

export function findTemplateError(template: string): string | null {
  const levels = template.split("/");
  for (const level of levels) {
    const isPlaceholder = (TOPIC_PLACEHOLDERS as readonly string[]).includes(level);
    if (!isPlaceholder && !LITERAL_LEVEL_PATTERN.test(level))
      return `Each level is a word or one of ${TOPIC_PLACEHOLDERS.join(" ")}; \`${level}\` is neither.`;
    if (!isPlaceholder && RESERVED_LEVELS.has(level)) return `\`${level}\` is taken; choose another word.`;
    if (isPlaceholder && levels.indexOf(level) !== levels.lastIndexOf(level)) return `${level} stands there twice.`;
  }
  const missingLevel = ["{kind}", "{id}", "{aspect}"].find((level) => !levels.includes(level));
  if (missingLevel === undefined) return null;
  return `The layout needs ${missingLevel}, or different things would share a topic.`;
}
