/** Texts from outside may echo secrets, so they pass `masked` first. Secrets of this process are registered here. */

/** Consecutive characters of a secret that are masked; of a shorter secret all. */
const PART = 12;
/** Shorter secrets are not masked, because ordinary words contain them. */
const SHORTEST = 8;
/** Number of replaced secrets that stay registered while the worker runs. */
const MOST_EXCHANGED = 64;

export const MASK = "[redacted]";

const knownSecrets = new Set<string>();
const replacedSecrets = new Set<string>();
/** Current secret by the place where it was read. */
const secretByPlace = new Map<string, string>();
/** Parts of all spellings by length, with the number of spellings that contain the part. */
const parts = new Map<number, Map<string, number>>();
/** Marks the hash of each part's first characters: other positions need no lookup, which is ten times as fast. */
const BEGINNINGS = 2 ** 20;
let beginnings = new Uint8Array(0);
let changeCount = 0;

/** Registers a secret, until it and 64 others after it were replaced. */
export function registerSecret(secret: string): void {
  if (secret.length < SHORTEST) return;
  replacedSecrets.delete(secret);
  if (knownSecrets.has(secret)) return;
  knownSecrets.add(secret);
  changeCount += 1;
  if (beginnings.length === 0) beginnings = new Uint8Array(BEGINNINGS);
  for (const part of partsOf(secret)) {
    const same = parts.get(part.length) ?? new Map<string, number>();
    parts.set(part.length, same);
    same.set(part, (same.get(part) ?? 0) + 1);
    beginnings[beginning(part, 0)] = 1;
  }
}

/** Records where a secret was read: another secret at the same place replaces it. */
export function recordSecretAt(place: string, secret: string): void {
  const before = secretByPlace.get(place);
  if (before === secret) return;
  secretByPlace.set(place, secret);
  if (before === undefined || !knownSecrets.has(before)) return;
  // If another place still has the old secret, reading it there removes it from the replaced ones.
  replacedSecrets.add(before);
  for (const oldest of replacedSecrets) {
    if (replacedSecrets.size <= MOST_EXCHANGED) break;
    forget(oldest);
  }
}

function forget(secret: string): void {
  replacedSecrets.delete(secret);
  knownSecrets.delete(secret);
  changeCount += 1;
  for (const part of partsOf(secret)) {
    const same = parts.get(part.length);
    const left = (same?.get(part) ?? 1) - 1;
    if (left > 0) same?.set(part, left);
    else same?.delete(part);
  }
  beginnings.fill(0);
  for (const same of parts.values()) for (const part of same.keys()) beginnings[beginning(part, 0)] = 1;
}

export function forgetSecrets(): void {
  for (const all of [knownSecrets, replacedSecrets, secretByPlace, parts]) all.clear();
  changeCount += 1;
}

