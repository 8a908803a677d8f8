import { describe, expect, test } from "vitest";
import type { Gateway, Tag, TokenInfo } from "#src/core/model/building.ts";
import { AllowedTag } from "#src/engine/commands/config.ts";
import {
  type ArrivalInput,
  checkCommandArrival,
  checkDispatch,
  type DispatchInput,
  isSameValue,
  isValueSetAlready,
  needsFreshValue,
  type PastTagWrites,
  type TimedTagValue,
  tagValueIfFresh,
} from "#src/engine/commands/gate.ts";
import type { StoredObject } from "#src/engine/sync/stored-documents.ts";

const NOW = Date.parse("2026-11-20T12:00:00Z");

const setpoint = AllowedTag.parse({ site_id: 1, tag_id: "10001", type: "number", min: 15, max: 25, max_step: 3 });
const restorable: AllowedTag = { ...setpoint, restore: true };
const listedTag: StoredObject<Tag> = {
  value: { id: "10001", displayName: "360.001_SP", description: null, unit: "°C" },
  siteId: 1,
  since: "2026-11-01T00:00:00Z",
  missingSince: null,
};

const token: TokenInfo = {
  user: { id: 1, name: "", email: "" },
  name: "",
  abilities: ["read:tags", "write:tags"],
  expiresAt: null,
  sites: [{ id: 1, displayName: "" }],
};

const past = (ofTag: readonly number[], lastHour = 0): PastTagWrites => ({
  writeTimesMs: ofTag,
  writesLastHour: lastHour,
});
const many = (count: number) => Array.from({ length: count }, (_, i) => NOW - 3_500_000 + i * 30_000);
const plainRequest = {
  id: "a",
  source: null,
  tagId: "10001",
  issuedAtMs: null,
  ttlMs: null,
  forMs: null,
  expect: null,
};

function arrival(changes: Partial<ArrivalInput> & { value?: number | boolean } = {}): ArrivalInput {
  const { value = 21, ...rest } = changes;
  return {
    request: { ...plainRequest, value },
    retained: false,
    expirySeconds: null,
    via: "broker",
    receivedAtMs: NOW,
    defaultTtlMs: 30_000,
    maxTtlMs: 300_000,
    maxPerHour: 100,
    maxRestoreAfterMs: 7_200_000,
    clockSkewMs: null,
    clockStep: null,
    allowedTag: setpoint,
    storedTag: listedTag,
    tokenInfo: token,
    lockRefusal: null,
    pastWrites: past([]),
    ...rest,
  };
}

function reading(value: number | boolean | null, ageMs = 1000): TimedTagValue {
  const time = new Date(NOW - ageMs).toISOString();
  return { value, quality: value === null ? "bad" : "good", time };
}

function gateway(id: string, online: boolean | null): StoredObject<Gateway> {
  const value = { id, displayName: id, online, version: null, hardware: null, ipAddress: null, location: null };
  return { value, siteId: 1, since: "", missingSince: null };
}

function dispatch(changes: Partial<DispatchInput> = {}): DispatchInput {
  return {
    value: 21,
    expect: null,
    allowedTag: setpoint,
    currentReading: reading(20),
    forMs: null,
    pastWrites: past([]),
    maxPerHour: 100,
    gateways: [gateway("1", true)],
    timeZone: "Europe/Oslo",
    nowMs: NOW,
    ...changes,
  };
}

function arrivalReason(facts: ArrivalInput): string | null {
  const verdict = checkCommandArrival(facts);
  return "refused" in verdict ? verdict.refused.reason : null;
}

