import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { CommandMessage } from "#src/core/connector.ts";
import { parseCommandPayload } from "#src/engine/commands/command-payload.ts";
import { seed } from "../seed.ts";
import { arrivalOf } from "./command-harness.ts";

function arrival(payload: string | Uint8Array, changes: Partial<CommandMessage> = {}): CommandMessage {
  return arrivalOf(payload, 1_000, { topic: "plenum/cmd/main/10001/set", tagId: "10001", ...changes });
}

const unknownId = () => undefined;

function reasonOf(payload: string | Uint8Array, changes: Partial<CommandMessage> = {}): string | null {
  const parsed = parseCommandPayload(arrival(payload, changes), unknownId);
  return "refused" in parsed ? parsed.refused.reason : null;
}

describe("parsePayload with a valid payload", () => {
  test("accepts a bare value on the topic of its tag", () => {
    const parsed = parseCommandPayload(arrival("21.5"), unknownId);
    expect(parsed).toMatchObject({ requests: [{ tagId: "10001", source: "main", value: 21.5, ttlMs: null }] });
    expect(parseCommandPayload(arrival(" true\n"), unknownId)).toMatchObject({ requests: [{ value: true }] });
  });

  test("gives a bare value an id from the time, the correlation or the property `id`", () => {
    const idOf = (changes: Partial<CommandMessage>) => {
      const parsed = parseCommandPayload(arrival("1", changes), unknownId);
      return "requests" in parsed ? parsed.requests[0]?.id : null;
    };
    expect(idOf({ receivedAtMs: 1 })).not.toBe(idOf({ receivedAtMs: 2 }));
    expect(idOf({ correlation: "abc" })).toBe("abc");
    expect(idOf({ properties: { id: "from-property" } })).toBe("from-property");
  });

  test("gives a redelivered message the id of its first delivery, and a later message a different id", () => {
    const commandOf = (payload: string, receivedAtMs: number, duplicate: boolean, known: readonly string[]) => {
      const findKnownId = (start: string) => known.find((id) => id.startsWith(start));
      const parsed = parseCommandPayload(arrival(payload, { receivedAtMs, duplicate }), findKnownId);
      return "requests" in parsed ? (parsed.requests[0]?.id ?? "") : "";
    };
    const first = commandOf("21.5", 1, false, []);
    expect(commandOf("21.5", 5_000, true, [first])).toBe(first);
    expect(commandOf("21.5", 5_000, false, [first])).not.toBe(first);
    expect(commandOf("21.6", 5_000, true, [first])).not.toBe(first);
    expect(commandOf("21.5", 5_000, true, [])).toBe(commandOf("21.5", 5_000, false, []));
  });

  test("accepts JSON with id, ttl_s and expect", () => {
    const text = '{"id":"x1","value":20,"issued_at":"2026-11-20T13:00:00+01:00","ttl_s":10,"expect":19}';
    expect(parseCommandPayload(arrival(text), unknownId)).toEqual({
      messageId: "x1",
      requests: [
        {
          id: "x1",
          source: "main",
          tagId: "10001",
          value: 20,
          issuedAtMs: Date.parse("2026-11-20T12:00:00Z"),
          ttlMs: 10_000,
          forMs: null,
          expect: 19,
        },
      ],
    });
  });

  test("accepts several tags in one message, and gives each tag its own id", () => {
    const text = '{"id":"g","writes":[{"tag":"1","value":1},{"tag":"2","value":false}]}';
    const parsed = parseCommandPayload(arrival(text, { tagId: null }), unknownId);
    expect(parsed).toMatchObject({
      requests: [
        { id: "g/1", tagId: "1", value: 1 },
        { id: "g/2", tagId: "2", value: false },
      ],
    });
  });
});

test('parsePayload accepts the payload {"stop":true} for the kill switch', () => {
  expect(parseCommandPayload(arrival('{"stop":true}', { tagId: null }), unknownId)).toMatchObject({ stop: {} });
  expect(parseCommandPayload(arrival('{"id":"x","stop":true}'), unknownId)).toEqual({ stop: { id: "x" } });
});

describe("parsePayload with an invalid payload", () => {
  const many = JSON.stringify({ id: "g", writes: Array.from({ length: 201 }, (_, i) => ({ tag: `${i}`, value: 1 })) });
  test.each<[string, string | Uint8Array, Partial<CommandMessage>?]>([
    ["unreadable", new Uint8Array([0xff, 0xfe])],
    ["unreadable", "on"],
    ["invalid", '"21.5"'],
    ["invalid", "21.5", { tagId: null }],
    ["invalid", '{"value":1}'],
    ["invalid", '{"id":"x","value":1e999}'],
    ["invalid", '{"id":"x","value":"1"}'],
    ["invalid", '{"id":"x","value":1,"force":true}'],
    ["invalid", '{"id":"x","value":1,"tag":"10002"}'],
    ["invalid", '{"id":"x","value":1,"issued_at":"2026-11-20T13:00:00"}'],
    ["invalid", '{"id":"x","value":1,"ttl_s":-1}'],
    ["invalid", '{"id":"g","writes":[{"tag":"1","value":1},{"tag":"1","value":2}]}', { tagId: null }],
    ["invalid", many, { tagId: null }],
    ["invalid", '{"id":"\\ud800","value":1}'],
    ["invalid", '{"id":"x","value":1,"source":"other"}'],
    ["invalid", '{"id":"g","writes":[{"tag":"1","value":1}]}'],
    ["invalid", '{"stop":1}'],
    ["loop", "21.5", { properties: { "plenum-event-id": "y" } }],
    ["loop", '{"ts":"2026-11-20T12:00:00Z","value":21,"quality":"good"}'],
    ["loop", '{"specversion":"1.0","id":"x","value":1}'],
    ["loop", '{"id":"tag-value.AAAAAAAAAAAAAAAAAAAAAA","value":1}'],
    ["loop", '{"id":"x","value":1}', { properties: { "plenum-event-id": "y" } }],
  ])("returns the reason %s for the payload %s", (reason, payload, changes) => {
    expect(reasonOf(payload, changes)).toBe(reason);
  });
});

test("parsePayload rejects 10,000 randomly damaged commands or returns a number or boolean for a tag", () => {
  const lawful = [
    '{"id":"x1","tag":"10001","value":20,"issued_at":"2026-11-20T13:00:00+01:00","ttl_s":10,"expect":19}',
    '{"id":"g","writes":[{"tag":"1","value":1},{"tag":"2","value":false}]}',
    "21.5",
  ];
  const change = fc.record({ at: fc.nat(200), take: fc.nat(3), put: fc.uint8Array({ maxLength: 3 }) });
  fc.assert(
    fc.property(fc.constantFrom(...lawful), fc.array(change, { minLength: 1, maxLength: 3 }), (text, changes) => {
      const bytes = [...new TextEncoder().encode(text)];
      for (const { at, take, put } of changes) bytes.splice(at % (bytes.length + 1), take, ...put);
      const parsed = parseCommandPayload(arrival(Uint8Array.from(bytes), { tagId: null }), unknownId);
      if (!("requests" in parsed)) return;
      for (const { value, id, tagId } of parsed.requests) {
        expect(typeof value === "boolean" || Number.isFinite(value)).toBe(true);
        expect(id.length * tagId.length).toBeGreaterThan(0);
      }
    }),
    { numRuns: 10_000, seed },
  );
});
