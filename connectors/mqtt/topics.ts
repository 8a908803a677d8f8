import { createHash } from "node:crypto";

/**
 * Every topic of the connector is made here, because a single `+` or `#` in the topic of a publish makes a broker
 * hang up, again at each attempt.
 *
 * In a fleet each source speaks for itself: its status is `<prefix>/status/source/<source>`, and its commands are those
 * of its own name only, wherever it is held.
 *
 * Below the prefix four first words are taken: `status`, `cmd` (commands to us), `reply` (answers to where a
 * requester wants them) and `worker` (facts about Plenum itself). No value ever becomes one of them, so what we
 * publish can never come back to us as a command.
 */
export interface Topics {
  readonly status: string;
  readonly commandStatus: string;
  /** Topic of `plenum check`; not retained. */
  readonly check: string;
  /** Subscriptions: one tag, several tags named in the payload, and second approvals. */
  readonly commandFilters: readonly string[];
  of(parts: TopicParts): string;
  /** The source and the tag that a command topic names; null for a topic that is none. */
  parseCommand(topic: string): { readonly source: string; readonly tagId: string | null } | null;
  /** The source whose commands a second person speaks about on this topic; null for any other topic. */
  parseSecond(topic: string): string | null;
  /** Whether an answer may go there: anywhere but into our own trees, except below `<prefix>/reply/`. */
  mayReply(topic: string): boolean;
}

export interface TopicParts {
  /** Name of the source; null for the worker itself. */
  readonly source: string | null;
  /** Id of the site; null for what belongs to none. */
  readonly site: string | null;
  readonly kind: string;
  readonly id: string;
  /** Path of fixed words, e.g. `value` or `history/5m`; absent where there is only one thing to say. */
  readonly aspect?: string;
}

const RESERVED = new Set(["cmd", "status", "reply", "worker"]);
const PLACEHOLDERS = ["{prefix}", "{source}", "{site}", "{kind}", "{id}", "{aspect}"] as const;
const LITERAL = /^[\w.:@-]{1,64}$/;

/** Longest text used literally in a topic; a longer one becomes a hash. */
const MAX_SEGMENT = 128;
/** Longest topic that we answer to, in characters. */
const MAX_REPLY_TOPIC = 1_024;

/** `source`: the one source that this is about, in a fleet; undefined where it is about all. */
export function createTopics(prefix: string, template: string, source?: string): Topics {
  const layout = template.split("/");
  const status = source === undefined ? `${prefix}/status` : `${prefix}/status/source/${segment(source)}`;
  const commanded = source === undefined ? "+" : segment(source);
  const commandTree = `${prefix}/cmd/`;
  const isOwn = ownPattern(prefix, layout);

  return {
    status,
    commandStatus: `${status}/commands`,
    check: `${prefix}/status/check`,
    commandFilters: ["+/set", "set", "second"].map((rest) => `${commandTree}${commanded}/${rest}`),

    of(parts) {
      let topic = "";
      for (const part of layout) {
        const level = part.startsWith("{") ? levelOf(part, prefix, parts) : part;
        if (level !== undefined) topic += topic === "" ? level : `/${level}`;
      }
      return topic;
    },

    parseCommand(topic) {
      if (!topic.startsWith(commandTree)) return null;
      const [source = "", ...rest] = topic.slice(commandTree.length).split("/");
      if (rest.at(-1) !== "set" || rest.length > 2) return null;
      const [tag] = rest;
      return { source: text(source), tagId: rest.length === 1 || tag === undefined ? null : text(tag) };
    },

    parseSecond(topic) {
      if (!topic.startsWith(commandTree)) return null;
      const [source = "", word, ...rest] = topic.slice(commandTree.length).split("/");
      return word === "second" && rest.length === 0 ? text(source) : null;
    },

    mayReply(topic) {
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

/** Most names and ids; they need no encoding unless reserved. */
const PLAIN = /^[\w.-]{1,128}$/;

/**
 * Any text as one level of a topic. Letters, digits, `_`, `.` and `-` stay; everything else becomes `%XX` per
 * UTF-8 byte; the empty text is `~`, and a text that is too long or no Unicode is `~` and its hash. `%` and `~`
 * are themselves encoded, so no two texts share a level.
 */
export function segment(value: string): string {
  if (PLAIN.test(value) && !RESERVED.has(value) && value !== "_") return value;
  if (!value.isWellFormed() || value.length > MAX_SEGMENT) return hashed(value);
  if (value === "") return "~";
  if (RESERVED.has(value) || value === "_") return percent(value.charAt(0)) + value.slice(1);
  const encoded = value.replace(/[^\w.-]/gu, percent);
  return encoded.length > MAX_SEGMENT ? hashed(value) : encoded;
}

/** The text that a level stands for; the level itself where it stands for none. */
function text(level: string): string {
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

/** Matches every topic that the layout can give. */
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

/** Returns the error in a prefix; null when it is valid. */
export function prefixError(prefix: string): string | null {
  const levels = prefix.split("/");
  if (levels.length > 8 || levels.some((level) => !LITERAL.test(level))) {
    return "Write the prefix as one to eight levels of letters, digits, `_.:@-`, such as plenum or acme/plenum.";
  }
  return null;
}

/** Returns the error in a topic layout; null when it is valid. */
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
