import { describe, expect, it } from "vitest";
import { registerSecret } from "#src/core/values/secret-masking.ts";
import { createRecordParsers } from "#src/engine/source/service-records.ts";
import { alarmRecord, GOOD, never, openHarness, reply, tagRecord } from "./source-harness.ts";

const SECRET = "schema-secret-0123456789";
registerSecret(SECRET);

const PARSERS = createRecordParsers(() => {});
const parseAlarm = PARSERS.alarm(undefined);

function alarm(change: object) {
  const noted: string[] = [];
  const record = alarmRecord("a1");
  const parse = createRecordParsers((field) => noted.push(field)).alarm(undefined);
  return { alarm: parse({ ...record, attributes: { ...record.attributes, ...change } }), noted };
}

function places(value: unknown, path: readonly string[] = []): string[][] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => [[...path, key], ...places(inner, [...path, key])]);
}

function changed(record: unknown, [key = "", ...rest]: readonly string[], to: unknown): unknown {
  const copy = { ...(record as Record<string, unknown>) };
  if (rest.length > 0) copy[key] = changed(copy[key], rest, to);
  else if (to === undefined) delete copy[key];
  else copy[key] = to;
  return copy;
}

describe("records of the service", () => {
  const NONSENSE = [undefined, null, "", "unheard-of", -1, 1e308, true, [], {}, [null], { id: 3 }];
  const NOON = "2026-06-01T12:00:00";
  const TRIGGER = { id: 1, display_name: "", enabled: true, priority: "D" };
  const LISTS = [
    ["alarms", parseAlarm],
    ["tags", PARSERS.tag],
    ["gateways", PARSERS.gateway],
    ["hosts", PARSERS.host],
    ["systems", PARSERS.system],
  ] as const;

  it.each(LISTS)("parses a record of %s with any content of any field but the id", (name, parse) => {
    const [record] = (GOOD[name] as { data: unknown[] }).data;
    for (const place of places(record)) {
      if (place.join() === "id") continue;
      for (const to of NONSENSE) {
        const parsed = parse(changed(record, place, to));
        expect({ place, to, parsed }).toMatchObject({ parsed: { id: expect.any(String) } });
        if (name === "alarms")
          expect({ place, to, parsed }).toMatchObject({
            parsed: { resolvedAt: null, status: expect.not.stringMatching(/^resolved$/) },
          });
      }
    }
  });

  it.each([
    ["an unknown status", { status: "shelved" }, { status: "shelved" }, ["alarm.status"]],
    ["no time in resolved_at", { resolved_at: "x" }, { resolvedAt: null, resolvedAtRaw: "x" }, ["alarm.resolved_at"]],
    ["a trigger time without an offset", { triggered_at: NOON }, { triggeredAt: NOON, triggeredAtRaw: NOON }, []],
    ["an acknowledgement of 1", { acknowledged: 1 }, { acknowledged: true }, []],
    ["an unknown priority", { trigger: TRIGGER }, { trigger: { priority: "D" } }, ["alarm.trigger.priority"]],
  ])("keeps %s and counts it if it is not in the interface description", (_name, change, expected, fields) => {
    const { alarm: read, noted } = alarm(change);
    expect(read).toMatchObject(expected);
    expect(noted).toEqual(fields);
  });

  it("assigns an alarm without a site to the requested site", () => {
    const record = changed(alarmRecord("a1"), ["attributes", "site"], null);
    expect(PARSERS.alarm(7)(record)?.site.id).toBe(7);
    expect(parseAlarm(record)?.site.id).toBe(0);
  });

  it("accepts ids as text and as number", () => {
    expect(PARSERS.tag({ ...tagRecord("1"), id: 42 })?.id).toBe("42");
    expect(PARSERS.site({ id: "42", display_name: "x" })?.id).toBe(42);
  });

  it.each([[undefined], [""], ["x".repeat(256)], [1.5], [{}], [null]])("rejects a record with the id %j", (id) => {
    expect(PARSERS.tag({ ...tagRecord("1"), id })).toBeNull();
    expect(PARSERS.site({ id, display_name: "x" })).toBeNull();
  });

  it.each([
    [null, null],
    ["yes", null],
    [1, true],
    [false, false],
  ])("parses the field online %j of a gateway as %j", (online, expected) => {
    const [record] = (GOOD.gateways as { data: unknown[] }).data;
    expect(PARSERS.gateway(changed(record, ["attributes", "online"], online))?.online).toBe(expected);
  });

  it("parsing a record leaves prototypes unchanged", () => {
    const text = `{"type":"tags","id":"1","__proto__":{"polluted":1},"attributes":{"__proto__":{"polluted":1},"display_name":"x","constructor":{"prototype":{"polluted":1}}}}`;
    const tag = PARSERS.tag(JSON.parse(text));
    expect(tag).toEqual({ id: "1", displayName: "x", description: null, unit: null });
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
    expect(Object.getPrototypeOf(tag)).toBe(Object.prototype);
  });

  it.each([
    ["replaces a lone surrogate", "a\ud800b", "a\ufffdb"],
    ["cuts a name of a million characters", "x".repeat(1_000_000), "x".repeat(10_000)],
    ["masks a secret", `echo ${SECRET} end`, "echo [redacted] end"],
  ])("%s in a text", (_name, text, expected) => {
    const record = changed(tagRecord("1"), ["attributes", "display_name"], text);
    expect(PARSERS.tag(record)?.displayName).toBe(expected);
  });

  it.each([[[]], [{}]])("parses last_active_event %j of an alarm as no event", (last_active_event) => {
    expect(alarm({ last_active_event }).alarm?.lastActiveEvent).toBeNull();
  });

  it.each(["site", "trigger"])("keeps the other fields of an alarm whose %s is an empty array", (name) => {
    expect({ ...alarm({ [name]: [] }).alarm, [name]: null }).toEqual({ ...alarm({}).alarm, [name]: null });
  });
});

describe("token information", () => {
  it.each([
    ["no token", ["token"], null],
    ["no abilities", ["token", "abilities"], undefined],
    ["no sites", ["token", "sites"], null],
    ["a site without id", ["token", "sites"], [{ display_name: "x" }]],
  ])("token information is malformed with %s", async (_name, place, to) => {
    const body = { data: changed((GOOD.me as { data: unknown }).data, place, to) };
    const harness = openHarness(() => reply(200, body));
    await expect(harness.source.me(never())).rejects.toMatchObject({ kind: "malformed" });
  });

  it("a token with the permission * has every permission of the interface", async () => {
    const body = { data: changed((GOOD.me as { data: unknown }).data, ["token", "abilities"], ["*"]) };
    const harness = openHarness(() => reply(200, body));
    const { abilities } = await harness.source.me(never());
    const readable = ["alarms", "gateways", "hosts", "systems", "tags"].map((list) => `read:${list}`);
    expect(abilities.toSorted()).toEqual([...readable, "write:tags"]);
  });

  it("a token whose expiry is no time has an unknown expiry", async () => {
    const body = { data: changed((GOOD.me as { data: unknown }).data, ["token", "expires_at"], "never") };
    const harness = openHarness(() => reply(200, body));
    expect((await harness.source.me(never())).expiresAt).toBeNull();
  });

  it("token information accepts lists that PHP sent as objects", () => {
    const { data } = GOOD.me as { data: { token: object } };
    const token = { ...data.token, abilities: { 0: "read:tags", 2: "read:alarms" }, sites: {} };
    const expected = { abilities: ["read:tags", "read:alarms"], sites: [] };
    expect(PARSERS.tokenInfo({ user: [], token })).toMatchObject(expected);
  });
});
