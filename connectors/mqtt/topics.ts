import { createHash } from "node:crypto";
import type { CommandMessage } from "../../src/core/connector.ts";

export interface TopicParts {
  readonly source: string | null;
  readonly site: string | null;
  readonly kind: string;
  readonly id: string;
  /** Last levels of the topic, e.g. `value` or `history/5m`. */
  readonly aspect?: string;
}

/** Names for the placeholders of a topic layout, and the path of a tag, which replaces the complete layout. */
export interface TopicNames {
  readonly siteName?: string | undefined;
  readonly system?: string | undefined;
  readonly gateway?: string | undefined;
  readonly tagName?: string | undefined;
  readonly path?: string | undefined;
}

export const DEFAULT_LAYOUT = "{prefix}/{source}/{site}/{kind}/{id}/{aspect}";

const RESERVED_LEVELS = new Set(["cmd", "status", "reply", "worker"]);
const LITERAL_LEVEL_PATTERN = /^[\w.:@-]{1,64}$/;

const MAX_SEGMENT_LENGTH = 128;
const MAX_REPLY_TOPIC_LENGTH = 1_024;

export type Topics = ReturnType<typeof createTopics>;

/**
 * Builds all topics. Encodes `+` and `#` in values, because the broker would disconnect. Escapes reserved levels in
 * values, so that no published message can return as a command. `source` is the only source of a fleet member.
 */
