import { readFileSync, writeFileSync } from "node:fs";
import { inspect } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import type { IncidentReference } from "#connectors/shared/receiver/receiver.ts";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { clockAt, contextFor, never } from "../connectors/context.ts";
import { alarm, START } from "../receiver/trial.ts";
import { AWKWARD_TEXTS } from "../sample-events.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { expectFailure, failureOf, loggedContext } from "./receiver-helpers.ts";
import { RECEIVERS, type ReceiverCase, receiverOf, sinkOf } from "./receivers.ts";
import { gatewayOf, HOSTILE_NAMES, namedOf, resolvedOf, toldOf } from "./sent-samples.ts";
import { DRAWN, valuesInState } from "./stored-tag-values.ts";

const KEY = toldOf().key;
const UNSAFE = /[\u202a-\u202e\u2066-\u2069]|[^\P{Cc}\n]/u;

async function connected(row: ReceiverCase) {
  const clock = clockAt("2026-11-02T06:16:00.000Z");
  const end = await row.start(clock.now);
  onTestFinished(() => end.stop());
  const lines: string[] = [];
  const create = (more: object = {}) => {
    const context = loggedContext("people", lines, clock);
    const receiver = receiverOf(row.connector, end, context, { ...row.options, ...more });
    onTestFinished(() => receiver.dispose());
    return receiver;
  };
  const receiver = create();
  return { clock, end, lines, create, receiver, open: (message = toldOf()) => receiver.open(message, never()) };
}

const asStored = (reference: IncidentReference): IncidentReference => JSON.parse(JSON.stringify(reference));
const kept = (reference: IncidentReference | "gone"): IncidentReference => {
  if (reference === "gone") throw new Error("The incident is gone.");
  return reference;
};

function secretsIn(config: Readonly<Record<string, unknown>>) {
  return Object.entries(config).flatMap(([option, value]) => {
    const { file } = Object(value) as { readonly file?: string };
    return file === undefined ? [] : [{ option, file, text: readFileSync(file, "utf8").trim() }];
  });
}

