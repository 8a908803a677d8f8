import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import type { IncidentReference, Receiver } from "#connectors/shared/receiver/receiver.ts";
import { clockAt, never } from "../connectors/context.ts";
import { reply, type StubAnswer } from "../connectors/stub-server.ts";
import { expectFailure, failureOf, loggedContext, secretFile } from "./receiver-helpers.ts";
import { receiverOf } from "./receivers.ts";
import { gatewayOf, namedOf, resolvedOf, toldOf } from "./sent-samples.ts";
import { type ServiceNowEnd, startServiceNowEnd } from "./servicenow-stub.ts";

const KEY = toldOf().key;
const ID = "69a6f3ff4ac66bbe9d9ee5c9b5a6e19a";

const clock = clockAt("2026-11-02T06:16:00.000Z");
let end: ServiceNowEnd;
let receiver: Receiver;
let lines: string[];

function receiverWith(options: object = {}): Receiver {
  const made = receiverOf("servicenow", end, loggedContext("servicenow", lines, clock), options);
  onTestFinished(() => made.dispose());
  return made;
}

beforeEach(async () => {
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
const find = (sinceMs: number) => receiver.find?.(toldOf(), sinceMs, never());

describe("servicenow: opening an incident", () => {
  test("creates one record with the incident key and returns its number and link", async () => {
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

  test("sets the configured priority, group and fields", async () => {
    const caller_id = "62826bf03710200044e0bfc8bcbe5df1";
    const priority = { A: { impact: 1, urgency: "2" } };
    const configured = receiverWith({ priority, assignment_group: ID, fields: { caller_id } });
    await opened(toldOf(), configured);
    await opened(toldOf({ priority: "B" }), configured);
    expect(record().fields).toMatchObject({ impact: "1", urgency: "2", assignment_group: ID, caller_id });
    expect(end.records[1]?.fields).not.toHaveProperty("impact");
  });

  test("indents further lines of a text, so no line looks like a label", async () => {
    await opened(namedOf("x\nPriority: C"));
    expect(record().fields.description?.match(/^Priority: /gm)).toHaveLength(1);
  });

  test("cuts a short description between characters at 160 units", async () => {
    await opened(namedOf("å".repeat(400)));
    expect(record().fields.short_description).toBe(`${"å".repeat(159)}…`);
  });

  test("logs once that a record did not keep its key", async () => {
    end.columns.delete("correlation_id");
    await opened();
    await opened();
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain("did not keep its correlation_id");
  });

  test("sends a token instead of a password", async () => {
    const token = secretFile("canary-token-of-servicenow");
    const byToken = receiverWith({ user: undefined, password: undefined, token });
    await failureOf(opened(toldOf(), byToken));
    expect(end.seen.at(-1)?.headers.authorization).toBe("Bearer canary-token-of-servicenow");
  });
});

describe("servicenow: updating an incident", () => {
  test("does not change an incident that a person resolved, closed or cancelled", async () => {
    const place = await opened();
    for (const state of ["6", "7", "8"]) {
      record().fields.state = state;
      const before = structuredClone(record());
      expect(await receiver.update(toldOf({ change: "acknowledged" }), place, never())).toEqual(place);
      expect(await receiver.close(resolvedOf(), place, never())).toMatchObject({ ref: { over: true } });
      expect(record()).toEqual(before);
    }
  });
});

describe("servicenow: closing an incident", () => {
  test("sets the state with code and notes, in one request", async () => {
    const place = await opened();
    const before = end.requests();
    const ref = { id: record().sys_id, over: true };
    expect(await receiver.close(resolvedOf(), place, never())).toEqual({ ...place, ref });
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

  test("uses the configured state and close notes", async () => {
    end.mandatory.clear();
    const other = receiverWith({ resolved_state: 3, close_code: undefined, close_notes: "Closed by the building." });
    await other.close(resolvedOf(), await opened(), never());
    expect(record().fields.state).toBe("3");
    expect(record().fields.close_notes).toMatch(/^Closed by the building\.\nResolved\nEnded: /);
    expect(record().fields).not.toHaveProperty("close_code");
  });

  test("names the fields that a data policy requires", async () => {
    const careless = receiverWith({ close_code: undefined });
    const failure = await failureOf(careless.close(resolvedOf(), await opened(), never()));
    expect(failure).toMatchObject({ kind: "config", reason: "validation", field: "fields" });
    expect(String(failure)).toContain("mandatory: close_code");
    expect((failure as { hint: string }).hint).toContain("close_code");
  });
});

describe("servicenow: an alarm that returns", () => {
  test("reports its incident as gone when the incident is in the state Closed", async () => {
    const closed = (await receiver.close(resolvedOf(), await opened(), never())) as IncidentReference;
    record().fields.state = "7";
    expect(await receiver.update(toldOf({ change: "retriggered" }), closed, never())).toBe("gone");
  });
});

describe("servicenow: search for an incident", () => {
  test("reports a table without correlation_id as a configuration error", async () => {
    await opened(gatewayOf(2));
    end.columns.delete("correlation_id");
    for (const failing of [() => find(0), () => receiver.probe(never())])
      await expectFailure(failing(), { kind: "config", field: "table" });
  });

  test("finds no closed record and no record of another incident", async () => {
    await opened();
    record().fields.state = "7";
    await opened(gatewayOf(2));
    expect(await find(0)).toBeNull();
  });
});

describe("servicenow: error responses", () => {
  test("rejects an incident that a business rule aborts, with its text", async () => {
    end.ruleRefuses = true;
    await expectFailure(opened(), { kind: "rejected", message: /aborted by Business Rule 'Only in office hours/ });
  });

  test("reports a missing table as a configuration error", async () => {
    const missing = receiverWith({ table: "u_alarm" });
    await expectFailure(missing.probe(never()), { kind: "config", field: "table" });
  });

  const error = (message: string, detail: string) => JSON.stringify({ error: { message, detail } });
  test.each([
    [reply(403, error("Operation Failed", "ACL Exception Insert Failed")), { kind: "config", reason: "forbidden" }],
    [reply(404, "<html>Page not found</html>"), { kind: "config", field: "url" }],
    [reply(400, error("Invalid table x", "")), { kind: "config", field: "table" }],
    [{ status: 200, body: "<html>Your instance is hibernating</html>" }, { kind: "retryable" }],
    [{ status: 201, body: '{"result":{"sys_id":"../x"}}' }, { kind: "retryable" }],
    [{ status: 200, body: error("Insert failed", "no") }, { kind: "rejected" }],
  ] as [StubAnswer, object][])(
    "maps the response %j to the opening of an incident to its error",
    async (answer, meaning) => {
      end.stub.answer = () => answer;
      await expectFailure(opened(), { ...meaning });
    },
  );
});
