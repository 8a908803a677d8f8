import { Writable } from "node:stream";
import { inspect } from "node:util";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { ServiceNowConfig } from "#connectors/servicenow/config.ts";
import { createServiceNowReceiver } from "#connectors/servicenow/receiver.ts";
import type { IncidentReference, Receiver } from "#connectors/shared/receiver/receiver.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { clockAt, contextFor, never } from "../connectors/context.ts";
import type { StubAnswer } from "../connectors/stub-server.ts";
import { SERVICENOW_PASSWORD, SERVICENOW_USER, type ServiceNowEnd, startServiceNowEnd } from "./servicenow-end.ts";
import { gatewayOf, HOSTILE_NAMES, namedOf, resolvedOf, toldOf } from "./told-samples.ts";

const BEGAN = "2026-11-02T06:16:00.000Z";
const KEY = toldOf().key;
const ID = "69a6f3ff4ac66bbe9d9ee5c9b5a6e19a";

let end: ServiceNowEnd;
let receiver: Receiver;
let lines: string[];
const clock = clockAt(BEGAN);

function receiverWith(options: Record<string, unknown> = {}): Receiver {
  const destination = new Writable({
    write(line, _encoding, done) {
      lines.push(String(line));
      done();
    },
  });
  const made = createServiceNowReceiver(ServiceNowConfig.parse({ ...end.config, ...options }), {
    ...contextFor("servicenow", clock),
    log: createLog({ level: "trace", destination }),
  });
  onTestFinished(() => made.dispose());
  return made;
}

beforeEach(async () => {
  clock.set(BEGAN);
  lines = [];
  end = await startServiceNowEnd();
  receiver = receiverWith();
  return () => end.stop();
});

const opened = (said = toldOf(), by = receiver) => by.open(said, never());
const record = () => {
  const [first] = end.records;
  if (first === undefined) throw new Error("there is no record");
  return first;
};
const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    () => null,
    (error: unknown) => error,
  );
const find = (sinceMs: number, said = toldOf()) => {
  if (receiver.find === undefined) throw new Error("no find");
  return receiver.find(said, sinceMs, never());
};

