import { describe, expect, it } from "vitest";
import { decodeReply, type ReplyContext } from "#src/engine/source/reply.ts";
import { CALLS, errorOf, GOOD, never, openHarness, reply, TOKEN } from "./source-harness.ts";

const READING: ReplyContext = { endpoint: "tags/read", meaningOf404: "rejected", nowMs: 0 };

function outcome(status: number, body: unknown, headers = {}, reading: Partial<ReplyContext> = {}): unknown {
  try {
    return decodeReply(reply(status, body, headers), { ...READING, ...reading }).envelope;
  } catch (error) {
    return error;
  }
}

const MEANINGS: readonly (readonly [number, object])[] = [
  [401, { kind: "config", reason: "unauthenticated" }],
  [403, { kind: "config", reason: "forbidden" }],
  [429, { kind: "throttled", scope: "allowance" }],
  [503, { kind: "throttled", scope: "everything" }],
  [422, { kind: "config", reason: "validation" }],
  [400, { kind: "config", reason: "validation" }],
  [500, { kind: "retryable" }],
  [502, { kind: "retryable" }],
  [504, { kind: "retryable" }],
];

describe("errors with HTTP 200", () => {
  const combinations = MEANINGS.flatMap(([status, meaning]) =>
    Object.keys(CALLS).map((endpoint) => ({ status, endpoint, meaning })),
  );
  it.each(combinations)(
    "an error with status $status in a reply of $endpoint becomes the matching Plenum error, without a retry",
    async ({ status, endpoint, meaning }) => {
      const harness = openHarness(() => reply(200, { errors: [{ status, message: "no", meta: [] }] }));
      expect(await errorOf(CALLS[endpoint]?.(harness.source) ?? Promise.resolve())).toMatchObject(meaning);
      expect(harness.requests).toHaveLength(1);
    },
  );

  it.each([
    ["history", { kind: "no-log" }],
    ["totals", { kind: "no-log" }],
    ["read", { kind: "rejected" }],
    ["write", { kind: "rejected" }],
    ["tags", { kind: "config", reason: "settings" }],
    ["me", { kind: "config", reason: "settings" }],
  ])("an error with status 404 in a reply of %s becomes the matching Plenum error", async (endpoint, meaning) => {
    const harness = openHarness(() => reply(200, { errors: [{ status: 404, message: "All tags must have logs." }] }));
    expect(await errorOf(CALLS[endpoint]?.(harness.source) ?? Promise.resolve())).toMatchObject(meaning);
  });
});

describe("replies with errors, data or both", () => {
  const data = [{ id: "1" }];
  const errors = [{ status: 500, message: "no" }];
  it.each([
    ["errors", { errors }, { kind: "retryable" }],
    ["errors and data", { errors, data }, { kind: "retryable" }],
    ["errors and empty data", { errors, data: [] }, { kind: "retryable" }],
    ["no errors and data", { errors: [], data }, { data }],
    ["null errors and data", { errors: null, data }, { data }],
    ["an empty object of errors, and data", { errors: {}, data }, { data }],
    ["data", { data }, { data }],
    ["neither errors nor data", {}, { kind: "malformed" }],
    ["empty errors only", { errors: [] }, { kind: "malformed" }],
    ["another object", { message: "hello" }, { kind: "malformed" }],
    ["errors by field", { errors: { tags: ["required"] } }, { kind: "retryable" }],
    ["errors as text", { errors: "broken", data }, { kind: "retryable" }],
    ["errors that are no objects", { errors: [null, 7], data }, { kind: "retryable" }],
    ["a list", [], { kind: "malformed" }],
    ["null", null, { kind: "malformed" }],
  ])("the data of a reply is returned only without errors: %s", (_name, body, expected) => {
    expect(outcome(200, body)).toMatchObject(expected);
  });

  it.each(Object.keys(CALLS))("the endpoint %s rejects a reply with data and errors", async (endpoint) => {
    const body = { ...(GOOD[endpoint] as object), errors: [{ status: 500, message: "half" }] };
    const harness = openHarness(() => reply(200, body));
    expect(await errorOf(CALLS[endpoint]?.(harness.source) ?? Promise.resolve())).toMatchObject({ kind: "retryable" });
  });
});