export function createTopics(prefix: string, template: string, source?: string) {
  const layout = template.split("/");
  const isLayoutOfEveryKind = layout.includes("{kind}") && layout.includes("{id}");
  const layoutOfOtherKinds = isLayoutOfEveryKind ? layout : DEFAULT_LAYOUT.split("/");
  const statusTopic = source === undefined ? `${prefix}/status` : `${prefix}/status/source/${encodeSegment(source)}`;
  const commandTopicPrefix = `${prefix}/cmd/`;
  const isOwnTopic = createOwnTopicMatcher(prefix, layout);
  const isTopicOfOtherKind = createOwnTopicMatcher(prefix, layoutOfOtherKinds);

  /** Builds the topic pattern of an object, with the placeholder `{aspect}` for the aspect. */
  function buildPattern(parts: TopicParts, names: TopicNames = {}): string {
    const { path } = names;
    const appendName = (topic: string, name: string) => {
      const level = cleanTopicLevel(name);
      // A site named `cmd` directly after the prefix must not produce a command topic.
      return `${topic}/${topic === prefix && RESERVED_LEVELS.has(level) ? "_" : ""}${level}`;
    };
    // Fleet members do not see each other's tag paths, so the source name in the topic keeps it unique.
    const pathPrefix = source === undefined ? prefix : `${prefix}/${encodeSegment(source)}`;
    if (path !== undefined) return `${path.split("/").reduce(appendName, pathPrefix)}/{aspect}`;
    // The topic of a site's status does not depend on the layout.
    if (parts.kind === "site-status")
      return `${prefix}/${encodeSegment(parts.source ?? "")}/${encodeSegment(parts.id)}/{aspect}`;
    let pattern = "";
    for (const level of parts.kind === "tag" ? layout : layoutOfOtherKinds) {
      const findName = NAME_PLACEHOLDERS.get(level);
      if (findName !== undefined) pattern = appendName(pattern, findName(names, parts));
      else pattern += `/${ID_PLACEHOLDERS.get(level)?.(parts, prefix) ?? level}`;
      if (pattern.startsWith("/")) pattern = pattern.slice(1);
    }
    return pattern;
  }

  return {
    status: statusTopic,
    commandStatus: `${statusTopic}/commands`,
    check: `${prefix}/status/check`,
    commandFilters: ["+/set", "set", "second"].map(
      (topicEnd) => `${commandTopicPrefix}${source === undefined ? "+" : encodeSegment(source)}/${topicEnd}`,
    ),

    buildTopic: (parts: TopicParts, names?: TopicNames) => formatTopic(buildPattern(parts, names), parts.aspect),
    buildPattern,
    /** Returns true if the topics of objects contain this placeholder, e.g. `{site_name}`. */
    usesPlaceholder: (placeholder: string) => layout.includes(placeholder),
    /** False if tags may have equal topics, because the layout contains names instead of ids. */
    isLayoutOfEveryKind,
    /** Returns true if the topic pattern of a named tag could equal the topic pattern of another object. */
    isReserved: (pattern: string) => isTopicOfOtherKind(formatTopic(pattern, "value")),

    /** Returns the source and tag in a command topic; null for another topic. */
    parseCommand(topic: string): Pick<CommandMessage, "source" | "tagId" | "purpose"> | null {
      if (!topic.startsWith(commandTopicPrefix)) return null;
      const [sourceLevel = "", ...targetLevels] = topic.slice(commandTopicPrefix.length).split("/");
      const commandTarget = { source: decodeSegment(sourceLevel), tagId: null };
      if (targetLevels.length === 1 && targetLevels[0] === "second") return { ...commandTarget, purpose: "second" };
      const [tagLevel = "", verbLevel = tagLevel] = targetLevels;
      if (verbLevel !== "set" || targetLevels.length > 2) return null;
      return targetLevels.length === 1 ? commandTarget : { ...commandTarget, tagId: decodeSegment(tagLevel) };
    },

    /** Returns true if a response may go to this topic. Plenum's own topics are refused, except `<prefix>/reply/…`. */
    mayReply(topic: string): boolean {
      if (topic === "" || topic.startsWith("$") || /[+#\p{Cc}]/u.test(topic) || !topic.isWellFormed()) return false;
      if (topic.length > MAX_REPLY_TOPIC_LENGTH) return false;
      if (topic.startsWith(`${prefix}/reply/`)) return true;
      return topic !== prefix && !topic.startsWith(`${prefix}/`) && !isOwnTopic(topic);
    },
  };
}

/** Replaces `{aspect}` in a topic pattern. Without an aspect, removes the level `{aspect}`. */
export function formatTopic(pattern: string, aspect: string | undefined): string {
  if (aspect !== undefined) return pattern.replace("{aspect}", aspect);
  return pattern
    .split("/")
    .filter((level) => level !== "{aspect}")
    .join("/");
}

export function appendTagId(pattern: string, tagId: string): string {
  const suffix = `-${encodeSegment(tagId)}`;
  return pattern.endsWith("/{aspect}") ? pattern.replace("/{aspect}", `${suffix}/{aspect}`) : pattern + suffix;
}

/** Returns a name as one level with letters, digits, `_`, `.` and `-` only; names are cut after 128 characters. */
function cleanTopicLevel(name: string): string {
  const characters = [...name.normalize("NFC").trim()].slice(0, MAX_SEGMENT_LENGTH).join("");
  const level = characters.replace(/[^\p{L}\p{M}\p{N}_.-]/gu, "_");
  return level === "" ? "_" : level;
}

/** Functions that return the encoded levels for placeholders; `{aspect}` stays in the pattern. */
const ID_PLACEHOLDERS = new Map<string, (parts: TopicParts, prefix: string) => string>([
  ["{prefix}", (_, prefix) => prefix],
  ["{source}", ({ source }) => (source === null ? "worker" : encodeSegment(source))],
  ["{site}", ({ site }) => (site === null ? "_" : encodeSegment(site))],
  ["{tag}", ({ kind, id }) => (kind === "tag" ? encodeSegment(id) : "_")],
  ["{kind}", ({ kind }) => encodeSegment(kind)],
  ["{id}", ({ id }) => encodeSegment(id)],
  ["{aspect}", () => "{aspect}"],
]);

/** Functions that return the name for each placeholder, or an empty text for a missing name. */
const NAME_PLACEHOLDERS = new Map<string, (names: TopicNames, parts: TopicParts) => string>([
  ["{site_name}", ({ siteName }, { site }) => siteName ?? site ?? ""],
  ["{system}", ({ system }) => system ?? ""],
  ["{gateway}", ({ gateway }) => gateway ?? ""],
  ["{tag_name}", ({ tagName }, { kind, id }) => (kind === "tag" ? (tagName ?? id) : "")],
]);

const TOPIC_PLACEHOLDERS = [...ID_PLACEHOLDERS.keys(), ...NAME_PLACEHOLDERS.keys()];

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
  const levelPatterns = layout.map((level) => {
    if (level === "{prefix}") return `${RegExp.escape(prefix)}/`;
    if (level === "{aspect}") return "(.+/)?";
    if (level === "{kind}") return "(site|gateway|host|system|tag|alarm|event|command)/";
    return level.startsWith("{") ? "[^/]+/" : `${RegExp.escape(level)}/`;
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
    const isPlaceholder = TOPIC_PLACEHOLDERS.includes(level);
    if (!isPlaceholder && !LITERAL_LEVEL_PATTERN.test(level))
      return `Each level is a word or one of ${TOPIC_PLACEHOLDERS.join(" ")}; \`${level}\` is neither.`;
    if (!isPlaceholder && RESERVED_LEVELS.has(level)) return `\`${level}\` is taken; choose another word.`;
    if (isPlaceholder && levels.indexOf(level) !== levels.lastIndexOf(level)) return `${level} stands there twice.`;
  }
  const identifiesTags = levels.includes("{tag}") || levels.includes("{tag_name}");
  const neededLevels = identifiesTags ? ["{aspect}"] : ["{kind}", "{id}", "{aspect}"];
  const missingLevel = neededLevels.find((level) => !levels.includes(level));
  if (missingLevel === undefined) return null;
  return `The layout needs ${missingLevel}, or different things would share a topic.`;
}
