import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import { createLog, type Log, maskCredentials } from "#src/core/runtime/log.ts";

function writtenLine(write: (log: Log) => void): string {
  const lines: string[] = [];
  write(createLog({ level: "info", destination: { write: (line) => void lines.push(line) } }));
  expect(lines).toHaveLength(1);
  return lines[0] ?? "";
}

function parseLine(line: string): Record<string, unknown> {
  const body = JSON.parse(line) as Record<string, unknown>;
  expect(line.trimEnd()).toHaveLength(JSON.stringify(body).length);
  return body;
}

describe("a log line", () => {
  test.each<[string, (log: Log) => void, object]>([
    [
      "a field that every line has already",
      (log) => log.child({ source: "main" }).warn({ source: "main", tags: 3 }, "said"),
      { source: "main", tags: 3, msg: "said" },
    ],
    [
      "a field that every line has with another value",
      (log) => log.child({ source: "main" }).warn({ source: "other" }, "said"),
      { source: "main", line_source: "other", msg: "said" },
    ],
    [
      "the keys of the line itself",
      (log) => log.info({ time: "never", level: "loud", msg: "mine" }, "said"),
      { line_time: "never", line_level: "loud", line_msg: "mine", msg: "said", level: 30 },
    ],
    ["a message among the fields", (log) => log.info({ msg: "said" }), { msg: "said" }],
    [
      "an error without fields",
      (log) => log.error(new Retryable("mqtt://u:pw@broker fell over")),
      { err: { message: "mqtt://[redacted]@broker fell over" }, msg: "mqtt://[redacted]@broker fell over" },
    ],
    [
      "an error under a name that is taken",
      (log) => log.child({ cause: "x" }).warn({ cause: new Retryable("it broke"), err: new Retryable("too") }, "said"),
      { cause: "x", line_cause: { message: "it broke", kind: "retryable" }, err: { message: "too" } },
    ],
    ["a format string with a number", (log) => log.info({ a: 1 }, "said %d times", 3), { a: 1, msg: "said 3 times" }],
    ["a format string without fields", (log) => log.info("said %s", "so"), { msg: "said so" }],
  ])("writes the expected fields and message for %s", (_, write, expected) => {
    expect(parseLine(writtenLine(write))).toMatchObject(expected);
  });

  test("redacts secrets in bindings and fields", () => {
    const line = writtenLine((log) => log.child({ token: "a" }).info({ token: "hidden", password: "hidden" }, "said"));
    expect(parseLine(line)).toMatchObject({ token: "[redacted]", password: "[redacted]" });
    expect(line).not.toContain("hidden");
  });

  test("keeps each value and duplicates no key for any fields and bindings", () => {
    const key = fc.constantFrom("source", "sink", "name", "msg", "time", "level", "line_source", "err", "a");
    const fields = fc.dictionary(key, fc.constantFrom("x", "y", "z"));
    fc.assert(
      fc.property(fields, fields, fields, (outer, inner, own) => {
        const body = parseLine(writtenLine((log) => log.child(outer).child(inner).info(own, "said")));
        expect(body.msg).toBe("said");
        for (const [name, value] of Object.entries(own)) {
          const matchingKeys = Object.keys(body).filter(
            (key) => key.replace(/^(line_)+/, "") === name.replace(/^(line_)+/, ""),
          );
          expect(matchingKeys.map((key) => body[key])).toContain(value);
        }
      }),
      { numRuns: 300 },
    );
  });
});

describe("maskCredentials", () => {
  test.each([
    "The token lacks the ability, the site or the permission; the token information tells which.",
    "The token expired yesterday.",
    "Put a new token somewhere else.",
    "The proxy wants basic authentication",
    "Its token misconfiguration cannot pass by itself.",
  ])("keeps a text without a secret: %s", (text) => {
    expect(maskCredentials(text)).toBe(text);
  });

  test.each([
    ["token 12|aBcDeFgHiJkLmNoP", "token [redacted]"],
    ["Bearer correcthorse", "Bearer [redacted]"],
    ["basic dXNlcjpwYXNzd29yZA==", "basic [redacted]"],
    ['{"authorization":"Bearer simulator-token"}', '{"authorization":"Bearer [redacted]"}'],
    ["the token s3cretword failed", "the token [redacted] failed"],
    ["the token SecretWord failed", "the token [redacted] failed"],
    ["token eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl", "token [redacted]"],
    ["mqtt://user:pw@host refused", "mqtt://[redacted]@host refused"],
  ])("replaces the secret in the text %s", (text, left) => {
    expect(maskCredentials(text)).toBe(left);
  });
});