describe.each(RECEIVERS)("the receiver $name", (row) => {
  test("keeps an incident open through all changes until its alarm ends", async () => {
    const { end, open, receiver } = await connected(row);
    let reference = asStored(await open());
    expect(end.things()).toMatchObject([{ key: KEY, isOpen: true }]);
    expect(end.things()[0]?.texts.join("\n")).toContain("Supply temperature low, Kvarnholmen 4");
    for (const incident of [
      { change: "acknowledged", status: "acknowledged" },
      { change: "vanished", status: "unknown" },
      { change: "out-of-scope", status: "unknown" },
    ] as const) {
      reference = asStored(kept(await receiver.update(toldOf(incident), reference, never())));
      expect(end.things()).toMatchObject([{ key: KEY, isOpen: true }]);
    }
    for (const _twice of [1, 2]) {
      reference = asStored(kept(await receiver.close(resolvedOf(), reference, never())));
      expect(end.things()).toMatchObject([{ key: KEY, isOpen: false }]);
    }
  });

  test("has one incident after the response to its opening was lost", async () => {
    const { clock, create, end, open } = await connected(row);
    end.loseResponses(1);
    expect(await failureOf(open())).toMatchObject({ kind: "retryable" });
    expect(end.things()).toMatchObject([{ key: KEY, isOpen: true }]);
    const sinceMs = clock.now();
    clock.set("2026-11-02T06:18:00.000Z");
    const restarted = create();
    const reference = restarted.find?.(toldOf(), sinceMs, never()) ?? restarted.open(toldOf(), never());
    await restarted.close(resolvedOf(), (await reference) as IncidentReference, never());
    expect(end.things()).toMatchObject([{ key: KEY, isOpen: false }]);
  });

  test("opens nothing while the server requests a wait, and opens the incident afterwards", async () => {
    const { end, open } = await connected(row);
    end.tellToWait(1);
    await expectFailure(open(), { kind: "throttled", retryAfterMs: row.waitMs, scope: "allowance" });
    expect(end.things()).toEqual([]);
    await open();
    expect(end.things()).toHaveLength(1);
  });

  test("changes nothing when it is probed", async () => {
    const { end, open, receiver } = await connected(row);
    await open();
    const before = structuredClone(end.things());
    await receiver.probe(never());
    expect(end.things()).toEqual(before);
  });

  test("lists the alarms behind a gateway", async () => {
    const { end, open } = await connected(row);
    await open(gatewayOf(12));
    const text = end.things()[0]?.texts.join("\n");
    expect(text).toContain("Gateway Basement gateway is offline: 12 of 30 alarms active");
    expect(text).toContain("Supply temperature low 19");
    expect(text).toContain("and 10 more");
  });

  test("removes control characters of every hostile name and keeps one incident for each", async () => {
    const { end, receiver } = await connected(row);
    const names = [...HOSTILE_NAMES, ...AWKWARD_TEXTS.filter((text) => text.trim() !== "")];
    for (const [n, name] of names.entries()) {
      const key = n.toString(16).padStart(32, "0");
      const reference = await receiver.open(namedOf(name, { key }), never());
      const updated = await receiver.update(namedOf(name, { key, change: "acknowledged" }), reference, never());
      await receiver.close(namedOf(name, { key, change: "resolved", status: "resolved" }), kept(updated), never());
      const [thing, ...others] = end.things().filter((each) => each.key === key);
      expect([others, thing?.isOpen]).toEqual([[], false]);
      for (const text of thing?.texts ?? []) {
        expect(text).not.toMatch(UNSAFE);
        expect(text.isWellFormed()).toBe(true);
      }
    }
  });

  test("identifies its server by a hash of the address", async () => {
    const [{ receiver }, other] = [await connected(row), await connected(row)];
    expect(receiver.serverId).toMatch(/^[0-9a-f]{64}$/);
    expect(other.receiver.serverId).not.toBe(receiver.serverId);
  });

  test("reads its secrets again for each request, and names a missing secret file", async () => {
    const { create, end, open } = await connected(row);
    for (const { file, option, text } of secretsIn(end.config)) {
      writeFileSync(file, `${text.slice(0, -4)}0000`);
      expect(await failureOf(open())).toMatchObject({ kind: "config" });
      writeFileSync(file, text);
      await open();
      const failure = await failureOf(create({ [option]: { file: "/nowhere/secret" } }).open(toldOf(), never()));
      expect(failure).toMatchObject({ kind: "config", message: expect.stringContaining("/nowhere/secret") });
    }
  });

  test("reports the start of its last request, so the write deadline interrupts no request", async () => {
    let monotonicMs = 1_000;
    const clock = { ...systemClock, now: () => START, monotonic: () => monotonicMs };
    const end = await row.start(clock.now);
    onTestFinished(() => end.stop());
    const sink = await sinkOf(row, end, contextFor("people", clock));
    onTestFinished(() => sink.close());
    expect(sink.progressMs?.()).toBe(Number.NEGATIVE_INFINITY);
    for (const n of [1, 2]) {
      monotonicMs += 20_000;
      await sink.write([alarm(n).raised()], never());
      expect(sink.progressMs?.()).toBe(monotonicMs);
    }
  });
});