/** An address: scheme, user name and password, and the part after the server's name. */
const ADDRESS = /^(https?:)\/\/(?:([^/?#\s]*)@)?[^/?#@\s]+([/?].*)$/is;

/** Parts of an address to mask, e.g. of `https://me:word@hooks.example.com/T0`, without the name of the server. */
function secretPartsOf(secret: string): readonly string[] {
  const [, scheme = "", user, behind] = ADDRESS.exec(secret) ?? [];
  if (behind === undefined) return [secret];
  if (user === undefined) return [behind];
  const said = `//${user}@`;
  // A short password is masked only together with the text before it.
  return [said.length < SHORTEST ? scheme + said : said, user, behind];
}

function beginning(characters: string, at: number): number {
  let number = 0;
  for (let i = at; i < at + 4; i += 1) number = (number * 37 + characters.charCodeAt(i)) % BEGINNINGS;
  return number;
}

/** Hash of the next position: removes the first character and adds the fifth. */
function nextBeginning(number: number, characters: string, at: number): number {
  const left = number - Math.imul(characters.charCodeAt(at), 37 ** 3);
  return (Math.imul(left, 37) + characters.charCodeAt(at + 4)) & (BEGINNINGS - 1);
}

/** Changes when a secret is registered or forgotten, for caches of masked texts. */
export function secretsKnown(): number {
  return changeCount;
}

/** Returns the text with `[redacted]` in place of every secret or part of one. */
export function masked(text: string): string {
  if (parts.size === 0) return text;
  if (text.length < SHORTEST) return text;
  const { characters, beginOf } = withoutEscapes(text);
  let result = "";
  let shown = 0;
  let end = 0;
  let number = beginning(characters, 0);
  for (let at = 0; at + SHORTEST <= characters.length; at += 1) {
    const length = beginnings[number] === 1 ? partAt(characters, at) : 0;
    number = nextBeginning(number, characters, at);
    if (length === 0) continue;
    if (at >= end) result += text.slice(shown, beginOf(at)) + MASK;
    end = Math.max(end, at + length);
    shown = beginOf(end);
  }
  return result + text.slice(shown);
}

function partAt(characters: string, at: number): number {
  let longest = 0;
  for (const [length, knownSecrets] of parts) {
    if (length > longest && knownSecrets.has(characters.slice(at, at + length))) longest = length;
  }
  return longest;
}

interface Plain {
  readonly characters: string;
  beginOf(i: number): number;
}

/** Escapes that an echo may insert: JSON (`\/`, `\u002f`), addresses (`%2F`, `%252F`), broken lines. */
const ESCAPED = /\\+u([0-9a-f]{4})|%(?:25)*([0-9a-f]{2})|./gis;
const MAY_BE_ESCAPED = /[\\%\r\n\t]/;

/** The text in lower case without escapes. */
function withoutEscapes(text: string): Plain {
  if (!MAY_BE_ESCAPED.test(text)) {
    const characters = lower(text);
    return { characters, beginOf: (i) => i };
  }
  const begins: number[] = [];
  let characters = "";
  for (const found of text.matchAll(ESCAPED)) {
    const [whole, unicode, percent] = found;
    const code = unicode ?? percent;
    const character = code === undefined ? whole : String.fromCharCode(Number.parseInt(code, 16));
    if (/^[\\\r\n\t]$/.test(character)) continue;
    characters += lower(character);
    begins.push(found.index);
  }
  return { characters, beginOf: (i) => begins[i] ?? text.length };
}

/** Lower case, unless that changes the length: positions must stay comparable. */
function lower(text: string): string {
  const small = text.toLowerCase();
  return small.length === text.length ? small : text;
}

/** Spellings of a secret: plain, hex, base64 (also as part of `user:password`), and base64 of that. */
function spellingsOf(secret: string): readonly string[] {
  const bytes = Buffer.from(secret).toString("latin1");
  const encoded = base64Of(bytes);
  const hex = Buffer.from(secret).toString("hex");
  return [...new Set([secret, bytes, hex, ...encoded, ...encoded.flatMap(base64Of)])];
}

/** The base64 characters that depend only on the text, for each of its three possible offsets. */
function base64Of(text: string): readonly string[] {
  return [0, 1, 2].flatMap((before) => {
    const encoded = Buffer.from("\0".repeat(before) + text, "latin1").toString("base64");
    const sure = encoded.slice(before === 0 ? 0 : before + 1).replace(/=+$/, "");
    const certain = (before + text.length) % 3 === 0 ? sure : sure.slice(0, -1);
    return [certain, certain.replaceAll("+", "-").replaceAll("/", "_")];
  });
}

function* partsOf(secret: string): Generator<string> {
  for (const spelling of secretPartsOf(secret).flatMap(spellingsOf)) {
    const { characters } = withoutEscapes(spelling);
    const length = Math.min(PART, characters.length);
    if (length < SHORTEST) continue;
    for (let at = 0; at + length <= characters.length; at += 1) yield characters.slice(at, at + length);
  }
}
