import { readFileSync, writeFileSync } from "node:fs";
import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import type { IncidentReference } from "#connectors/shared/receiver/receiver-interface.ts";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { clockAt, contextFor, never } from "../connectors/context.ts";
import { START, sampleAlarm } from "../receiver/receiver-harness.ts";
import { AWKWARD_TEXTS } from "../sample-events.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { closeAfterTest, disposeAfterTest, stopAfterTest } from "../test-resources.ts";
import { catchFailure, expectFailure, loggedContext, requireReference } from "./receiver-helpers.ts";
import { createReceiver, createSink, RECEIVERS, type ReceiverCase } from "./receivers.ts";
import { alarmMessage, endMessage, gatewayMessage, HOSTILE_NAMES, namedMessage } from "./sent-samples.ts";
import { SPARKLINE_TEXT, storeTagValues } from "./stored-tag-values.ts";

const KEY = alarmMessage().key;
const UNSAFE = /[\u202a-\u202e\u2066-\u2069]|[^\P{Cc}\n]/u;

async function startReceiver(row: ReceiverCase) {
  const clock = clockAt("2026-11-02T06:16:00.000Z");
  const server = stopAfterTest(await row.start(clock.now));
  const lines: string[] = [];
  const create = (more: object = {}) => {
    const context = loggedContext("people", lines, clock);
    return disposeAfterTest(createReceiver(row.connector, server, context, { ...row.options, ...more }));
  };
  const receiver = create();
  const open = (message = alarmMessage()) => receiver.open(message, never());
  return { clock, server, lines, create, receiver, open };
}

const asStored = (reference: IncidentReference): IncidentReference => JSON.parse(JSON.stringify(reference));

function listSecrets(config: Readonly<Record<string, unknown>>) {
  return Object.entries(config).flatMap(([option, value]) => {
    const { file } = Object(value) as { readonly file?: string };
    return file === undefined ? [] : [{ option, file, text: readFileSync(file, "utf8").trim() }];
  });
}