describe("servicenow: open", () => {
  test("creates one record with our key, and answers what people call it and where it is", async () => {
    const place = await opened();
    const { sys_id } = record();
    expect(place).toEqual({
      ref: { id: sys_id, over: false },
      ticket: "INC0010001",
      link: `${end.url}/nav_to.do?uri=incident.do%3Fsys_id%3D${sys_id}`,
    });
    expect(record().fields).toEqual({
      state: "1",
      short_description: "Supply temperature low, Kvarnholmen 4",
      description: [
        "Active",
        "Site: Kvarnholmen 4",
        "Priority: A",
        "Since: 2026-11-02 07:15:00 +01:00",
        "Description: Supply temperature below 20 °C for 10 minutes",
        "Value: value: 18.4",
        "",
        "Open in Plenum: https://plenum.example.com/#alarm/main/500001",
      ].join("\n"),
      correlation_id: KEY,
      correlation_display: "plenum",
    });
    expect(end.things()).toEqual([{ key: KEY, isOpen: true, texts: record().texts }]);
    expect(lines).toEqual([]);
  });

  test("priority, group and further fields are as configured", async () => {
    const configured = receiverWith({
      priority: { A: { impact: 1, urgency: "2" } },
      assignment_group: ID,
      fields: { caller_id: "62826bf03710200044e0bfc8bcbe5df1" },
    });
    await opened(toldOf(), configured);
    await opened(toldOf({ priority: "B" }), configured);
    expect(record().fields).toMatchObject({
      impact: "1",
      urgency: "2",
      assignment_group: ID,
      caller_id: "62826bf03710200044e0bfc8bcbe5df1",
    });
    expect(end.records[1]?.fields).not.toHaveProperty("impact");
  });

  test.each(HOSTILE_NAMES.entries().toArray())("hostile name %i is shown and never carried out", async (_, name) => {
    const place = await opened(namedOf(name));
    await receiver.update(namedOf(name, { change: "acknowledged" }), place, never());
    await receiver.close({ ...resolvedOf(), text: namedOf(name).text }, place, never());
    const { short_description = "", description = "" } = record().fields;
    expect(short_description).not.toMatch(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/u);
    for (const text of record().texts) {
      expect(text).not.toMatch(/\[\/?code\]|@\[/i);
      expect(text.replaceAll("\n", "")).not.toMatch(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/u);
    }
    // Nothing was cut off there, because it was cut here; the link is whole.
    expect(short_description.length).toBeLessThanOrEqual(160);
    expect(description.length).toBeLessThanOrEqual(4_000);
    expect(description).toMatch(/\nOpen in Plenum: https:\/\/plenum\.example\.com\/#alarm\/main\/500001$/);
    expect(record().notes).toHaveLength(1);
  });

  test("a line of a text cannot look like a label", async () => {
    await opened(namedOf("x\nPriority: C"));
    expect(record().fields.description).toMatch(/\n {2}Priority: C/);
    expect(record().fields.description?.match(/^Priority: /gm)).toHaveLength(1);
  });

  test("a short description is cut between characters, at 160 units", async () => {
    await opened(namedOf("å".repeat(400)));
    expect(record().fields.short_description).toBe(`${"å".repeat(159)}…`);
  });

  test("a list of what is behind a gateway is shown", async () => {
    await opened(gatewayOf(12));
    expect(record().fields.short_description).toBe("Gateway Basement gateway is offline: 12 of 30 alarms active");
    expect(record().fields.description).toContain("- A Supply temperature low 19 (Active");
    expect(record().fields.description).toContain("- and 10 more");
  });

  test("a record that lost its key is told in the log, once", async () => {
    end.columns.delete("correlation_id");
    await opened();
    await opened();
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain("did not keep its correlation_id");
  });

  test("a token is sent in place of a password", async () => {
    process.env.PLENUM_TEST_SNOW_TOKEN = "canary-token-of-servicenow";
    onTestFinished(() => {
      delete process.env.PLENUM_TEST_SNOW_TOKEN;
    });
    const byToken = receiverWith({ user: undefined, password: undefined, token: { env: "PLENUM_TEST_SNOW_TOKEN" } });
    await failureOf(opened(toldOf(), byToken));
    expect(end.seen.at(-1)?.headers.authorization).toBe("Bearer canary-token-of-servicenow");
  });
});

describe("servicenow: update", () => {
  test("edits the description and leaves the short one to people", async () => {
    const place = await opened();
    expect(await receiver.update(toldOf({ change: "changed", priority: "B" }), place, never())).toEqual(place);
    expect(Object.keys(JSON.parse(end.seen.at(-1)?.body.toString() ?? ""))).toEqual(["description"]);
    expect(record().fields.description).toContain("Priority: B");
    expect(record().notes).toEqual([]);
  });

  test("the short description of a gateway counts, so it is edited", async () => {
    const place = await opened(gatewayOf(12));
    await receiver.update(gatewayOf(3, { change: "members" }), place, never());
    expect(record().fields.short_description).toContain("3 of 30 alarms active");
    expect(record().notes).toEqual([]);
  });

  test.each([
    [{ change: "acknowledged", status: "acknowledged" }, "Acknowledged\nAcknowledged by: Ola\nMessage: Ola"],
    [{ change: "recovering", status: "recovering" }, "Recovering"],
    [
      { change: "vanished", status: "unknown" },
      "State unknown\nState unknown: The service does not show the alarm any more and does not say that it is over.",
    ],
    [{ change: "retriggered", status: "active" }, "Active\nSince: 2026-11-02 07:15:00 +01:00"],
  ] as const)("a work note says it: %j", async (change, note) => {
    const place = await opened();
    await receiver.update(namedOf("Ola", change), place, never());
    expect(record().notes).toEqual([note]);
  });

  test("an incident that somebody has resolved or closed is left as it is", async () => {
    const place = await opened();
    for (const state of ["6", "7", "8"]) {
      record().fields.state = state;
      const before = structuredClone(record());
      expect(await receiver.update(toldOf({ change: "acknowledged" }), place, never())).toEqual(place);
      expect(await receiver.close(resolvedOf(), place, never())).toMatchObject({ ref: { over: true } });
      expect(record()).toEqual(before);
    }
  });

  test("a record that was deleted is gone", async () => {
    const place = await opened();
    end.records.pop();
    expect(await receiver.update(toldOf(), place, never())).toBe("gone");
    expect(await receiver.close(resolvedOf(), place, never())).toBe("gone");
  });

  test("a record that we may not read any more is not gone: a person has to act", async () => {
    const place = await opened();
    end.mayRead = false;
    for (const failing of [
      () => receiver.update(toldOf(), place, never()),
      () => receiver.close(resolvedOf(), place, never()),
      () => find(0),
    ]) {
      expect(await failureOf(failing())).toMatchObject({ kind: "config", reason: "forbidden", field: "user" });
    }
  });
});

describe("servicenow: close", () => {
  test("sets the state with code and notes, in one request", async () => {
    const place = await opened();
    const before = end.requests();
    expect(await receiver.close(resolvedOf(), place, never())).toEqual({
      ...place,
      ref: { id: record().sys_id, over: true },
    });
    expect(end.requests() - before).toBe(2);
    expect(record().fields).toMatchObject({
      state: "6",
      close_code: "Solution provided",
      close_notes: "Resolved\nEnded: 2026-11-02 07:20:00 +01:00\nLasted: 5 min",
    });
    expect(record().fields.description).toMatch(/^Resolved\n/);
    expect(end.things()[0]?.isOpen).toBe(false);
    expect(lines).toEqual([]);
  });

  test("with the configured state and words", async () => {
    end.mandatory.clear();
    const other = receiverWith({ resolved_state: 3, close_code: undefined, close_notes: "Closed by the building." });
    await other.close(resolvedOf(), await opened(), never());
    expect(record().fields.state).toBe("3");
    expect(record().fields.close_notes).toMatch(/^Closed by the building\.\nResolved\nEnded: /);
    expect(record().fields).not.toHaveProperty("close_code");
  });

  test("a state that we may not write is told in the log, once", async () => {
    end.readOnly.add("state");
    for (const _again of [1, 2]) {
      const place = await opened();
      expect(await receiver.close(resolvedOf(), place, never())).toMatchObject({ ref: { over: true } });
    }
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain("stays open although its alarm is over");
  });

  test("what a data policy asks for is named, for a person to fill in", async () => {
    const careless = receiverWith({ close_code: undefined });
    const failure = await failureOf(careless.close(resolvedOf(), await opened(), never()));
    expect(failure).toMatchObject({ kind: "config", reason: "validation", field: "fields" });
    expect(String(failure)).toContain("mandatory: close_code");
    expect((failure as { hint: string }).hint).toContain("close_code");
  });
});

describe("servicenow: an alarm that comes back", () => {
  test("opens what we resolved, with the configured state, whatever the last word was", async () => {
    const reopening = receiverWith({ reopen_state: 2 });
    const closed = (await reopening.close(resolvedOf(), await opened(), never())) as IncidentReference;
    const back = await reopening.update(toldOf({ change: "acknowledged" }), closed, never());
    expect(record().fields.state).toBe("2");
    expect(record().notes).toEqual(["Active\nSince: 2026-11-02 07:15:00 +01:00"]);
    expect(record().fields.description).toMatch(/^Active\n/);
    expect(back).toMatchObject({ ref: { over: false } });
  });

  test("without such a state it stays resolved and gets a note, once", async () => {
    const closed = (await receiver.close(resolvedOf(), await opened(), never())) as IncidentReference;
    const back = (await receiver.update(toldOf({ change: "retriggered" }), closed, never())) as IncidentReference;
    await receiver.update(toldOf({ change: "changed" }), back, never());
    expect(record().fields.state).toBe("6");
    expect(record().notes).toHaveLength(1);
    expect(lines.filter((line) => line.includes("stays resolved"))).toHaveLength(1);
  });

  test("what was closed for good is gone, so that it gets a new one", async () => {
    const closed = (await receiver.close(resolvedOf(), await opened(), never())) as IncidentReference;
    record().fields.state = "7";
    expect(await receiver.update(toldOf({ change: "retriggered" }), closed, never())).toBe("gone");
  });
});

describe("servicenow: find", () => {
  test("an opening whose answer was lost is found, and not made again", async () => {
    end.loseAnswers(1);
    expect(await failureOf(opened())).toMatchObject({ kind: "retryable" });
    expect(await find(clock.now())).toMatchObject({ ticket: "INC0010001", ref: { over: false } });
    expect(end.records).toHaveLength(1);
  });

  test("where nothing was made, that is sure only after a minute", async () => {
    const sinceMs = clock.now();
    clock.set("2026-11-02T06:16:50.000Z");
    expect(await find(sinceMs)).toEqual({ againInMs: 10_000 });
    clock.set("2026-11-02T06:17:00.000Z");
    expect(await find(sinceMs)).toBeNull();
    expect(await find(sinceMs + 3_600_000)).toBeNull();
  });

  test("of two the oldest is taken, and the other says so", async () => {
    for (const _each of [1, 2, 3]) await opened();
    const [first, second, third] = end.records;
    if (third === undefined) throw new Error("too few");
    third.fields.state = "6";
    expect(await find(clock.now())).toMatchObject({ ticket: "INC0010001" });
    expect([first, second, third].map((each) => each?.notes)).toEqual([
      [],
      ["Duplicate of INC0010001; Plenum keeps only that one up to date."],
      [],
    ]);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ ticket: "INC0010001", duplicates: ["INC0010002"] });
  });

  test("a table without correlation_id finds everything, which is nobody's incident", async () => {
    await opened(gatewayOf(2));
    end.columns.delete("correlation_id");
    for (const failing of [() => find(0), () => receiver.probe(never())]) {
      expect(await failureOf(failing())).toMatchObject({ kind: "config", field: "table" });
    }
  });

  test("what is closed, or is about something else, is not found", async () => {
    await opened();
    record().fields.state = "7";
    await opened(gatewayOf(2));
    expect(await find(0)).toBeNull();
  });
});

