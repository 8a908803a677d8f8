import { createHash } from "node:crypto";
import type { CommandMessage } from "../../src/core/connector.ts";

export interface TopicParts {
  readonly source: string | null;
  readonly site: string | null;
  readonly kind: string;
  readonly id: string;
  /** Path of fixed words, e.g. `value` or `history/5m`. */
  readonly aspect?: string;
}

const RESERVED = new Set(["cmd", "status", "reply", "worker"]);
const PLACEHOLDERS = ["{prefix}", "{source}", "{site}", "{kind}", "{id}", "{aspect}"] as const;
const LITERAL = /^[\w.:@-]{1,64}$/;

const MAX_SEGMENT = 128;
const MAX_REPLY_TOPIC = 1_024;

export type Topics = ReturnType<typeof createTopics>;

/**
 * Builds every topic, so that no `+` or `#` reaches the broker, which would disconnect. No value becomes a reserved
 * first word, so no published message can return as a command. `source` is the only source of a fleet member.
 */
export function createTopics(prefix: string, template: string, source?: string) {
  const layout = template.split("/");
  const status = source === undefined ? `${prefix}/status` : `${prefix}/status/source/${segment(source)}`;
  const commandTree = `${prefix}/cmd/`;
  const isOwn = ownPattern(prefix, layout);

  return {
    status,
    commandStatus: `${status}/commands`,
    check: `${prefix}/status/check`,
    /** One tag, several tags named in the payload, and second approvals. */
    commandFilters: ["+/set", "set", "second"].map(
      (rest) => `${commandTree}${source === undefined ? "+" : segment(source)}/${rest}`,
    ),

    topicOf(parts: TopicParts): string {
      let topic = "";
      for (const part of layout) {
        const level = part.startsWith("{") ? levelOf(part, prefix, parts) : part;
        if (level !== undefined) topic += topic === "" ? level : `/${level}`;
      }
      return topic;
    },

    /** Returns the source and tag in a command topic; null for another topic. */
    parseCommand(topic: string): Pick<CommandMessage, "source" | "tagId" | "purpose"> | null {
      if (!topic.startsWith(commandTree)) return null;
      const [level = "", ...rest] = topic.slice(commandTree.length).split("/");
      const named = { source: decodeSegment(level), tagId: null };
      if (rest.length === 1 && rest[0] === "second") return { ...named, purpose: "second" };
      const [tag = "", word = tag] = rest;
      if (word !== "set" || rest.length > 2) return null;
      return rest.length === 1 ? named : { ...named, tagId: decodeSegment(tag) };
    },

    /** Returns whether a response may go there: not into our own trees, except below `<prefix>/reply/`. */
    mayReply(topic: string): boolean {
      if (topic === "" || topic.startsWith("$") || /[+#\p{Cc}]/u.test(topic) || !topic.isWellFormed()) return false;
      if (topic.length > MAX_REPLY_TOPIC) return false;
      if (topic.startsWith(`${prefix}/reply/`)) return true;
      return topic !== prefix && !topic.startsWith(`${prefix}/`) && !isOwn(topic);
    },
  };
}

function levelOf(placeholder: string, prefix: string, parts: TopicParts): string | undefined {
  switch (placeholder) {
    case "{prefix}":
      return prefix;
    case "{source}":
      return parts.source === null ? "worker" : segment(parts.source);
    case "{site}":
      return parts.site === null ? "_" : segment(parts.site);
    case "{kind}":
      return segment(parts.kind);
    case "{id}":
      return segment(parts.id);
    default:
      return parts.aspect;
  }
}

const PLAIN = /^[\w.-]{1,128}$/;

/** Encodes without collisions: other characters become `%XX`, an empty text `~`, a long one `~` and its hash. */
export function segment(value: string): string {
  if (PLAIN.test(value) && !RESERVED.has(value) && value !== "_") return value;
  if (!value.isWellFormed() || value.length > MAX_SEGMENT) return hashed(value);
  if (value === "") return "~";
  if (RESERVED.has(value) || value === "_") return percent(value.charAt(0)) + value.slice(1);
  const encoded = value.replace(/[^\w.-]/gu, percent);
  return encoded.length > MAX_SEGMENT ? hashed(value) : encoded;
}

function decodeSegment(level: string): string {
  if (level === "~") return "";
  try {
    return decodeURIComponent(level);
  } catch {
    return level;
  }
}

function percent(characters: string): string {
  return [...Buffer.from(characters)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");
}

function hashed(value: string): string {
  return `~${createHash("sha256").update(Buffer.from(value, "utf16le")).digest("base64url")}`;
}

function ownPattern(prefix: string, layout: readonly string[]): (topic: string) => boolean {
  const literally = (part: string) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const parts = layout.map((part) => {
    if (part === "{prefix}") return `${literally(prefix)}/`;
    if (part === "{aspect}") return "(.+/)?";
    return part.startsWith("{") ? "[^/]+/" : `${literally(part)}/`;
  });
  const pattern = new RegExp(`^${parts.join("")}$`, "s");
  return (topic) => pattern.test(`${topic}/`);
}

export function prefixError(prefix: string): string | null {
  const levels = prefix.split("/");
  if (levels.length > 8 || levels.some((level) => !LITERAL.test(level))) {
    return "Write the prefix as one to eight levels of letters, digits, `_.:@-`, such as plenum or acme/plenum.";
  }
  return null;
}

export function templateError(template: string): string | null {
  const levels = template.split("/");
  for (const level of levels) {
    const known = (PLACEHOLDERS as readonly string[]).includes(level);
    if (!known && !LITERAL.test(level)) {
      return `Each level is a word or one of ${PLACEHOLDERS.join(" ")}; \`${level}\` is neither.`;
    }
    if (!known && RESERVED.has(level)) return `\`${level}\` is taken; choose another word.`;
    if (known && levels.indexOf(level) !== levels.lastIndexOf(level)) return `${level} stands there twice.`;
  }
  for (const needed of ["{kind}", "{id}", "{aspect}"]) {
    if (!levels.includes(needed)) return `The layout needs ${needed}, or different things would share a topic.`;
  }
  return null;
}