describe.each(RECEIVERS)("the receiver $name", (row) => {
  test("keeps an incident open during all changes of its alarm until the alarm ends", async () => {
    const { server, open, receiver } = await startReceiver(row);
    let reference = asStored(await open());
    expect(server.incidents()).toMatchObject([{ key: KEY, isOpen: true }]);
    expect(server.incidents()[0]?.texts.join("\n")).toContain("Supply temperature low, Kvarnholmen 4");
    for (const incident of [
      { change: "acknowledged", status: "acknowledged" },
      { change: "vanished", status: "unknown" },
      { change: "out-of-scope", status: "unknown" },
    ] as const) {
      reference = asStored(requireReference(await receiver.update(alarmMessage(incident), reference, never())));
      expect(server.incidents()).toMatchObject([{ key: KEY, isOpen: true }]);
    }
    for (const _twice of [1, 2]) {
      reference = asStored(requireReference(await receiver.close(endMessage(), reference, never())));
      expect(server.incidents()).toMatchObject([{ key: KEY, isOpen: false }]);
    }
  });

  test("has one incident after the response to the request that opened the incident was lost", async () => {
    const { clock, create, server, open } = await startReceiver(row);
    server.loseResponses(1);
    await expectFailure(open(), { kind: "retryable" });
    expect(server.incidents()).toMatchObject([{ key: KEY, isOpen: true }]);
    const sinceMs = clock.now();
    clock.set("2026-11-02T06:18:00.000Z");
    const restarted = create();
    const reference = restarted.find?.(alarmMessage(), sinceMs, never()) ?? restarted.open(alarmMessage(), never());
    await restarted.close(endMessage(), (await reference) as IncidentReference, never());
    expect(server.incidents()).toMatchObject([{ key: KEY, isOpen: false }]);
  });

  test("opens no incident while the server asks the client to wait, and opens the incident afterwards", async () => {
    const { server, open } = await startReceiver(row);
    server.throttle(1);
    await expectFailure(open(), { kind: "throttled", retryAfterMs: row.waitMs, scope: "allowance" });
    expect(server.incidents()).toEqual([]);
    await open();
    expect(server.incidents()).toHaveLength(1);
  });

  test("the connection check changes no incident", async () => {
    const { server, open, receiver } = await startReceiver(row);
    await open();
    const incidentsBefore = structuredClone(server.incidents());
    await receiver.probe(never());
    expect(server.incidents()).toEqual(incidentsBefore);
  });

  test("lists the alarms behind an offline gateway in the text of the gateway's incident", async () => {
    const { server, open } = await startReceiver(row);
    await open(gatewayMessage(12));
    const text = server.incidents()[0]?.texts.join("\n");
    expect(text).toContain("Gateway Basement gateway is offline: 12 of 30 alarms active");
    expect(text).toContain("Supply temperature low 19");
    expect(text).toContain("and 10 more");
  });

  test("removes control characters of every hostile name and keeps one incident for each", async () => {
    const { server, receiver } = await startReceiver(row);
    const names = [...HOSTILE_NAMES, ...AWKWARD_TEXTS.filter((text) => text.trim() !== "")];
    for (const [n, name] of names.entries()) {
      const key = n.toString(16).padStart(32, "0");
      const reference = await receiver.open(namedMessage(name, { key }), never());
      const acknowledged = namedMessage(name, { key, change: "acknowledged" });
      const updatedReference = requireReference(await receiver.update(acknowledged, reference, never()));
      const resolved = namedMessage(name, { key, change: "resolved", status: "resolved" });
      await receiver.close(resolved, updatedReference, never());
      const [incident, ...others] = server.incidents().filter((each) => each.key === key);
      expect([others, incident?.isOpen]).toEqual([[], false]);
      for (const text of incident?.texts ?? []) {
        expect(text).not.toMatch(UNSAFE);
        expect(text.isWellFormed()).toBe(true);
      }
    }
  });

  test("identifies its server by a hash of the address", async () => {
    const [{ receiver }, other] = [await startReceiver(row), await startReceiver(row)];
    expect(receiver.serverId).toMatch(/^[0-9a-f]{64}$/);
    expect(other.receiver.serverId).not.toBe(receiver.serverId);
  });

  test("reads its secrets again for each request, and names a missing secret file", async () => {
    const { create, server, open } = await startReceiver(row);
    for (const { file, option, text } of listSecrets(server.config)) {
      writeFileSync(file, `${text.slice(0, -4)}0000`);
      await expectFailure(open(), { kind: "config" });
      writeFileSync(file, text);
      await open();
      const unreadable = create({ [option]: { file: "/nowhere/secret" } });
      await expectFailure(unreadable.open(alarmMessage(), never()), { kind: "config" }, "/nowhere/secret");
    }
  });

  test("reports when its last request started, so the write deadline interrupts no running request", async () => {
    let monotonicMs = 1_000;
    const clock = { ...systemClock, now: () => START, monotonic: () => monotonicMs };
    const server = stopAfterTest(await row.start(clock.now));
    const sink = closeAfterTest(await createSink(row, server, contextFor("people", clock)));
    expect(sink.progressMs?.()).toBe(Number.NEGATIVE_INFINITY);
    for (const n of [1, 2]) {
      monotonicMs += 20_000;
      await sink.write([sampleAlarm(n).raised()], never());
      expect(sink.progressMs?.()).toBe(monotonicMs);
    }
  });
});