describe("servicenow: failures", () => {
  test("429 says how long, and that it was not carried out", async () => {
    end.tellToWait(1);
    expect(await failureOf(opened())).toMatchObject({ kind: "throttled", retryAfterMs: 30_000, scope: "allowance" });
    expect(end.records).toEqual([]);
  });

  test("a business rule refuses this one, in its own words", async () => {
    end.ruleRefuses = true;
    const failure = await failureOf(opened());
    expect(failure).toMatchObject({ kind: "rejected" });
    expect(String(failure)).toContain("aborted by Business Rule 'Only in office hours");
  });

  test("a wrong password is one of settings, wherever it shows", async () => {
    const place = await opened();
    end.password = "another password";
    for (const failing of [
      () => opened(),
      () => receiver.update(toldOf(), place, never()),
      () => find(0),
      () => receiver.probe(never()),
    ]) {
      expect(await failureOf(failing())).toMatchObject({ kind: "config", reason: "unauthenticated" });
    }
  });

  test("a table that is not there is one of settings", async () => {
    expect(await failureOf(receiverWith({ table: "u_alarm" }).probe(never()))).toMatchObject({
      kind: "config",
      field: "table",
    });
  });

  const error = (message: string, detail: string) => JSON.stringify({ error: { message, detail } });
  test.each([
    [
      { status: 302, headers: { location: "/login" } },
      { kind: "config", field: "url" },
    ],
    [
      { status: 403, body: error("Operation Failed", "ACL Exception Insert Failed") },
      { kind: "config", reason: "forbidden" },
    ],
    [
      { status: 404, body: "<html>Page not found</html>" },
      { kind: "config", field: "url" },
    ],
    [
      { status: 400, body: error("Invalid table x", "") },
      { kind: "config", field: "table" },
    ],
    [{ status: 400, body: "" }, { kind: "rejected" }],
    [{ status: 500, body: "oops" }, { kind: "retryable" }],
    [{ status: 503 }, { kind: "throttled", scope: "everything" }],
    [{ status: 200, body: "<html>Your instance is hibernating</html>" }, { kind: "retryable" }],
    [{ status: 201, body: '{"result":{}}' }, { kind: "retryable" }],
    [{ status: 201, body: '{"result":{"sys_id":"../x"}}' }, { kind: "retryable" }],
    [{ status: 201, body: "x".repeat(1_000_000) }, { kind: "retryable" }],
    [{ status: 200, body: error("Insert failed", "no") }, { kind: "rejected" }],
  ] as [StubAnswer, object][])("an answer to an opening: %#", async (answer, meaning) => {
    end.instead = () => answer;
    expect(await failureOf(opened())).toMatchObject(meaning);
  });

  test("a page for a wrong address is not a record that is gone", async () => {
    const place = await opened();
    end.instead = () => ({ status: 404, body: "<html>Page not found</html>" });
    expect(await failureOf(receiver.update(toldOf(), place, never()))).toMatchObject({ kind: "config" });
  });

  test("an abort ends it with the signal's own reason", async () => {
    const stop = new AbortController();
    const reason = new Error("stopping");
    end.instead = () => {
      stop.abort(reason);
      return { status: 200 };
    };
    expect(await failureOf(receiver.open(toldOf(), stop.signal))).toBe(reason);
  });

  test("no secret is in a failure or in the log, even where it is repeated", async () => {
    const place = await opened();
    const basic = Buffer.from(`${SERVICENOW_USER}:${SERVICENOW_PASSWORD}`).toString("base64");
    for (const status of [200, 302, 400, 401, 403, 404, 429, 500, 503]) {
      end.instead = () => ({ status, body: error(SERVICENOW_PASSWORD, basic) });
      const failures = [
        await failureOf(opened()),
        await failureOf(receiver.update(toldOf(), place, never())),
        await failureOf(receiver.probe(never())),
      ];
      const shown = inspect(failures, { depth: 9 }) + lines.join();
      expect(shown).not.toContain(SERVICENOW_PASSWORD);
      expect(shown).not.toContain(SERVICENOW_PASSWORD.slice(5, 25));
      expect(shown).not.toContain(basic.slice(26));
    }
    expect(JSON.stringify(place)).not.toContain(SERVICENOW_PASSWORD);
  });
});

test("servicenow: probe passes where all is right, and changes nothing", async () => {
  await opened();
  const before = structuredClone(end.records);
  expect(await failureOf(receiver.probe(never()))).toBeNull();
  expect(end.records).toEqual(before);
  expect(end.seen.at(-1)?.method).toBe("GET");
});
