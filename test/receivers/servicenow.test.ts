import { beforeEach, describe, expect, test } from "vitest";
import type { AlarmReceiver, IncidentReference } from "#connectors/shared/receiver/receiver-interface.ts";
import { clockAt, never } from "../connectors/context.ts";
import { reply, type StubResponse } from "../connectors/stub-server.ts";
import { disposeAfterTest } from "../test-resources.ts";
import { catchFailure, expectFailure, loggedContext, onlyOne, secretFile } from "./receiver-helpers.ts";
import { createReceiver } from "./receivers.ts";
import { alarmMessage, endMessage, gatewayMessage, namedMessage } from "./sent-samples.ts";
import { type ServiceNowStub, startServiceNowStub } from "./servicenow-stub.ts";

const KEY = alarmMessage().key;
const ID = "69a6f3ff4ac66bbe9d9ee5c9b5a6e19a";

const clock = clockAt("2026-11-02T06:16:00.000Z");
let server: ServiceNowStub;
let receiver: AlarmReceiver;
let lines: string[];

function receiverWith(options: object = {}): AlarmReceiver {
  return disposeAfterTest(createReceiver("servicenow", server, loggedContext("servicenow", lines, clock), options));
}

beforeEach(async () => {
  lines = [];
  server = await startServiceNowStub();
  receiver = receiverWith();
  return () => server.stop();
});

const openIncident = (message = alarmMessage(), by = receiver) => by.open(message, never());
const onlyRecord = () => onlyOne(server.records);
const find = (sinceMs: number) => receiver.find?.(alarmMessage(), sinceMs, never());