describe.each(RECEIVERS.filter(({ connector }) => connector !== "email"))("the receiver $name over HTTP", (row) => {
  test("aborts a request without a response with the reason of the signal", async () => {
    const { end, receiver } = await connected(row);
    const stop = new AbortController();
    const reason = new Error("stopping");
    if (end.stub === null) throw new Error("no HTTP");
    end.stub.answer = () => {
      stop.abort(reason);
      return null;
    };
    expect(await failureOf(receiver.open(toldOf(), stop.signal))).toBe(reason);
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
  ])("maps status %i to its error and repeats no secret of the response", async (status, meaning) => {
    const { create, end, lines, open, receiver } = await connected(row);
    const reference = await open();
    const { authorization = "" } = end.stub?.seen.at(-1)?.headers ?? {};
    const secrets = [...secretsIn(end.config).map(({ text }) => text), authorization.split(" ")[1] ?? ""];
    if (end.stub === null) throw new Error("no HTTP");
    const headers = { "retry-after": "5", location: "https://evil.example/" };
    end.stub.answer = () => ({ status, headers, body: `You sent ${secrets.join(" ")}.` });
    const failure = await failureOf(open());
    expect(failure).toMatchObject(meaning);
    const failures = await Promise.allSettled([
      receiver.update(toldOf({ change: "acknowledged" }), reference, never()),
      receiver.close(resolvedOf(), reference, never()),
      receiver.find?.(toldOf(), 0, never()),
      receiver.probe(never()),
      create().open(toldOf(), never()),
    ]);
    const shown = `${inspect([failure, failures, reference], { depth: 9, showHidden: true })}${lines.join("")}`;
    for (const secret of secrets.filter((text) => text !== "")) expect(shown).not.toContain(secret.slice(-18, -4));
  });

  test.each([
    ["the log-in page of a proxy", "<html>Sign in</html>"],
    ["a response that is too long", "x".repeat(2_000_000)],
  ])("does not count %s as an opening", async (_, body) => {
    const { end, open } = await connected(row);
    if (end.stub === null) throw new Error("no HTTP");
    end.stub.answer = () => ({ status: 200, body });
    expect((await failureOf(open())).kind).toMatch(/retryable|rejected|config/);
  });
});

describe.each(RECEIVERS.filter(({ connector }) => /slack|jira|servicenow/.test(connector)))(
  "the receiver $name after a deletion by a person",
  (row) => {
    test("reports a deleted incident as gone", async () => {
      const { end, open, receiver } = await connected(row);
      const reference = await open();
      end.clear?.();
      expect(await receiver.update(toldOf({ change: "changed" }), reference, never())).toBe("gone");
      expect(await receiver.close(resolvedOf(), reference, never())).toBe("gone");
      expect(end.things()).toEqual([]);
    });
  },
);

const OWN = `VS1-GT11 ${DRAWN}`;

async function withValues(row: ReceiverCase, names: readonly string[]) {
  let monotonicMs = 0;
  const clock = { now: () => START, monotonic: () => monotonicMs, sleep: async () => undefined };
  const store = createMemoryStore(clock.now);
  const others = names.map((displayName) => ({ displayName }));
  await valuesInState(store, START, others);
  const end = await row.start(clock.now);
  onTestFinished(() => end.stop());
  const sink = await sinkOf(row, end, contextFor("people", clock, store));
  onTestFinished(() => sink.close());
  let position = 0;
  const offer = async (event: Event) => {
    position += 1;
    monotonicMs += 10_000;
    const offered = { positions: [position], committedAt: [""], isRedelivery: false };
    expect((await sink.write([event], never(), undefined, offered)).rejected).toEqual([]);
  };
  return { offer, texts: () => end.things().flatMap(({ texts }) => texts) };
}

describe.each(RECEIVERS)("the receiver $name with time series", (row) => {
  test("opens an alarm with the time series of its system and keeps them at its end", async () => {
    const { offer, texts } = await withValues(row, ["VS1-SP01"]);
    const one = alarm(1, { priority: "A" });
    await offer(one.raised());
    const opened = texts().join("\n");
    expect(opened).toContain("Values until 2026-11-02 13:00:00 +01:00");
    expect(opened).toContain(OWN);
    expect(opened).toContain(`VS1-SP01 ${DRAWN}`);
    await offer(one.resolved(5));
    const shown = texts().filter((text) => text.includes(OWN)).length;
    expect(shown).toBeGreaterThanOrEqual(row.connector === "webhook" ? 1 : 2);
  });

  test("shows hostile and long tag names without control characters", async () => {
    const { offer, texts } = await withValues(row, HOSTILE_NAMES);
    await offer(alarm(1, { priority: "A" }).raised());
    expect(texts().join("\n")).toContain(OWN);
    expect(texts().join("\n")).not.toMatch(UNSAFE);
  });
});
