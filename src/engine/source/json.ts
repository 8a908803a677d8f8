/**
 * JSON from outside, read with suspicion: valid UTF-8, bounded depth, bounded numbers, and no second meaning for
 * the keys of the outermost object, because `errors` twice would let the last one hide the first. An id that is a number
 * beyond 2^53 becomes a text with its digits.
 */
export type ParsedJson =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly reason: string };

/** The deepest reply of the interface has 6 levels (an alarm's site inside its attributes inside the list). */
const MAX_DEPTH = 32;
/** A double needs at most 24 characters; some writers pad. */
const MAX_NUMBER_LENGTH = 400;

export function parseJson(bytes: Uint8Array): ParsedJson {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return { ok: false, reason: "it is not valid UTF-8" };
  }
  const longIds: Digits[] = [];
  const complaint = complaintAbout(text, longIds);
  if (complaint !== null) return { ok: false, reason: complaint };
  try {
    return { ok: true, value: JSON.parse(withTextIds(text, longIds)) };
  } catch {
    return { ok: false, reason: "it is not JSON" };
  }
}

/** Range of a number's digits in a text. */
interface Digits {
  readonly from: number;
  readonly to: number;
}

/** A number with fewer digits is exact. */
const LONG_DIGITS = 16;
/** Matches an `id` member up to its number: only ids must be exact. */
const ID_BEFORE = /"id"\s*:\s*$/;
const NAME_LENGTH = 40;

/**
 * Quotes ids above 2^53, so that they keep every digit: as numbers, two of them could become equal. All other numbers stay
 * numbers.
 */
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
  return ID_BEFORE.test(text.slice(Math.max(0, from - NAME_LENGTH), from));
}

/** One pass over the text before a parser builds anything of it; finds the ids that are no exact numbers, too. */
function complaintAbout(text: string, longIds: Digits[]): string | null {
  const outerKeys = new Set<string>();
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      const end = endOfString(text, at);
      if (depth === 1 && nextCode(text, end + 1) === COLON) {
        const key = text.slice(at, end + 1);
        // An escaped spelling of a key is its own disguise; no serialiser writes these keys so.
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
      if (at - start + 1 < LONG_DIGITS) continue;
      const number = { from: start, to: at + 1 };
      if (isLongId(text, number)) longIds.push(number);
    }
  }
  return null;
}

/** Index of the closing quote, or the end of the text when there is none. */
function endOfString(text: string, opening: number): number {
  let end = text.indexOf('"', opening + 1);
  while (end !== -1 && isEscaped(text, end)) end = text.indexOf('"', end + 1);
  return end === -1 ? text.length : end;
}

/** True after an odd number of backslashes. */
function isEscaped(text: string, at: number): boolean {
  let before = at - 1;
  while (text.charCodeAt(before) === BACKSLASH) before--;
  return (at - before) % 2 === 0;
}

function nextCode(text: string, from: number): number {
  let at = from;
  while (text.charCodeAt(at) <= 32) at++;
  return text.charCodeAt(at);
}

/*
 * Scanning JSON as bytes without building values: `logged-series.ts` reads only the measurements. Each function takes
 * and returns byte offsets; reading beyond the end gives `undefined`. Invalid JSON is not always detected here.
 */
export const QUOTE = 34;
export const COMMA = 44;
export const MINUS = 45;
const POINT = 46;
const ZERO = 48;
const NINE = 57;
export const COLON = 58;
export const BACKSLASH = 92;

export function isWord(bytes: Buffer, from: number, end: number, word: Buffer): boolean {
  return end - from + 1 === word.length && afterWord(bytes, from, word) >= 0;
}

export function afterWord(bytes: Buffer, from: number, word: Buffer): number {
  for (let n = 0; n < word.length; n++) if (bytes[from + n] !== word[n]) return -1;
  return from + word.length;
}

/** Start of the value after a name; -1 without a colon. */
export function afterColon(bytes: Buffer, from: number): number {
  const at = afterSpace(bytes, from);
  return bytes[at] === COLON ? afterSpace(bytes, at + 1) : -1;
}