describe("the check of a command on arrival", () => {
  test("accepts a valid command and returns its expiry", () => {
    expect(checkCommandArrival(arrival())).toEqual({ expiresAtMs: NOW + 30_000 });
  });

  test.each<[string, Partial<ArrivalInput> & { value?: number | boolean }]>([
    ["retained", { retained: true }],
    ["not-allowed", { allowedTag: undefined }],
    ["unknown-tag", { storedTag: undefined }],
    ["unknown-tag", { storedTag: { ...listedTag, siteId: 2 } }],
    ["unknown-tag", { storedTag: { ...listedTag, missingSince: "2026-11-19T00:00:00Z" } }],
    ["wrong-unit", { allowedTag: { ...setpoint, unit: "K" } }],
    ["no-ability", { tokenInfo: { ...token, abilities: ["read:tags"] } }],
    ["no-ability", { tokenInfo: { ...token, sites: [] } }],
    ["clock-skew", { clockSkewMs: 30_001 }],
    ["clock-skew", { clockSkewMs: -30_001 }],
    ["clock-skew", { clockStep: { sinceMs: NOW, byMs: -3_600_000, message: "A step." } }],
    ["not-restorable", { request: { ...plainRequest, value: 21, forMs: 3_600_000 } }],
    ["not-restorable", { allowedTag: restorable, request: { ...plainRequest, value: 21, forMs: 59_999 } }],
    ["not-restorable", { allowedTag: restorable, request: { ...plainRequest, value: 21, forMs: 7_200_001 } }],
    ["too-soon", { pastWrites: past([NOW - 59_999]) }],
    ["too-many", { pastWrites: past(many(48)) }],
    ["not-allowed", { allowedTag: { ...setpoint, from: ["operator"] } }],
    ["wrong-type", { value: true }],
    ["wrong-type", { value: Number.POSITIVE_INFINITY }],
    ["out-of-range", { value: 14.999999999999998 }],
    ["expired", { expirySeconds: 0 }],
  ])("rejects with reason %s when only this part of a valid command differs: %j", (reason, changes) => {
    expect(arrivalReason(arrival(changes))).toBe(reason);
  });

  test("returns the reason of the first failing check", () => {
    expect(arrivalReason(arrival({ expirySeconds: 0, retained: true, value: 99 }))).toBe("expired");
    expect(arrivalReason(arrival({ retained: true, allowedTag: undefined, value: 99 }))).toBe("retained");
  });

  test("rejects for_s below one second or min_interval", () => {
    const forMs = (ms: number, entry = restorable) =>
      checkCommandArrival(arrival({ allowedTag: entry, request: { ...plainRequest, value: 21, forMs: ms } }));
    const quick = { ...restorable, min_interval: 500 };
    expect(forMs(1_000, quick)).toHaveProperty("expiresAtMs");
    expect(forMs(999, quick)).toMatchObject({ refused: { message: "for_s must be between 1 and 7200." } });
    expect(forMs(60_000)).toHaveProperty("expiresAtMs");
    expect(forMs(7_200_000)).toHaveProperty("expiresAtMs");
    expect(forMs(59_999)).toMatchObject({ refused: { message: "for_s must be between 60 and 7200." } });
  });

  test("states the numbers in the message of a rejection", () => {
    const message = (changes: Partial<ArrivalInput>) => {
      const verdict = checkCommandArrival(arrival(changes));
      return "refused" in verdict ? verdict.refused.message : "";
    };
    expect(message({ clockSkewMs: -40_600 })).toContain("differ by 41 s");
    expect(message({ pastWrites: past([NOW - 10_500]) })).toContain("try again in 50 s");
    expect(message({ pastWrites: past(many(48)) })).toContain("more than 48 writes of this tag");
    expect(message({ pastWrites: past([], 100) })).toContain("more than 100 writes of all tags");
    expect(message({ allowedTag: { ...setpoint, unit: "K" } })).toContain("the unit °C, not K");
    const noUnit = { ...listedTag, value: { ...listedTag.value, unit: null } };
    expect(message({ allowedTag: { ...setpoint, unit: "K" }, storedTag: noUnit })).toContain("the unit none, not K");
  });

  test("accepts a command while the token is not known and no unit is required", () => {
    expect(arrivalReason(arrival({ tokenInfo: undefined }))).toBeNull();
    expect(arrivalReason(arrival({ clockSkewMs: 30_000 }))).toBeNull();
    expect(arrivalReason(arrival({ clockSkewMs: -30_000 }))).toBeNull();
    expect(arrivalReason(arrival({ allowedTag: { ...setpoint, unit: "°C", from: ["broker"] } }))).toBeNull();
  });

  test("rejects a number for a boolean tag and a boolean for a number tag", () => {
    const onOff = AllowedTag.parse({ site_id: 1, tag_id: "10001", type: "boolean" });
    expect(arrivalReason(arrival({ allowedTag: onOff, value: true }))).toBeNull();
    expect(arrivalReason(arrival({ allowedTag: onOff, value: false }))).toBeNull();
    expect(arrivalReason(arrival({ allowedTag: onOff, value: 1 }))).toBe("wrong-type");
  });

  test("uses the shortest time to live of the message, the broker and the configuration", () => {
    const request = { ...plainRequest, value: 21, issuedAtMs: NOW - 10_000, ttlMs: 999_999_999 };
    expect(checkCommandArrival(arrival({ request }))).toEqual({ expiresAtMs: NOW - 10_000 + 300_000 });
    expect(checkCommandArrival(arrival({ request, expirySeconds: 5 }))).toEqual({ expiresAtMs: NOW + 5_000 });
    expect(arrivalReason(arrival({ request: { ...request, issuedAtMs: NOW - 300_000 } }))).toBe("expired");
    expect(arrivalReason(arrival({ request: { ...request, issuedAtMs: NOW + 31_000 } }))).toBe("clock-skew");
  });
});

