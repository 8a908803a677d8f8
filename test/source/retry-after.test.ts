import { describe, expect, it } from "vitest";
import { retryAfterMs } from "#src/core/http/retry-after.ts";
import { decodeReply } from "#src/engine/source/reply.ts";
import { reply } from "./trial-source.ts";

function wait(body: unknown, header?: string): unknown {
  const headers: Record<string, string> = header === undefined ? {} : { "retry-after": header };
  const nowMs = Date.parse("2026-06-01T12:00:00Z");
  try {
    return decodeReply(reply(429, body, headers), { endpoint: "tags/read", missing: "rejected", nowMs });
  } catch (error) {
    return (error as { retryAfterMs?: unknown }).retryAfterMs;
  }
}

const inErrors = (retry_after: unknown) => ({ errors: [{ status: 429, message: "slow", meta: { retry_after } }] });
const inMeta = (retry_after: unknown) => ({ errors: [{ status: 429, meta: [] }], meta: { retry_after } });

describe("wait after a 429 (trap 4): the stated seconds and one more for rounding, or 60 s without a statement", () => {
  it.each([
    [inErrors(30), undefined, 31],
    [inErrors("30"), undefined, 31],
    [inErrors(" 30 "), undefined, 31],
    [inErrors("30.2"), undefined, 32],
    [inErrors(30.2), undefined, 32],
    [inErrors(0), undefined, 2],
    [inErrors(0.4), undefined, 2],
    [inErrors("0"), undefined, 2],
    [inErrors(1e9), undefined, 3601],
    [inErrors(3600), undefined, 3601],
    [inErrors(-5), undefined, 60],
    [inErrors("-5"), undefined, 60],
    [inErrors("soon"), undefined, 60],
    [inErrors(""), undefined, 60],
    [inErrors(null), undefined, 60],
    [inErrors(true), undefined, 60],
    [inErrors([30]), undefined, 60],
    [inErrors({ seconds: 30 }), undefined, 60],
    [inErrors("1e9"), undefined, 60],
    [inErrors("0x10"), undefined, 60],
    [{ errors: [{ status: 429, meta: [] }] }, undefined, 60],
    [{ errors: [{ status: 429 }] }, "17", 18],
    [inErrors(-5), "17", 18],
    [inErrors(9), "17", 10],
    [inMeta(12), undefined, 13],
    [inMeta("12"), "17", 13],
    [inMeta(-1), "17", 18],
    [{ meta: { retry_after: 8 } }, undefined, 9],
    [{ message: "Too Many Attempts." }, "41", 42],
    ["<html>", "41", 42],
    ["<html>", undefined, 60],
    [{ errors: [{ status: 429 }] }, "Mon, 01 Jun 2026 12:00:20 GMT", 21],
    [{ errors: [{ status: 429 }] }, "garbage", 60],
    [{ errors: [{ status: 422 }, { status: 429, meta: { retry_after: 5 } }] }, undefined, 6],
  ])("with body %j and header %s is %i s", (body, header, seconds) => {
    expect(wait(body, header)).toBe(seconds * 1000);
  });

  it("applies to a 429 inside HTTP 200 as well", () => {
    const decode = () => decodeReply(reply(200, inErrors(3)), { endpoint: "x", missing: "settings", nowMs: 0 });
    expect(decode).toThrow(expect.objectContaining({ kind: "throttled", retryAfterMs: 4000 }));
  });
});

describe("wait after a 503 (trap 5): seconds, or a date by the service's clock, or null", () => {
  const now = Date.parse("2026-06-01T12:00:00Z");
  const date = "Mon, 01 Jun 2026 11:50:00 GMT";
  it.each([
    ["120", undefined, 120],
    [" 120 ", undefined, 120],
    ["1.5", undefined, 2],
    ["Mon, 01 Jun 2026 12:01:00 GMT", undefined, 60],
    ["Mon, 01 Jun 2026 12:01:00 GMT", date, 660],
    ["Monday, 01-Jun-26 12:01:00 GMT", undefined, 60],
    ["Mon Jun  1 12:01:00 2026", undefined, 60],
    ["Mon, 01 Jun 2026 11:59:00 GMT", undefined, null],
    ["Mon, 01 Jun 2026 11:49:00 GMT", date, null],
    ["0", undefined, null],
    ["-3", undefined, null],
    ["in a while", undefined, null],
    ["12 minutes", undefined, null],
    ["", undefined, null],
    [undefined, undefined, null],
    ["Mon, 01 Jun 2026 12:01:00 GMT", "garbage", 60],
    ["99999999999", undefined, 86_400],
  ])("with header %s and Date %s is %s s", (header, dateHeader, seconds) => {
    expect(retryAfterMs(header, now, dateHeader)).toBe(seconds === null ? null : seconds * 1000);
  });
});