/** The next that is no white space of JSON. */
export function afterSpace(bytes: Buffer, from: number): number {
  let at = from;
  for (let code = bytes[at]; code === 32 || code === 10 || code === 13 || code === 9; code = bytes[at]) at++;
  return at;
}

/** The closing quote; -1 without. */
export function endOfText(bytes: Buffer, opening: number): number {
  for (let at = opening + 1; at < bytes.length; at++) {
    const code = bytes[at];
    if (code === QUOTE) return at;
    if (code === BACKSLASH) at++;
  }
  return -1;
}

/** Returns the offset after a value in a list of that depth; -1 if it exceeds the limits or has no end. */
export function endOfValue(bytes: Buffer, from: number, listDepth: number): number {
  let depth = listDepth;
  for (let at = from; at < bytes.length; at++) {
    const code = bytes[at] as number;
    if (code === QUOTE) {
      at = endOfText(bytes, at);
      if (at < 0) return -1;
    } else if (isOpening(code)) {
      depth++;
      if (depth > MAX_DEPTH) return -1;
    } else if (isClosing(code)) {
      if (depth === listDepth) return at;
      depth--;
    } else if (code === COMMA) {
      if (depth === listDepth) return at;
    } else if (isDigit(code)) {
      const start = at;
      while (isNumeric(bytes[at + 1] as number)) at++;
      if (at - start >= MAX_NUMBER_LENGTH) return -1;
    }
  }
  return -1;
}

/** Returns the offset after a number; -1 if it is no JSON number, or too long. */
export function endOfNumber(bytes: Buffer, from: number): number {
  let at = bytes[from] === MINUS ? from + 1 : from;
  if (bytes[at] === ZERO) at++;
  else at = afterDigits(bytes, at);
  if (at >= 0 && bytes[at] === POINT) at = afterDigits(bytes, at + 1);
  if (at >= 0 && ((bytes[at] as number) | 32) === 101) {
    const sign = bytes[at + 1];
    at = afterDigits(bytes, sign === 43 || sign === MINUS ? at + 2 : at + 1);
  }
  return at - from >= MAX_NUMBER_LENGTH ? -1 : at;
}

/** Returns the offset after at least one digit; -1 if there is none. */
function afterDigits(bytes: Buffer, from: number): number {
  let at = from;
  while (isDigit(bytes[at] as number)) at++;
  return at === from ? -1 : at;
}

/** So many digits are a whole number exactly, and so are the powers of ten: their quotient is the nearest number. */
const EXACT_DIGITS = 15;
const POWERS = Float64Array.from({ length: EXACT_DIGITS + 1 }, (_, n) => 10 ** n);

export function numberIn(bytes: Buffer, from: number, end: number): number {
  const isNegative = bytes[from] === MINUS;
  if (end - from <= EXACT_DIGITS) {
    let digits = 0;
    let decimals = -1;
    let at = isNegative ? from + 1 : from;
    for (; at < end; at++) {
      const code = bytes[at] as number;
      if (code === POINT) decimals = 0;
      else if (isDigit(code)) {
        digits = digits * 10 + code - ZERO;
        if (decimals >= 0) decimals++;
      } else break;
    }
    if (at === end) {
      const number = decimals > 0 ? digits / (POWERS[decimals] as number) : digits;
      return isNegative ? -number : number;
    }
  }
  return Number(bytes.toString("latin1", from, end));
}

/** Two digits as a number; where there are none a number that is too large for any part of a time or a date. */
export function two(bytes: Buffer, at: number): number {
  const tens = bytes[at] as number;
  const ones = bytes[at + 1] as number;
  return isDigit(tens) && isDigit(ones) ? (tens - ZERO) * 10 + ones - ZERO : 1_000;
}

export const isOpening = (code: number) => code === 91 || code === 123;
export const isClosing = (code: number) => code === 93 || code === 125;
export const isDigit = (code: number) => code >= ZERO && code <= NINE;
/** Digits and `+ - . E e`. */
const isNumeric = (code: number) =>
  isDigit(code) || code === 43 || code === MINUS || code === POINT || code === 69 || code === 101;