describe("several errors in a reply", () => {
  const order = [401, 403, 429, 503, 422, 404, 500];
  it("several errors result in the most restrictive status in any order, with all messages", () => {
    for (let least = 1; least <= order.length; least++) {
      const group = order.slice(-least);
      for (const statuses of [group, group.toReversed(), [...group.slice(1), ...group.slice(0, 1)]]) {
        const errors = statuses.map((status) => ({ status, message: `m${status}` }));
        const failure = outcome(200, { errors }) as Error;
        const alone = outcome(200, { errors: [{ status: group[0], message: "" }] });
        const { kind, scope, reason } = alone as Record<string, unknown>;
        expect({ statuses, failure }).toMatchObject({ failure: JSON.parse(JSON.stringify({ kind, scope, reason })) });
        for (const status of statuses) expect(failure.message).toContain(`m${status}`);
      }
    }
  });

  it("the HTTP status is ranked together with the statuses of the errors", () => {
    expect(outcome(401, { errors: [{ status: 422, message: "m" }] })).toMatchObject({ reason: "unauthenticated" });
    expect(outcome(500, { errors: [{ status: 403, message: "m" }] })).toMatchObject({ reason: "forbidden" });
  });

  it("other 4xx errors rank before 5xx errors, and invalid statuses are ignored", () => {
    const failure = (...statuses: readonly unknown[]) =>
      outcome(200, { errors: statuses.map((status) => ({ status, message: `m${String(status)}` })) });
    expect(failure(409, 500)).toMatchObject({ kind: "config", reason: "validation" });
    expect(failure(500, 409)).toMatchObject({ kind: "config", reason: "validation" });
    expect(failure("401", 500)).toMatchObject({ reason: "unauthenticated" });
    for (const status of ["4010", "abc", 99, 600, 401.5, true, null])
      expect(failure(status), `${status}`).toMatchObject({ kind: "retryable" });
    expect(failure(100)).toMatchObject({ kind: "retryable" });
    expect(failure(599, 422)).toMatchObject({ reason: "validation" });
  });

  it("a validation failure names its field", () => {
    const errors = [
      { status: 422, message: "The from field is required.", source: "from" },
      { status: 422, message: "The to field is required.", source: "to" },
    ];
    expect(outcome(200, { errors })).toMatchObject({
      reason: "validation",
      field: "from",
      message: "tags/read: 422, from: The from field is required.; to: The to field is required.",
    });
    const byField = outcome(422, { message: "bad", errors: { per_page: ["Too large."] } });
    expect(byField).toMatchObject({ reason: "validation", field: "per_page" });
  });
});

describe("an HTTP error status without errors in the body", () => {
  it.each(MEANINGS)("HTTP %i gives its error with a message, an empty body or a proxy's page", (status, meaning) => {
    expect(outcome(status, { message: "no" })).toMatchObject(meaning);
    expect(outcome(status, { data: [] })).toMatchObject(meaning);
    const page = outcome(status, "<html><body>no</body></html>", { "content-type": "text/html" });
    expect(page).toMatchObject(status === 422 || status === 400 ? { kind: "malformed" } : meaning);
  });

  it("404 means a missing log only if the service's own error says so", () => {
    const history = { meaningOf404: "no-log" } as const;
    expect(outcome(404, "<html>404</html>", {}, history)).toMatchObject({ kind: "malformed" });
    expect(outcome(404, { message: "The route could not be found." }, {}, history)).toMatchObject({ kind: "config" });
    const hidden = { errors: [{ status: 404, message: "The requested resource could not be found." }] };
    expect(outcome(200, hidden, {}, history)).toMatchObject({ kind: "rejected" });
    expect(outcome(200, { errors: [{ status: 404, message: "" }] }, {}, history)).toMatchObject({ kind: "no-log" });
    for (const message of ["No log.", "Alle tagger må ha logger.", "Alla taggar måste ha loggar."])
      expect(outcome(404, { errors: [{ status: 404, message }] }, {}, history)).toMatchObject({ kind: "no-log" });
  });
});

describe("HTML pages instead of responses", () => {
  const html = "<!DOCTYPE html><html><title>Log in</title></html>";
  const cases = Object.keys(CALLS).flatMap((endpoint) => [
    { endpoint, status: 200, meaning: { kind: "malformed" } },
    { endpoint, status: 302, meaning: { kind: "malformed" } },
    { endpoint, status: 503, meaning: { kind: "throttled", scope: "everything", retryAfterMs: null } },
  ]);
  it.each(cases)(
    "an HTML page with HTTP status $status from $endpoint is an error, not an empty list",
    async ({ endpoint, status, meaning }) => {
      const harness = openHarness(() => reply(status, html, { "content-type": "text/html" }));
      const failure = await errorOf(CALLS[endpoint]?.(harness.source) ?? Promise.resolve());
      expect(failure).toMatchObject(meaning);
      if (status === 200) expect(failure).toMatchObject({ sample: html });
    },
  );
});

describe("secrets in errors", () => {
  it.each([TOKEN, encodeURIComponent(TOKEN), Buffer.from(TOKEN).toString("base64"), TOKEN.replaceAll("/", "\\/")])(
    "an error does not contain the echoed token %s",
    async (spelling) => {
      const bodies = [
        { errors: [{ status: 401, message: `Bad token ${spelling}.`, source: spelling }] },
        { errors: [{ status: 422, message: "x".repeat(490) + spelling, source: `f ${spelling}` }] },
        { message: `Bearer ${spelling}` },
        { data: `your token is ${spelling}` },
        `<html>${"y".repeat(480)}${spelling}</html>`,
      ];
      const parts = ["kanarien", "geheim", Buffer.from(TOKEN).toString("base64").slice(0, 12)];
      for (const [body, status] of bodies.flatMap((body) => [200, 401, 500].map((status) => [body, status] as const))) {
        const failure = await errorOf(openHarness(() => reply(status, body)).source.read(["1"], "live", never()));
        const text = JSON.stringify([failure.message, failure.stack, { ...failure }]);
        for (const part of parts) expect(text).not.toContain(part);
      }
    },
  );

  it("the failure of a redirect quotes only the origin of the target", () => {
    const { message } = outcome(302, "", { location: "https://u:p@login.example:8443/path?token=secret" }) as Error;
    const target = "https://login.example:8443";
    expect(message).toBe(`The service redirects tags/read to ${target} (HTTP 302); that is not followed.`);
  });
});
