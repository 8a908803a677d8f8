/** A strict reader of line protocol, written from its specification and not from our writer. */
export interface ParsedPoint {
  readonly measurement: string;
  readonly tags: Readonly<Record<string, string>>;
  readonly fields: Readonly<Record<string, number | boolean | string>>;
  readonly timeMs: number;
  /** Nanoseconds below the millisecond. */
  readonly withinMs: number;
}

export const parseLines = (body: string): readonly ParsedPoint[] => body.split("\n").filter(Boolean).map(parseLine);

export function parseLine(line: string): ParsedPoint {
  const key = splitUnquoted(line, " ", false)[0] ?? "";
  const [fieldSet, time, ...more] = splitUnquoted(line.slice(key.length + 1), " ");
  if (key === "" || fieldSet === undefined || time === undefined || more.length > 0) failParse(line);
  if (!/^-?\d{1,19}$/.test(time)) failParse(line);
  const [measurement, ...tagPairs] = splitUnquoted(key, ",", false);
  if (measurement === undefined || measurement === "") failParse(line);
  const tags: Record<string, string> = {};
  for (const tagPair of tagPairs) {
    const [name, value, ...rest] = splitUnquoted(tagPair, "=", false);
    if (!name || !value || rest.length > 0 || value.endsWith("\\") || name in tags) failParse(line);
    tags[unescaped(name)] = unescaped(value);
  }
  const fields: Record<string, number | boolean | string> = {};
  for (const fieldPair of splitUnquoted(fieldSet, ",")) {
    const at = fieldPair.indexOf("=");
    const fieldName = fieldPair.slice(0, at);
    if (at < 1 || fieldName in fields) failParse(line);
    fields[fieldName] = fieldValue(fieldPair.slice(at + 1), line);
  }
  const timeMs = Number(BigInt(time) / 1_000_000n);
  return { measurement, tags, fields, timeMs, withinMs: Number(BigInt(time) % 1_000_000n) };
}

function fieldValue(text: string, line: string): number | boolean | string {
  if (/^"(?:[^"\\]|\\.)*"$/su.test(text)) return text.slice(1, -1).replace(/\\(["\\])/g, "$1");
  if (text === "T" || text === "F") return text === "T";
  if (/^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text)) return Number(text);
  return failParse(line);
}

function splitUnquoted(text: string, separator: string, quotes = true): readonly string[] {
  const splitParts: string[] = [];
  let currentPart = "";
  let isQuoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const character = text.charAt(at);
    if (character === "\\" && at + 1 < text.length) {
      currentPart += character + text.charAt(at + 1);
      at += 1;
    } else if (character === separator && !isQuoted) {
      splitParts.push(currentPart);
      currentPart = "";
    } else {
      if (quotes && character === '"') isQuoted = !isQuoted;
      currentPart += character;
    }
  }
  return [...splitParts, currentPart];
}

const unescaped = (text: string): string => text.replace(/\\([,= ])/g, "$1");

function failParse(line: string): never {
  throw new Error(`not line protocol: ${line.slice(0, 300)}`);
}
