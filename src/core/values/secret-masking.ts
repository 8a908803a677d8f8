/** Number of consecutive characters of a secret that are masked; a shorter secret is masked only as a whole. */
const MASKED_PART_LENGTH = 12;
/** Shorter secrets are not masked, because ordinary words contain them. */
const MIN_SECRET_LENGTH = 8;
/** Number of replaced secrets that are still masked. */
const MAX_REPLACED_SECRETS = 64;
const SECRET_MASK = "[redacted]";
const knownSecrets = new Set<string>();
const replacedSecrets = new Set<string>();
const secretByLocation = new Map<string, string>();
/** Number of secrets and their encodings that contain a part to mask, by the part's length and text. */
const secretPartCounts = new Map<number, Map<string, number>>();
/** Size of a table that marks hashes of the first characters of secrets, to skip most positions of a text quickly. */
const PREFIX_HASH_COUNT = 2 ** 20;
let prefixHashMarks = new Uint8Array(0);
let secretChangeCount = 0;

/** Masks a secret from now on, until it was replaced and 64 other secrets were replaced later. */
export function registerSecret(secret: string): void {
  if (secret.length < MIN_SECRET_LENGTH) return;
  replacedSecrets.delete(secret);
  if (knownSecrets.has(secret)) return;
  knownSecrets.add(secret);
  secretChangeCount += 1;
  if (prefixHashMarks.length === 0) prefixHashMarks = new Uint8Array(PREFIX_HASH_COUNT);
  for (const secretPart of listMaskedParts(secret)) {
    const countBySecretPart = secretPartCounts.get(secretPart.length) ?? new Map<string, number>();
    secretPartCounts.set(secretPart.length, countBySecretPart);
    countBySecretPart.set(secretPart, (countBySecretPart.get(secretPart) ?? 0) + 1);
    prefixHashMarks[hashPrefix(secretPart, 0)] = 1;
  }
}

/** Records the file or variable from which a secret was read. A new secret from there replaces the old secret. */
export function recordSecretLocation(location: string, secret: string): void {
  const previousSecret = secretByLocation.get(location);
  if (previousSecret === secret) return;
  secretByLocation.set(location, secret);
  if (previousSecret === undefined || !knownSecrets.has(previousSecret)) return;
  // If another file or variable has the old secret, reading it there removes it from `replacedSecrets` again.
  replacedSecrets.add(previousSecret);
  for (const oldestSecret of replacedSecrets) {
    if (replacedSecrets.size <= MAX_REPLACED_SECRETS) break;
    forgetSecret(oldestSecret);
  }
}

function forgetSecret(secret: string): void {
  replacedSecrets.delete(secret);
  knownSecrets.delete(secret);
  secretChangeCount += 1;
  for (const maskedPart of listMaskedParts(secret)) {
    const countBySecretPart = secretPartCounts.get(maskedPart.length);
    const remainingCount = (countBySecretPart?.get(maskedPart) ?? 1) - 1;
    if (remainingCount > 0) countBySecretPart?.set(maskedPart, remainingCount);
    else countBySecretPart?.delete(maskedPart);
  }
  prefixHashMarks.fill(0);
  for (const counts of secretPartCounts.values())
    for (const secretPart of counts.keys()) prefixHashMarks[hashPrefix(secretPart, 0)] = 1;
}

export function forgetAllSecrets(): void {
  for (const secretCollection of [knownSecrets, replacedSecrets, secretByLocation, secretPartCounts])
    secretCollection.clear();
  secretChangeCount += 1;
}