describe("servicenow: opening an incident", () => {
  test("creates one record with the incident key and returns its number and link", async () => {
    const reference = await openIncident();
    const { sys_id } = onlyRecord();
    expect(reference).toEqual({
      ref: { id: sys_id, over: false },
      ticket: "INC0010001",
      link: `${server.url}/nav_to.do?uri=incident.do%3Fsys_id%3D${sys_id}`,
    });
    expect(onlyRecord().fields).toEqual({
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
    expect(server.incidents()).toEqual([{ key: KEY, isOpen: true, texts: onlyRecord().texts }]);
    expect(lines).toEqual([]);
  });

  test("sets the configured priority, group and fields", async () => {
    const caller_id = "62826bf03710200044e0bfc8bcbe5df1";
    const priority = { A: { impact: 1, urgency: "2" } };
    const configured = receiverWith({ priority, assignment_group: ID, fields: { caller_id } });
    await openIncident(alarmMessage(), configured);
    await openIncident(alarmMessage({ priority: "B" }), configured);
    const [firstRecord, secondRecord] = server.records;
    expect(firstRecord?.fields).toMatchObject({ impact: "1", urgency: "2", assignment_group: ID, caller_id });
    expect(secondRecord?.fields).not.toHaveProperty("impact");
  });

  test("indents further lines of a text, so no line looks like a label", async () => {
    await openIncident(namedMessage("x\nPriority: C"));
    expect(onlyRecord().fields.description?.match(/^Priority: /gm)).toHaveLength(1);
  });

  test("truncates the short description to 160 characters", async () => {
    await openIncident(namedMessage("å".repeat(400)));
    expect(onlyRecord().fields.short_description).toBe(`${"å".repeat(159)}…`);
  });

  test("logs once that ServiceNow did not store the incident key in correlation_id", async () => {
    server.columns.delete("correlation_id");
    await openIncident();
    await openIncident();
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain("did not keep its correlation_id");
  });

  test("sends a token instead of a password", async () => {
    const token = secretFile("canary-token-of-servicenow");
    const tokenReceiver = receiverWith({ user: undefined, password: undefined, token });
    await catchFailure(openIncident(alarmMessage(), tokenReceiver));
    expect(server.seen.at(-1)?.headers.authorization).toBe("Bearer canary-token-of-servicenow");
  });
});

test("servicenow: does not change an incident that a person resolved, closed or cancelled", async () => {
  const reference = await openIncident();
  for (const state of ["6", "7", "8"]) {
    onlyRecord().fields.state = state;
    const stateBefore = structuredClone(onlyRecord());
    expect(await receiver.update(alarmMessage({ change: "acknowledged" }), reference, never())).toEqual(reference);
    expect(await receiver.close(endMessage(), reference, never())).toMatchObject({ ref: { over: true } });
    expect(onlyRecord()).toEqual(stateBefore);
  }
});

describe("servicenow: closing an incident", () => {
  test("sets the state with code and notes, in one request", async () => {
    const reference = await openIncident();
    const stateBefore = server.requests();
    const ref = { id: onlyRecord().sys_id, over: true };
    expect(await receiver.close(endMessage(), reference, never())).toEqual({ ...reference, ref });
    expect(server.requests() - stateBefore).toBe(2);
    expect(onlyRecord().fields).toMatchObject({
      state: "6",
      close_code: "Solution provided",
      close_notes: "Resolved\nEnded: 2026-11-02 07:20:00 +01:00\nLasted: 5 min",
    });
    expect(onlyRecord().fields.description).toMatch(/^Resolved\n/);
    expect(server.incidents()[0]?.isOpen).toBe(false);
    expect(lines).toEqual([]);
  });

  test("uses the configured state and close notes", async () => {
    server.mandatory.clear();
    const notes = { close_code: undefined, close_notes: "Closed by the building." };
    const otherReceiver = receiverWith({ resolved_state: 3, ...notes });
    await otherReceiver.close(endMessage(), await openIncident(), never());
    expect(onlyRecord().fields.state).toBe("3");
    expect(onlyRecord().fields.close_notes).toMatch(/^Closed by the building\.\nResolved\nEnded: /);
    expect(onlyRecord().fields).not.toHaveProperty("close_code");
  });

  test("names the fields that a data policy requires", async () => {
    const incompleteReceiver = receiverWith({ close_code: undefined });
    const closing = incompleteReceiver.close(endMessage(), await openIncident(), never());
    const expected = { kind: "config", reason: "validation", field: "fields", hint: /close_code/ };
    await expectFailure(closing, expected, "mandatory: close_code");
  });
});

test("servicenow: when an alarm returns, the receiver reports an incident in the state Closed as gone", async () => {
  const closed = (await receiver.close(endMessage(), await openIncident(), never())) as IncidentReference;
  onlyRecord().fields.state = "7";
  expect(await receiver.update(alarmMessage({ change: "retriggered" }), closed, never())).toBe("gone");
});

describe("servicenow: search for an incident", () => {
  test("reports a table without correlation_id as a configuration error", async () => {
    await openIncident(gatewayMessage(2));
    server.columns.delete("correlation_id");
    for (const failingCall of [() => find(0), () => receiver.probe(never())])
      await expectFailure(failingCall(), { kind: "config", field: "table" });
  });

  test("ignores closed ServiceNow records and records of other incidents", async () => {
    await openIncident();
    onlyRecord().fields.state = "7";
    await openIncident(gatewayMessage(2));
    expect(await find(0)).toBeNull();
  });
});

describe("servicenow: error responses", () => {
  test("reports a rejection with the text of the business rule that aborted the incident", async () => {
    server.ruleRefuses = true;
    await expectFailure(openIncident(), { kind: "rejected", message: /aborted by Business Rule/ });
  });

  test("reports a missing table as a configuration error", async () => {
    const missingTable = receiverWith({ table: "u_alarm" });
    await expectFailure(missingTable.probe(never()), { kind: "config", field: "table" });
  });

  const error = (message: string, detail: string) => JSON.stringify({ error: { message, detail } });
  test.each([
    [reply(403, error("Operation Failed", "ACL Exception Insert Failed")), { kind: "config", reason: "forbidden" }],
    [reply(404, "<html>Page not found</html>"), { kind: "config", field: "url" }],
    [reply(400, error("Invalid table x", "")), { kind: "config", field: "table" }],
    [{ status: 200, body: "<html>Your instance is hibernating</html>" }, { kind: "retryable" }],
    [{ status: 201, body: '{"result":{"sys_id":"../x"}}' }, { kind: "retryable" }],
    [{ status: 200, body: error("Insert failed", "no") }, { kind: "rejected" }],
  ] as [StubResponse, object][])(
    "reports the matching failure kind when ServiceNow responds to a new incident with %j",
    async (answer, expectedError) => {
      server.stub.respond = () => answer;
      await expectFailure(openIncident(), expectedError);
    },
  );
});