describe("the check of a command before sending", () => {
  test("accepts a valid command", () => {
    expect(checkDispatch(dispatch())).toBeNull();
  });

  test.each<[string, Partial<DispatchInput>]>([
    ["value-unknown", { currentReading: undefined }],
    ["value-unknown", { currentReading: reading(null) }],
    ["value-unknown", { currentReading: reading(20, 60_001) }],
    ["unexpected-value", { expect: 19 }],
    ["value-unknown", { forMs: 60_000, allowedTag: restorable, currentReading: undefined }],
    ["not-restorable", { forMs: 60_000, allowedTag: restorable, currentReading: reading(14), value: 15 }],
    ["too-many", { forMs: 60_000, allowedTag: restorable, pastWrites: past(many(47)) }],
    ["too-many", { pastWrites: past([], 100) }],
    ["outside-hours", { forMs: 7_200_000, allowedTag: { ...restorable, hours: "12:00-14:00" } }],
    ["step-too-large", { value: 23.000000000000004 }],
    ["step-too-large", { currentReading: reading(true) }],
    ["too-soon", { pastWrites: past([NOW - 59_999]) }],
    ["too-many", { pastWrites: past(Array.from({ length: 48 }, (_, i) => NOW - 86_399_999 + i * 1_000_000)) }],
    ["outside-hours", { allowedTag: { ...setpoint, hours: "14:00-18:00" } }],
    ["gateway-offline", { gateways: [gateway("1", false), gateway("2", false)] }],
    [
      "gateway-offline",
      { allowedTag: { ...setpoint, gateway_id: "2" }, gateways: [gateway("1", true), gateway("2", false)] },
    ],
  ])("rejects with reason %s when only this part of a valid state differs: %j", (reason, changes) => {
    expect(checkDispatch(dispatch(changes))?.reason).toBe(reason);
  });

  test("accepts the last write that max_per_hour and max_per_day allow", () => {
    expect(checkDispatch(dispatch({ pastWrites: past(many(47)) }))).toBeNull();
    expect(checkDispatch(dispatch({ pastWrites: past([], 99) }))).toBeNull();
    const timed = { forMs: 60_000, entry: restorable };
    expect(checkDispatch(dispatch({ ...timed, pastWrites: past(many(46)) }))).toBeNull();
    expect(checkDispatch(dispatch({ ...timed, pastWrites: past([], 98) }))).toBeNull();
    expect(checkDispatch(dispatch({ ...timed, pastWrites: past([], 99) }))?.reason).toBe("too-many");
  });

  test("requires a fresh value only for expect, for_s and max_step", () => {
    const plain = AllowedTag.parse({ site_id: 1, tag_id: "10001", type: "number", min: 15, max: 25 });
    const onOff = AllowedTag.parse({ site_id: 1, tag_id: "10001", type: "boolean" });
    const nothing = { expect: null, forMs: null };
    expect(needsFreshValue(plain, nothing)).toBe(false);
    expect(needsFreshValue(onOff, nothing)).toBe(false);
    expect(needsFreshValue(setpoint, nothing)).toBe(true);
    expect(needsFreshValue(plain, { ...nothing, expect: 0 })).toBe(true);
    expect(needsFreshValue(plain, { ...nothing, forMs: 1 })).toBe(true);
    expect(checkDispatch(dispatch({ allowedTag: plain, currentReading: undefined }))).toBeNull();
    expect(checkDispatch(dispatch({ allowedTag: plain, currentReading: reading(-40), expect: -40 }))).toBeNull();
    const expected = { value: true, expect: false, currentReading: reading(false) };
    expect(checkDispatch(dispatch({ ...expected, allowedTag: onOff }))).toBeNull();
  });

  test("treats a value as not fresh when the value is more than 1 s in the future", () => {
    expect(tagValueIfFresh(reading(20, -1_000), NOW)).toBe(20);
    expect(tagValueIfFresh(reading(20, -1_001), NOW)).toBeNull();
    expect(tagValueIfFresh(reading(20, 60_000), NOW)).toBe(20);
    expect(tagValueIfFresh({ ...reading(20), quality: "bad" }, NOW)).toBeNull();
  });

  test("compares values up to the seventh digit, and treats true and 1 as equal", () => {
    const same: readonly (readonly [TimedTagValue["value"], TimedTagValue["value"], boolean])[] = [
      [20, 20.000_004, true],
      [20, 20.000_005, false],
      [22.1, Math.fround(22.1), true],
      [1_000_000, 1_000_000.2, true],
      [1_000_000, 1_000_000.3, false],
      [0, 1e-9, true],
      [0, 1.1e-9, false],
      [-5, 5, false],
      [true, 1, true],
      [0, false, true],
      [true, 0, false],
      [1, true, true],
      [null, null, true],
      [null, 0, false],
      [0, null, false],
      [null, false, false],
      [false, null, false],
    ];
    for (const [a, b, expected] of same) expect(isSameValue(a, b), `${a} and ${b}`).toBe(expected);
  });

  test("treats a value as already set only when the numbers are equal, or equal in single precision", () => {
    const set: readonly (readonly [TimedTagValue["value"], number | boolean, boolean])[] = [
      [20, 20, true],
      [20, 20.000_001, false],
      [Math.fround(22.1), 22.1, true],
      [22.1, Math.fround(22.1), false],
      [1_000_000, 1_000_000.2, false],
      [1, true, true],
      [false, true, false],
      [null, 20, false],
    ];
    for (const [present, value, expected] of set)
      expect(isValueSetAlready(present, value), `${present} and ${value}`).toBe(expected);
  });

  test("applies `hours` in the time zone of the building, also over midnight", () => {
    expect(checkDispatch(dispatch({ allowedTag: { ...setpoint, hours: "13:00-14:00" } }))).toBeNull();
    expect(checkDispatch(dispatch({ allowedTag: { ...setpoint, hours: "22:00-13:30" } }))).toBeNull();
    expect(checkDispatch(dispatch({ allowedTag: { ...setpoint, hours: "22:00-13:00" } }))?.reason).toBe(
      "outside-hours",
    );
  });

  test("accepts a write when the state of the gateway is unknown", () => {
    expect(checkDispatch(dispatch({ gateways: [gateway("1", null)] }))).toBeNull();
    expect(checkDispatch(dispatch({ gateways: [gateway("1", false), gateway("2", null)] }))).toBeNull();
  });

  test("ignores offline gateways that the site does not have any more", () => {
    const gone = { ...gateway("1", false), missingSince: "2026-11-19T00:00:00Z" };
    expect(checkDispatch(dispatch({ gateways: [gone] }))).toBeNull();
    expect(checkDispatch(dispatch({ gateways: [] }))).toBeNull();
    expect(checkDispatch(dispatch({ gateways: [gone, gateway("2", false)] }))?.message).toBe(
      "The gateway is offline: 2.",
    );
    const named = { ...setpoint, gateway_id: "2" };
    expect(
      checkDispatch(dispatch({ allowedTag: named, gateways: [gateway("1", false), gateway("2", true)] })),
    ).toBeNull();
  });

  test("accepts a timed write only if the restore is within `hours` too, also over midnight", () => {
    const timed = { forMs: 3_600_000, entry: { ...restorable, hours: "12:00-14:01" } };
    expect(checkDispatch(dispatch(timed))).toBeNull();
    expect(checkDispatch(dispatch({ ...timed, allowedTag: { ...timed.entry, hours: "12:00-14:00" } }))?.message).toBe(
      "The tag may be written from 12:00 to 14:00 only, and so has it to be put back.",
    );
    const night = { ...restorable, hours: "13:00-02:00" };
    expect(checkDispatch(dispatch({ forMs: 12 * 3_600_000, allowedTag: night }))).toBeNull();
    expect(checkDispatch(dispatch({ forMs: 13 * 3_600_000, allowedTag: night }))?.reason).toBe("outside-hours");
  });

  test("accepts a write again once the interval of each rate limit has passed", () => {
    expect(checkDispatch(dispatch({ pastWrites: past([NOW - 60_000]) }))).toBeNull();
    const yesterday = Array.from({ length: 48 }, (_, i) => NOW - 86_400_000 - i * 1000).reverse();
    expect(checkDispatch(dispatch({ pastWrites: past(yesterday) }))).toBeNull();
  });
});