const SECRET_URL_PARTS = /^(https?:)\/\/(?:([^/?#\s]*)@)?[^/?#@\s]+([/?].*)$/is;

/** Parts of an address to mask, e.g. of `https://me:word@hooks.example.com/T0`, without the name of the server. */
function splitSecretUrl(secret: string): readonly string[] {
  const [, scheme = "", user, pathAndQuery] = SECRET_URL_PARTS.exec(secret) ?? [];
  if (pathAndQuery === undefined) return [secret];
  if (user === undefined) return [pathAndQuery];
  const userInfo = `//${user}@`;
  // A short password is masked only together with the text before it.
  return [userInfo.length < MIN_SECRET_LENGTH ? scheme + userInfo : userInfo, user, pathAndQuery];
}

function hashPrefix(characters: string, pos: number): number {
  let prefixHash = 0;
  for (let i = pos; i < pos + 4; i += 1) prefixHash = (prefixHash * 37 + characters.charCodeAt(i)) % PREFIX_HASH_COUNT;
  return prefixHash;
}

/** Hash of the four characters at `pos` + 1, computed from the hash of those at `pos`. */
function hashNextPrefix(prefixHash: number, characters: string, pos: number): number {
  const shortenedHash = prefixHash - Math.imul(characters.charCodeAt(pos), 37 ** 3);
  return (Math.imul(shortenedHash, 37) + characters.charCodeAt(pos + 4)) & (PREFIX_HASH_COUNT - 1);
}

/** Returns a number that changes when a secret is registered or forgotten, for caches of masked texts. */
export function secretsVersion(): number {
  return secretChangeCount;
}

/** Returns the text with `[redacted]` in place of every secret or part of one. */
export function maskSecrets(text: string): string {
  if (secretPartCounts.size === 0) return text;
  if (text.length < MIN_SECRET_LENGTH) return text;
  const { characters, originalIndexOf } = removeTextEscapes(text);
  let maskedText = "";
  let copiedTextEnd = 0;
  let maskedEnd = 0;
  let prefixHash = hashPrefix(characters, 0);
  for (let pos = 0; pos + MIN_SECRET_LENGTH <= characters.length; pos += 1) {
    const partLength = prefixHashMarks[prefixHash] === 1 ? findSecretPartLength(characters, pos) : 0;
    prefixHash = hashNextPrefix(prefixHash, characters, pos);
    if (partLength === 0) continue;
    if (pos >= maskedEnd) maskedText += text.slice(copiedTextEnd, originalIndexOf(pos)) + SECRET_MASK;
    maskedEnd = Math.max(maskedEnd, pos + partLength);
    copiedTextEnd = originalIndexOf(maskedEnd);
  }
  return maskedText + text.slice(copiedTextEnd);
}

function findSecretPartLength(characters: string, pos: number): number {
  let longestLength = 0;
  for (const [length, counts] of secretPartCounts) {
    if (length > longestLength && counts.has(characters.slice(pos, pos + length))) longestLength = length;
  }
  return longestLength;
}

/** Escape sequences of a secret that a server quotes: JSON (`\/`, `\u002f`), addresses (`%2F`, `%252F`). */
const ESCAPE_SEQUENCE = /\\+u([0-9a-f]{4})|%(?:25)*([0-9a-f]{2})|./gis;
const POSSIBLE_ESCAPE = /[\\%\r\n\t]/;

function removeTextEscapes(text: string) {
  if (!POSSIBLE_ESCAPE.test(text)) {
    return { characters: toLowerCaseSameLength(text), originalIndexOf: (i: number) => i };
  }
  const characterStartIndexes: number[] = [];
  let characters = "";
  for (const escapeMatch of text.matchAll(ESCAPE_SEQUENCE)) {
    const [matchedText, unicodeHex, percentHex] = escapeMatch;
    const charCode = unicodeHex ?? percentHex;
    const plainCharacter = charCode === undefined ? matchedText : String.fromCharCode(Number.parseInt(charCode, 16));
    if (/^[\\\r\n\t]$/.test(plainCharacter)) continue;
    characters += toLowerCaseSameLength(plainCharacter);
    characterStartIndexes.push(escapeMatch.index);
  }
  return { characters, originalIndexOf: (i: number) => characterStartIndexes[i] ?? text.length };
}

/** Returns lower case, unless that changes the length, so that positions in both texts stay comparable. */
function toLowerCaseSameLength(text: string): string {
  const lowerCaseText = text.toLowerCase();
  return lowerCaseText.length === text.length ? lowerCaseText : text;
}

/** Spellings of a secret: plain, hex, base64 (also as part of `user:password`), and double base64. */
function listSecretEncodings(secret: string): readonly string[] {
  const secretBytes = Buffer.from(secret).toString("latin1");
  const base64Texts = encodeBase64AtOffsets(secretBytes);
  const hex = Buffer.from(secret).toString("hex");
  return [...new Set([secret, secretBytes, hex, ...base64Texts, ...base64Texts.flatMap(encodeBase64AtOffsets)])];
}

/** Base64 characters that depend only on `text`, for each of the three offsets at which it may begin. */
function encodeBase64AtOffsets(text: string): readonly string[] {
  return [0, 1, 2].flatMap((offset) => {
    const base64 = Buffer.from("\0".repeat(offset) + text, "latin1").toString("base64");
    const base64WithoutStart = base64.slice(offset === 0 ? 0 : offset + 1).replace(/=+$/, "");
    const base64WithoutEdges = (offset + text.length) % 3 === 0 ? base64WithoutStart : base64WithoutStart.slice(0, -1);
    return [base64WithoutEdges, base64WithoutEdges.replaceAll("+", "-").replaceAll("/", "_")];
  });
}

function* listMaskedParts(secret: string): Generator<string> {
  for (const secretSpelling of splitSecretUrl(secret).flatMap(listSecretEncodings)) {
    const { characters } = removeTextEscapes(secretSpelling);
    const partLength = Math.min(MASKED_PART_LENGTH, characters.length);
    if (partLength < MIN_SECRET_LENGTH) continue;
    for (let pos = 0; pos + partLength <= characters.length; pos += 1) yield characters.slice(pos, pos + partLength);
  }
}
