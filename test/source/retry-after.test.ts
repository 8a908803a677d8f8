import { describe, expect, it } from "vitest";
import { parseRetryAfterMs } from "#src/core/http/retry-after.ts";
import { decodeReply } from "#src/engine/source/reply.ts";
import { reply } from "./source-harness.ts";

function wait(body: unknown, header?: string): unknown {
  const headers: Record<string, string> = header === undefined ? {} : { "retry-after": header };
  const nowMs = Date.parse("2026-06-01T12:00:00Z");
  try {
    return decodeReply(reply(429, body, headers), { endpoint: "tags/read", meaningOf404: "rejected", nowMs });
  } catch (error) {
    return (error as { retryAfterMs?: unknown }).retryAfterMs;
  }
}

const inErrors = (retry_after: unknown) => ({ errors: [{ status: 429, message: "slow", meta: { retry_after } }] });
const inMeta = (retry_after: unknown) => ({ errors: [{ status: 429, meta: [] }], meta: { retry_after } });

describe("wait after a 429: the stated seconds and one more for rounding, or 60 s without a statement", () => {
  const STATED_BY_SECONDS = {
    ...{ 31: [30, "30", " 30 "], 32: ["30.2", 30.2], 2: [0, 0.4, "0"], 3601: [1e9, 3600] },
    60: [-5, "-5", "soon", "", null, true, [30], { seconds: 30 }, "1e9", "0x10"],
  };
  const stated = Object.entries(STATED_BY_SECONDS).flatMap(([seconds, values]: [string, readonly unknown[]]) =>
    values.map((value) => [value, Number(seconds)] as const),
  );
  it.each(stated)("the wait after a 429 with retry_after %j is %i s", (value, seconds) => {
    expect(wait(inErrors(value))).toBe(seconds * 1000);
  });

  it.each([
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
  ])("the wait after a 429 with body %j and header %s is %i s", (body, header, seconds) => {
    expect(wait(body, header)).toBe(seconds * 1000);
  });

  it("the stated wait applies to a 429 inside HTTP 200 as well", () => {
    const decode = () => decodeReply(reply(200, inErrors(3)), { endpoint: "x", meaningOf404: "settings", nowMs: 0 });
    expect(decode).toThrow(expect.objectContaining({ kind: "throttled", retryAfterMs: 4000 }));
  });
});

describe("wait after a 503: seconds, or a date by the service's clock, or null", () => {
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
  ])("the wait after a 503 with header %s and Date %s is %s s", (header, dateHeader, seconds) => {
    expect(parseRetryAfterMs(header, now, dateHeader)).toBe(seconds === null ? null : seconds * 1000);
  });
});
