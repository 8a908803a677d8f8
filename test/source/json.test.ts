import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { asFailure } from "#src/core/errors/errors.ts";
import { parseJson } from "#src/engine/source/reply.ts";
import { seed } from "../seed.ts";
import { CALLS, GOOD, openHarness } from "./source-harness.ts";

const parsed = (text: string | Uint8Array) =>
  parseJson(typeof text === "string" ? new TextEncoder().encode(text) : text);

const nested = (depth: number) => `${"[".repeat(depth)}${"]".repeat(depth)}`;

describe("parseJson: JSON of the service", () => {
  it.each([
    ["32 levels", nested(32), true],
    ["33 levels", nested(33), false],
    ["a million levels", nested(1_000_000), false],
    ["brackets inside text", JSON.stringify({ a: "[".repeat(1000) }), true],
    ["a quote inside text", '{"a":"\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}', true],
    ["a long number", `[${"1".repeat(400)}]`, true],
    ["an absurd number", `[${"1".repeat(1_000_000)}]`, false],
    ["digits inside text", `["${"1".repeat(1000)}"]`, true],
    ["a nested key twice", '{"data":{"a":1,"a":2}}', true],
    ["errors twice", '{"errors":[{"status":500}],"data":[],"errors":[]}', false],
    ["an escaped errors key", '{"\\u0065rrors":[],"data":[]}', false],
    ["a byte order mark", '\ufeff{"data":[]}', true],
    ["a cut text", '{"data":"abc', false],
    ["a cut escape", '{"data":"abc\\', false],
    ["an empty text", "", false],
    ["a NUL", '{"data":"\u0000"}', false],
    ["an escaped NUL", '{"data":"\\u0000"}', true],
    ["a lone surrogate", '{"data":"\\ud800"}', true],
    ["NaN", '{"data":NaN}', false],
    ["a comment", '{"data":1} // x', false],
    ["two documents", "{}{}", false],
  ])("accepts only valid and unambiguous JSON: %s", (_name, text, ok) => {
    expect(parsed(text).ok).toBe(ok);
  });

  it.each([[[0xff, 0xfe]], [[0x22, 0xc3, 0x28, 0x22]], [[0x22, 0xed, 0xa0, 0x80, 0x22]], [[0x22, 0xc0, 0xaf, 0x22]]])(
    "rejects the bytes %j, which are no UTF-8",
    (bytes) => {
      expect(parsed(Uint8Array.from(bytes))).toEqual({ ok: false, reason: "it is not valid UTF-8" });
    },
  );

  it.each([
    ['{"id":12345678901234567891}', { id: "12345678901234567891" }],
    ['[{ "id" :\n 12345678901234567891 , "id":9007199254740993}]', [{ id: "9007199254740993" }]],
    ['{"id":9007199254740991}', { id: 9_007_199_254_740_991 }],
    ['{"value":1152921504606846976}', { value: 2 ** 60 }],
    ['{"id":1.2345678901234567}', { id: 1.2345678901234567 }],
    ['{"id":1234567890123456e5}', { id: 1234567890123456e5 }],
    ['{"a":"\\"id\\":12345678901234567891"}', { a: '"id":12345678901234567891' }],
  ])("parses ids without losing a digit: %s", (text, value) => {
    expect(parsed(text)).toEqual({ ok: true, value });
  });

  it.each(['{"id":01234567890123456789}', '{"id":12345678901234567891x}', '{"id":"12345678901234567891}'])(
    "rejects the invalid JSON %s",
    (text) => expect(parsed(text).ok).toBe(false),
  );

  it("returns the same as JSON.parse for unambiguous text", () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 4 }), (text) => {
        const ours = parsed(text);
        if (ours.ok) expect(ours.value).toEqual(JSON.parse(text));
        else expect(ours.reason).toContain("ambiguous");
      }),
      { numRuns: 500 },
    );
  });
});

it("damaged replies of every endpoint give a result or a Plenum error, and change no prototype", async () => {
  const runs = Number(process.env.PLENUM_RUNS ?? 2_000);
  const names = Object.keys(CALLS);
  const damage = fc.record({
    name: fc.constantFrom(...names),
    edits: fc.array(
      fc.record({
        at: fc.double({ min: 0, max: 1, noNaN: true }),
        remove: fc.nat(12),
        insert: fc.oneof(
          fc.constantFrom(...["", "null", "{}", "[]", '"__proto__":', "\\ud800", "\u0000", "1e999"]),
          fc.constantFrom(...["-", "9".repeat(30), '"id":', ","]),
          fc.string({ maxLength: 5 }),
        ),
      }),
      { minLength: 1, maxLength: 3 },
    ),
  });
  let text = "";
  let nowMs = 0;
  const sleep = async (ms: number) => {
    nowMs += ms;
  };
  const harness = openHarness(() => ({ status: 200, headers: {}, body: Buffer.from(text) }), {
    clock: { now: () => nowMs, monotonic: () => nowMs, sleep },
  });
  await fc.assert(
    fc.asyncProperty(damage, async ({ name, edits }) => {
      text = edits.reduce((body, { at, remove, insert }) => {
        const index = Math.floor(at * body.length);
        return body.slice(0, index) + insert + body.slice(index + remove);
      }, JSON.stringify(GOOD[name]));
      const error = await Promise.resolve(CALLS[name]?.(harness.source)).then(
        () => null,
        (thrown: unknown) => thrown,
      );
      if (error !== null) expect(asFailure(error)).toBe(error);
      expect(Object.keys(Object.prototype)).toEqual([]);
    }),
    { seed, numRuns: runs },
  );
});