describe.each(RECEIVERS.filter(({ connector }) => connector !== "email"))("the receiver $name over HTTP", (row) => {
  test("aborts a request without a response with the reason of the signal", async () => {
    const { server, receiver } = await startReceiver(row);
    const stop = new AbortController();
    const reason = new Error("stopping");
    if (server.stub === null) throw new Error("no HTTP");
    server.stub.respond = () => {
      stop.abort(reason);
      return null;
    };
    expect(await catchFailure(receiver.open(alarmMessage(), stop.signal))).toBe(reason);
  });

  test.each([
    [302, { kind: "config" }],
    [400, { kind: "rejected" }],
    [401, { kind: "config" }],
    [403, { kind: "config" }],
    [404, { kind: "config" }],
    [413, { kind: "rejected" }],
    [429, { kind: "throttled", retryAfterMs: 5_000, scope: "allowance" }],
    [500, { kind: "retryable" }],
    [503, { kind: "throttled", retryAfterMs: 5_000, scope: "everything" }],
  ])("maps status %i to a failure kind and repeats no secret of the response", async (status, expectedError) => {
    const { create, server, lines, open, receiver } = await startReceiver(row);
    const reference = await open();
    const { authorization = "" } = server.stub?.seen.at(-1)?.headers ?? {};
    const secrets = [...listSecrets(server.config).map(({ text }) => text), authorization.split(" ")[1] ?? ""];
    if (server.stub === null) throw new Error("no HTTP");
    const headers = { "retry-after": "5", location: "https://evil.example/" };
    server.stub.respond = () => ({ status, headers, body: `You sent ${secrets.join(" ")}.` });
    const failure = await catchFailure(open());
    expect(failure).toMatchObject(expectedError);
    const failures = await Promise.allSettled([
      receiver.update(alarmMessage({ change: "acknowledged" }), reference, never()),
      receiver.close(endMessage(), reference, never()),
      receiver.find?.(alarmMessage(), 0, never()),
      receiver.probe(never()),
      create().open(alarmMessage(), never()),
    ]);
    const shown = `${inspect([failure, failures, reference], { depth: 9, showHidden: true })}${lines.join("")}`;
    for (const secret of secrets.filter((text) => text !== "")) expect(shown).not.toContain(secret.slice(-18, -4));
  });

  test.each([
    ["the log-in page of a proxy", "<html>Sign in</html>"],
    ["a response that is too long", "x".repeat(2_000_000)],
  ])("does not treat %s as the confirmation of an opened incident", async (_, body) => {
    const { server, open } = await startReceiver(row);
    if (server.stub === null) throw new Error("no HTTP");
    server.stub.respond = () => ({ status: 200, body });
    expect((await catchFailure(open())).kind).toMatch(/retryable|rejected|config/);
  });
});

describe.each(RECEIVERS.filter(({ connector }) => /slack|jira|servicenow/.test(connector)))(
  "the receiver $name after a deletion by a person",
  (row) => {
    test("reports a deleted incident as gone", async () => {
      const { server, open, receiver } = await startReceiver(row);
      const reference = await open();
      server.clear?.();
      expect(await receiver.update(alarmMessage({ change: "changed" }), reference, never())).toBe("gone");
      expect(await receiver.close(endMessage(), reference, never())).toBe("gone");
      expect(server.incidents()).toEqual([]);
    });
  },
);

const OWN_SERIES = `VS1-GT11 ${SPARKLINE_TEXT}`;

async function withValues(row: ReceiverCase, names: readonly string[]) {
  let monotonicMs = 0;
  const clock = { now: () => START, monotonic: () => monotonicMs, sleep: async () => undefined };
  const store = createMemoryStore(clock.now);
  const otherTags = names.map((displayName) => ({ displayName }));
  await storeTagValues(store, START, otherTags);
  const server = stopAfterTest(await row.start(clock.now));
  const sink = closeAfterTest(await createSink(row, server, contextFor("people", clock, store)));
  let position = 0;
  const offer = async (event: Event) => {
    position += 1;
    monotonicMs += 10_000;
    const offered = { positions: [position], committedAt: [""], isRedelivery: false };
    expect((await sink.write([event], never(), undefined, offered)).rejected).toEqual([]);
  };
  return { offer, texts: () => server.incidents().flatMap(({ texts }) => texts) };
}

describe.each(RECEIVERS)("the receiver $name with time series", (row) => {
  test("opens an alarm with the time series of its system and keeps them at its end", async () => {
    const { offer, texts } = await withValues(row, ["VS1-SP01"]);
    const one = sampleAlarm(1, { priority: "A" });
    await offer(one.raised());
    const openedText = texts().join("\n");
    expect(openedText).toContain("Values until 2026-11-02 13:00:00 +01:00");
    expect(openedText).toContain(OWN_SERIES);
    expect(openedText).toContain(`VS1-SP01 ${SPARKLINE_TEXT}`);
    await offer(one.resolved(5));
    const shown = texts().filter((text) => text.includes(OWN_SERIES)).length;
    expect(shown).toBeGreaterThanOrEqual(row.connector === "webhook" ? 1 : 2);
  });

  test("shows hostile and long tag names without control characters", async () => {
    const { offer, texts } = await withValues(row, HOSTILE_NAMES);
    await offer(sampleAlarm(1, { priority: "A" }).raised());
    expect(texts().join("\n")).toContain(OWN_SERIES);
    expect(texts().join("\n")).not.toMatch(UNSAFE);
  });
});
