/** Untrusted JSON: bounded depth and numbers, distinct outermost keys, and ids beyond 2^53 as text. */
export type ParsedJson =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly reason: string };

const MAX_DEPTH = 32;
export const MAX_NUMBER_LENGTH = 400;

export function parseJson(bytes: Uint8Array, depth = 0): ParsedJson {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return { ok: false, reason: "it is not valid UTF-8" };
  }
  const longIds: Digits[] = [];
  const complaint = findProblem(text, longIds, depth);
  if (complaint !== null) return { ok: false, reason: complaint };
  try {
    return { ok: true, value: JSON.parse(withTextIds(text, longIds)) };
  } catch {
    return { ok: false, reason: "it is not JSON" };
  }
}

interface Digits {
  readonly from: number;
  readonly to: number;
}

const UNSAFE_DIGITS_MIN = 16;
/** Matches an `id` member up to its number: only ids must be exact. */
const ID_BEFORE = /"id"\s*:\s*$/;
const ID_KEY_LENGTH_MAX = 40;

/** Quotes ids above 2^53, because as numbers two of them could become equal. */
function withTextIds(text: string, ids: readonly Digits[]): string {
  if (ids.length === 0) return text;
  const parts: string[] = [];
  let at = 0;
  for (const { from, to } of ids) {
    parts.push(text.slice(at, from), `"${text.slice(from, to)}"`);
    at = to;
  }
  parts.push(text.slice(at));
  return parts.join("");
}

function isLongId(text: string, { from, to }: Digits): boolean {
  const digits = text.slice(from, to);
  if (!/^[1-9]\d*$/.test(digits) || Number.isSafeInteger(Number(digits))) return false;
  return ID_BEFORE.test(text.slice(Math.max(0, from - ID_KEY_LENGTH_MAX), from));
}

/** Returns why a text must not be parsed, or null; adds its ids beyond 2^53 to `longIds`. */
function findProblem(text: string, longIds: Digits[], outerDepth: number): string | null {
  const outerKeys = new Set<string>();
  let depth = outerDepth;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      const end = endOfString(text, at);
      if (depth === 1 && nextVisibleCode(text, end + 1) === COLON) {
        const key = text.slice(at, end + 1);
        // No serialiser escapes these keys, so an escape can only hide a duplicate.
        if (outerKeys.has(key) || key.includes("\\")) return `its key ${key.slice(0, 40)} is ambiguous`;
        outerKeys.add(key);
      }
      at = end;
    } else if (isOpening(code)) {
      depth++;
      if (depth > MAX_DEPTH) return `it is nested deeper than ${MAX_DEPTH} levels`;
    } else if (isClosing(code)) {
      depth--;
    } else if (isDigit(code)) {
      const start = at;
      while (isNumeric(text.charCodeAt(at + 1))) at++;
      if (at - start > MAX_NUMBER_LENGTH) return "it contains an absurdly long number";
      if (at - start + 1 < UNSAFE_DIGITS_MIN) continue;
      const number = { from: start, to: at + 1 };
      if (isLongId(text, number)) longIds.push(number);
    }
  }
  return null;
}

function endOfString(text: string, opening: number): number {
  let end = text.indexOf('"', opening + 1);
  while (end !== -1 && isEscaped(text, end)) end = text.indexOf('"', end + 1);
  return end === -1 ? text.length : end;
}

function isEscaped(text: string, at: number): boolean {
  let before = at - 1;
  while (text.charCodeAt(before) === BACKSLASH) before--;
  return (at - before) % 2 === 0;
}

function nextVisibleCode(text: string, from: number): number {
  let at = from;
  while (text.charCodeAt(at) <= 32) at++;
  return text.charCodeAt(at);
}

export const QUOTE = 34;
export const COLON = 58;
const BACKSLASH = 92;
const isOpening = (code: number) => code === 91 || code === 123;
const isClosing = (code: number) => code === 93 || code === 125;
export const isDigit = (code: number) => code >= 48 && code <= 57;
const isNumeric = (code: number) =>
  isDigit(code) || code === 43 || code === 45 || code === 46 || code === 69 || code === 101;
