/** Texts from outside may echo secrets, so they pass `masked` first. Secrets of this process are registered here. */

/** Consecutive characters of a secret that are masked; of a shorter secret all. */
const MASKED_LENGTH = 12;
/** Shorter secrets are not masked, because ordinary words contain them. */
const MIN_SECRET_LENGTH = 8;
/** Number of replaced secrets that stay registered while the worker runs. */
const MAX_REPLACED_SECRETS = 64;

export const SECRET_MASK = "[redacted]";

const knownSecrets = new Set<string>();
const replacedSecrets = new Set<string>();
/** Current secret by the place where it was read. */
const secretByPlace = new Map<string, string>();
/** Parts of all spellings by length, with the number of spellings that contain the part. */
const secretParts = new Map<number, Map<string, number>>();
/** Marks the hash of each part's first characters: other positions need no lookup, which is ten times as fast. */
const PREFIX_HASHES = 2 ** 20;
let prefixHashMarks = new Uint8Array(0);
let changeCount = 0;

/** Registers a secret, until it and 64 others after it were replaced. */
export function registerSecret(secret: string): void {
  if (secret.length < MIN_SECRET_LENGTH) return;
  replacedSecrets.delete(secret);
  if (knownSecrets.has(secret)) return;
  knownSecrets.add(secret);
  changeCount += 1;
  if (prefixHashMarks.length === 0) prefixHashMarks = new Uint8Array(PREFIX_HASHES);
  for (const part of listMaskedParts(secret)) {
    const same = secretParts.get(part.length) ?? new Map<string, number>();
    secretParts.set(part.length, same);
    same.set(part, (same.get(part) ?? 0) + 1);
    prefixHashMarks[hashPrefix(part, 0)] = 1;
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
    if (replacedSecrets.size <= MAX_REPLACED_SECRETS) break;
    forgetSecret(oldest);
  }
}

function forgetSecret(secret: string): void {
  replacedSecrets.delete(secret);
  knownSecrets.delete(secret);
  changeCount += 1;
  for (const part of listMaskedParts(secret)) {
    const same = secretParts.get(part.length);
    const left = (same?.get(part) ?? 1) - 1;
    if (left > 0) same?.set(part, left);
    else same?.delete(part);
  }
  prefixHashMarks.fill(0);
  for (const same of secretParts.values()) for (const part of same.keys()) prefixHashMarks[hashPrefix(part, 0)] = 1;
}

export function forgetSecrets(): void {
  for (const all of [knownSecrets, replacedSecrets, secretByPlace, secretParts]) all.clear();
  changeCount += 1;
}

