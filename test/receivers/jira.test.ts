import { beforeEach, describe, expect, test } from "vitest";
import { WIKI_FORMAT } from "#connectors/jira/issue-text.ts";
import type { AlarmReceiver, IncidentReference } from "#connectors/shared/receiver/receiver-interface.ts";
import { clockAt, never } from "../connectors/context.ts";
import type { StubResponse } from "../connectors/stub-server.ts";
import { disposeAfterTest } from "../test-resources.ts";
import { DONE_STATUS, type JiraStub, startJiraStub } from "./jira-stub.ts";
import { expectFailure, loggedContext, onlyOne } from "./receiver-helpers.ts";
import { createReceiver } from "./receivers.ts";
import { alarmMessage, endMessage, HOSTILE_NAMES, namedMessage } from "./sent-samples.ts";

describe.each(["cloud", "data_center"] as const)("jira %s", (deployment) => {
  const clock = clockAt("2026-11-02T06:16:00.000Z");
  let server: JiraStub;
  let receiver: AlarmReceiver;
  const receiverWith = (options: object = {}) =>
    disposeAfterTest(createReceiver("jira", server, loggedContext("jira", [], clock), options));

  beforeEach(async () => {
    server = await startJiraStub({ deployment, now: clock.now });
    receiver = receiverWith();
    return () => server.stop();
  });

  const openIncident = (message = alarmMessage(), by = receiver) => by.open(message, never());
  const onlyIssue = () => onlyOne(server.issues);

  describe("opening an issue", () => {
    test("creates one issue with the label of the incident and returns its key and link", async () => {
      const reference = await openIncident();
      const link = `${server.url}/browse/FM-1`;
      expect(reference).toEqual({ ref: { id: "10001", over: false }, ticket: "FM-1", link });
      expect(onlyIssue().fields).toMatchObject({
        project: { key: "FM" },
        issuetype: { name: "Task" },
        summary: "Supply temperature low, Kvarnholmen 4",
        labels: ["plenum", `plenum-${alarmMessage().key}`],
      });
      expect(onlyIssue().fields).not.toHaveProperty("priority");
      const [, description] = onlyIssue().texts;
      expect(description).toContain("Active");
      expect(description).toMatch(/Since\*?: 2026-11-02 07:15:00 \+01:00/);
      expect(description).toContain("Open in Plenum");
      expect(server.incidents()).toEqual([{ key: alarmMessage().key, isOpen: true, texts: onlyIssue().texts }]);
    });

    test("sets the configured priority, labels, type and fields", async () => {
      server.screen.set("customfield_10042", { name: "Bygg", required: true });
      const configured = receiverWith({
        issue_type: "Feil",
        priority: { A: "Highest" },
        labels: ["bms", "plenum"],
        fields: { customfield_10042: { value: "North" } },
      });
      await openIncident(alarmMessage(), configured);
      await openIncident(alarmMessage({ priority: "B" }), configured);
      const [firstIssue, secondIssue] = server.issues;
      expect(firstIssue?.fields).toMatchObject({
        issuetype: { name: "Feil" },
        priority: { name: "Highest" },
        labels: ["plenum", `plenum-${alarmMessage().key}`, "bms"],
        customfield_10042: { value: "North" },
      });
      expect(secondIssue?.fields).not.toHaveProperty("priority");
    });

    test("contains no markup and only Plenum's own link when names are hostile", async () => {
      for (const name of HOSTILE_NAMES) {
        await openIncident(namedMessage(name));
        const { description } = server.issues.at(-1)?.fields ?? {};
        if (typeof description !== "string") {
          expect(JSON.stringify(description).match(/"type":"link"/g)).toHaveLength(1);
          continue;
        }
        expect(description.match(/\[/g)).toHaveLength(1);
        expect(description).not.toMatch(/[{}!^~?+@<>]|:\/\/evil|\*\*|&(?!#\d+;)/);
        for (const line of description.split("\n")) expect(line).toMatch(/^($|\*[^*]+\*$|\* \*[^*]+\*: |\* |\[Open)/);
      }
    });

    test("cuts a summary to 255 characters", async () => {
      await openIncident(namedMessage("å".repeat(400)));
      expect(onlyIssue().fields.summary).toBe(`${"å".repeat(254)}…`);
    });

    test("shortens every text of a description that is too long", async () => {
      await openIncident(namedMessage("{[]} ".repeat(20_000)));
      const { description } = onlyIssue().fields;
      const size = typeof description === "string" ? description.length : JSON.stringify(description).length;
      expect(size).toBeLessThanOrEqual(32_767);
      expect(size).toBeGreaterThan(8_000);
      expect(onlyIssue().texts[1]).toMatch(/Open in Plenum/);
    });
  });

  test("an update or a closing adds no comment with the option comments: false", async () => {
    const silentReceiver = receiverWith({ comments: false });
    const reference = await openIncident();
    await silentReceiver.update(alarmMessage({ change: "acknowledged" }), reference, never());
    await silentReceiver.close(endMessage(), reference, never());
    expect(onlyIssue().comments).toEqual([]);
    expect(onlyIssue().status).toEqual(DONE_STATUS);
  });

  describe("closing an issue", () => {
    test("uses a transition to a status of the category done, with any name", async () => {
      const reference = await openIncident();
      const ref = { id: "10001", over: true };
      expect(await receiver.close(endMessage(), reference, never())).toEqual({ ...reference, ref });
      expect(onlyIssue().status).toEqual(DONE_STATUS);
      expect(onlyIssue().steps).toEqual([{ transition: { id: "31" } }]);
      expect(onlyIssue().comments).toHaveLength(1);
    });

    test("uses the first name of the option done that is a transition or a status", async () => {
      server.transitions.push(
        { id: "51", name: "Avvis", from: ["Å gjøre"], to: { name: "Avvist", category: "done" } },
        { id: "61", name: "Til kontroll", from: ["Å gjøre"], to: { name: "Kontroll", category: "new" } },
      );
      const reference = await openIncident();
      await receiverWith({ done: ["Finnes ikke", "avvist", "Fullfør"] }).close(endMessage(), reference, never());
      expect(onlyIssue().steps).toEqual([{ transition: { id: "51" } }]);
      const other = await openIncident();
      await receiverWith({ done: ["Til kontroll"] }).close(endMessage(), other, never());
      expect(server.issues[1]?.steps).toEqual([{ transition: { id: "61" } }]);
    });

    test("sends the configured or else the first allowed resolution when Jira requires a resolution", async () => {
      const allowedValues = ["7", "8"].map((id) => ({ id, name: id === "7" ? "Utført" : "Avvist" }));
      const resolution = { required: true, allowedValues };
      server.transitions = [{ id: "31", name: "Fullfør", from: ["Å gjøre"], to: DONE_STATUS, fields: { resolution } }];
      await receiver.close(endMessage(), await openIncident(), never());
      await receiverWith({ resolution: "Avvist" }).close(endMessage(), await openIncident(), never());
      expect(server.issues.map(({ steps }) => steps)).toEqual([
        [{ transition: { id: "31" }, fields: { resolution: { id: "7" } } }],
        [{ transition: { id: "31" }, fields: { resolution: { name: "Avvist" } } }],
      ]);
    });

    test("skips a transition with unknown required fields", async () => {
      const requiredField = { customfield_1: { required: true } };
      server.transitions.unshift({ id: "21", name: "Lukk", from: ["Å gjøre"], to: DONE_STATUS, fields: requiredField });
      await receiver.close(endMessage(), await openIncident(), never());
      expect(onlyIssue().steps).toEqual([{ transition: { id: "31" } }]);
    });
  });

  test("when an alarm returns and its closed issue refuses comments, the incident still counts as open", async () => {
    server.refuseLateComments = true;
    const closed = (await receiver.close(endMessage(), await openIncident(), never())) as IncidentReference;
    const reopened = await receiver.update(alarmMessage({ change: "retriggered" }), closed, never());
    expect(reopened).toMatchObject({ ref: { over: false } });
    expect(onlyIssue().comments).toHaveLength(1);
  });

  describe("error responses", () => {
    test("reports a missing mandatory field as a configuration error with its name", async () => {
      server.screen.set("customfield_10042", { name: "Bygg", required: true });
      const expected = { kind: "config", reason: "validation", field: "fields" };
      await expectFailure(openIncident(), expected, "customfield_10042: Bygg er påkrevd.");
    });

    test.each([
      [{ summary: "too long" }, { kind: "rejected" }],
      [{ project: "valid project is required" }, { kind: "config", field: "project" }],
      [{ issuetype: "The issue type selected is invalid." }, { kind: "config", field: "issue_type" }],
    ])("maps status 400 with the field errors %j to the matching failure kind", async (errors, expectedError) => {
      server.stub.respond = () => ({ status: 400, body: JSON.stringify({ errorMessages: [], errors }) });
      await expectFailure(openIncident(), expectedError);
    });

    test.each([
      [{ status: 409, body: "{}" }, { kind: "retryable" }],
      [{ status: 201, body: `{"id":"../../x","key":"FM-1"}` }, { kind: "retryable" }],
      [{ status: 201, body: `{"id":"1","key":"FM-1/../x?y"}` }, { kind: "retryable" }],
      [{ status: 200, body: `{"errorMessages":["No."],"errors":{}}` }, { kind: "rejected" }],
    ] as [StubResponse, object][])(
      "when Jira responds to a new issue with %j, reports the matching failure kind",
      async (answer, expectedError) => {
        server.stub.respond = () => answer;
        await expectFailure(openIncident(), expectedError);
      },
    );

    test("retries an edit whose response is an HTML page", async () => {
      const reference = await openIncident();
      const { respond } = server.stub;
      server.stub.respond = (seen, response) =>
        seen.method === "PUT" ? { status: 200, body: "<html>Sign in</html>" } : respond(seen, response);
      await expectFailure(receiver.update(alarmMessage(), reference, never()), { kind: "retryable" });
    });
  });

  describe("the probe", () => {
    const probe = (options: object) => receiverWith(options).probe(never());

    test.each([
      [{ project: "XX" }, { kind: "config", field: "project" }],
      [{ issue_type: "Epic" }, { kind: "config", field: "issue_type", hint: "It has Feil, Task." }],
      [{ fields: { customfield_9: 1 } }, { kind: "config", field: "fields", message: /no field customfield_9/ }],
    ])("reports a configuration error for the options %j, unknown to Jira", async (options, expectedError) => {
      await expectFailure(probe(options), expectedError);
    });

    test("names mandatory fields that are not configured", async () => {
      server.screen.set("customfield_10042", { name: "Bygg", required: true });
      server.screen.set("customfield_10043", { name: "Etasje", required: true });
      server.screen.set("customfield_10044", { name: "Sone", required: true, hasDefaultValue: true });
      const expected = { kind: "config", reason: "validation", field: "fields" };
      const incompleteProbe = probe({ fields: { customfield_10043: "2" } });
      const text = await expectFailure(incompleteProbe, expected, "Bygg (customfield_10042)");
      expect(text).not.toMatch(/Etasje|Sone|reporter/);
      await probe({ fields: { customfield_10042: "N", customfield_10043: "2" } });
    });
  });
});

test("jira: wiki text escapes markup and keeps names searchable", () => {
  const description = WIKI_FORMAT.render({
    status: "Active",
    fields: [{ label: "Site", text: "VS1-GT11_a -gone- _it_\nh1. [~ola]" }],
    list: ["- one | two"],
    timeSeriesLines: ["[~ola] &#1; {noformat} VS1 ▁\u00a0█"],
    linkText: "Open",
    href: "https://plenum.example.com/?a=[b]|c",
  });
  expect(description).toBe(
    [
      "*Active*",
      "* *Site*: VS1-GT11_a &#45;gone&#45; &#95;it&#95;\\\\h1. &#91;&#126;ola&#93;",
      "",
      "* &#45; one &#124; two",
      "",
      "{noformat}",
      "[ ~ola] &#1; { noformat} VS1 ▁\u00a0█",
      "{noformat}",
      "",
      "[Open|https://plenum.example.com/?a=%5Bb%5D%7Cc]",
    ].join("\n"),
  );
});