/** An address: scheme, user name and password, and the part after the server's name. */
const ADDRESS_PARTS = /^(https?:)\/\/(?:([^/?#\s]*)@)?[^/?#@\s]+([/?].*)$/is;

/** Parts of an address to mask, e.g. of `https://me:word@hooks.example.com/T0`, without the name of the server. */
function splitSecretAddress(secret: string): readonly string[] {
  const [, scheme = "", user, behind] = ADDRESS_PARTS.exec(secret) ?? [];
  if (behind === undefined) return [secret];
  if (user === undefined) return [behind];
  const said = `//${user}@`;
  // A short password is masked only together with the text before it.
  return [said.length < MIN_SECRET_LENGTH ? scheme + said : said, user, behind];
}

function hashPrefix(characters: string, at: number): number {
  let number = 0;
  for (let i = at; i < at + 4; i += 1) number = (number * 37 + characters.charCodeAt(i)) % PREFIX_HASHES;
  return number;
}

/** Hash of the next position: removes the first character and adds the fifth. */
function hashNextPrefix(number: number, characters: string, at: number): number {
  const left = number - Math.imul(characters.charCodeAt(at), 37 ** 3);
  return (Math.imul(left, 37) + characters.charCodeAt(at + 4)) & (PREFIX_HASHES - 1);
}

/** Changes when a secret is registered or forgotten, for caches of masked texts. */
export function secretsVersion(): number {
  return changeCount;
}

/** Returns the text with `[redacted]` in place of every secret or part of one. */
export function maskSecrets(text: string): string {
  if (secretParts.size === 0) return text;
  if (text.length < MIN_SECRET_LENGTH) return text;
  const { characters, beginOf } = withoutEscapes(text);
  let result = "";
  let shown = 0;
  let end = 0;
  let number = hashPrefix(characters, 0);
  for (let at = 0; at + MIN_SECRET_LENGTH <= characters.length; at += 1) {
    const length = prefixHashMarks[number] === 1 ? findPartLength(characters, at) : 0;
    number = hashNextPrefix(number, characters, at);
    if (length === 0) continue;
    if (at >= end) result += text.slice(shown, beginOf(at)) + SECRET_MASK;
    end = Math.max(end, at + length);
    shown = beginOf(end);
  }
  return result + text.slice(shown);
}

function findPartLength(characters: string, at: number): number {
  let longest = 0;
  for (const [length, knownSecrets] of secretParts) {
    if (length > longest && knownSecrets.has(characters.slice(at, at + length))) longest = length;
  }
  return longest;
}

interface UnescapedText {
  readonly characters: string;
  beginOf(i: number): number;
}

/** Escapes that an echo may insert: JSON (`\/`, `\u002f`), addresses (`%2F`, `%252F`), broken lines. */
const ESCAPE_SEQUENCE = /\\+u([0-9a-f]{4})|%(?:25)*([0-9a-f]{2})|./gis;
const MAY_BE_ESCAPED = /[\\%\r\n\t]/;

/** The text in lower case without escapes. */
function withoutEscapes(text: string): UnescapedText {
  if (!MAY_BE_ESCAPED.test(text)) {
    const characters = toLowerCaseSameLength(text);
    return { characters, beginOf: (i) => i };
  }
  const begins: number[] = [];
  let characters = "";
  for (const found of text.matchAll(ESCAPE_SEQUENCE)) {
    const [whole, unicode, percent] = found;
    const code = unicode ?? percent;
    const character = code === undefined ? whole : String.fromCharCode(Number.parseInt(code, 16));
    if (/^[\\\r\n\t]$/.test(character)) continue;
    characters += toLowerCaseSameLength(character);
    begins.push(found.index);
  }
  return { characters, beginOf: (i) => begins[i] ?? text.length };
}

/** Lower case, unless that changes the length: positions must stay comparable. */
function toLowerCaseSameLength(text: string): string {
  const small = text.toLowerCase();
  return small.length === text.length ? small : text;
}

/** Spellings of a secret: plain, hex, base64 (also as part of `user:password`), and base64 of that. */
function encodeSecret(secret: string): readonly string[] {
  const bytes = Buffer.from(secret).toString("latin1");
  const encoded = encodeBase64(bytes);
  const hex = Buffer.from(secret).toString("hex");
  return [...new Set([secret, bytes, hex, ...encoded, ...encoded.flatMap(encodeBase64)])];
}

/** The base64 characters that depend only on the text, for each of its three possible offsets. */
function encodeBase64(text: string): readonly string[] {
  return [0, 1, 2].flatMap((before) => {
    const encoded = Buffer.from("\0".repeat(before) + text, "latin1").toString("base64");
    const sure = encoded.slice(before === 0 ? 0 : before + 1).replace(/=+$/, "");
    const certain = (before + text.length) % 3 === 0 ? sure : sure.slice(0, -1);
    return [certain, certain.replaceAll("+", "-").replaceAll("/", "_")];
  });
}

function* listMaskedParts(secret: string): Generator<string> {
  for (const spelling of splitSecretAddress(secret).flatMap(encodeSecret)) {
    const { characters } = withoutEscapes(spelling);
    const length = Math.min(MASKED_LENGTH, characters.length);
    if (length < MIN_SECRET_LENGTH) continue;
    for (let at = 0; at + length <= characters.length; at += 1) yield characters.slice(at, at + length);
  }
}
