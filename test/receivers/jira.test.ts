import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { WIKI_FORMAT } from "#connectors/jira/body.ts";
import type { IncidentReference, Receiver } from "#connectors/shared/receiver/receiver.ts";
import { clockAt, never } from "../connectors/context.ts";
import type { StubAnswer } from "../connectors/stub-server.ts";
import { FERDIG, type JiraEnd, startJiraEnd } from "./jira-stub.ts";
import { expectFailure, failureOf, loggedContext } from "./receiver-helpers.ts";
import { receiverOf } from "./receivers.ts";
import { HOSTILE_NAMES, namedOf, resolvedOf, toldOf } from "./sent-samples.ts";

describe.each(["cloud", "data_center"] as const)("jira %s", (deployment) => {
  const clock = clockAt("2026-11-02T06:16:00.000Z");
  let end: JiraEnd;
  let receiver: Receiver;

  const receiverWith = (options: object = {}) => {
    const made = receiverOf("jira", end, loggedContext("jira", [], clock), options);
    onTestFinished(() => made.dispose());
    return made;
  };

  beforeEach(async () => {
    end = await startJiraEnd({ deployment, now: clock.now });
    receiver = receiverWith();
    return () => end.stop();
  });

  const opened = (message = toldOf(), by = receiver) => by.open(message, never());
  const issue = () => {
    const [first] = end.issues;
    if (first === undefined) throw new Error("there is no issue");
    return first;
  };
  describe("opening an issue", () => {
    test("creates one issue with the label of the incident and returns its key and link", async () => {
      const place = await opened();
      expect(place).toEqual({ ref: { id: "10001", over: false }, ticket: "FM-1", link: `${end.url}/browse/FM-1` });
      expect(issue().fields).toMatchObject({
        project: { key: "FM" },
        issuetype: { name: "Task" },
        summary: "Supply temperature low, Kvarnholmen 4",
        labels: ["plenum", `plenum-${toldOf().key}`],
      });
      expect(issue().fields).not.toHaveProperty("priority");
      const [, description] = issue().texts;
      expect(description).toContain("Active");
      expect(description).toMatch(/Since\*?: 2026-11-02 07:15:00 \+01:00/);
      expect(description).toContain("Open in Plenum");
      expect(end.things()).toEqual([{ key: toldOf().key, isOpen: true, texts: issue().texts }]);
    });

    test("sets the configured priority, labels, type and fields", async () => {
      end.screen.set("customfield_10042", { name: "Bygg", required: true });
      const configured = receiverWith({
        issue_type: "Feil",
        priority: { A: "Highest" },
        labels: ["bms", "plenum"],
        fields: { customfield_10042: { value: "North" } },
      });
      await opened(toldOf(), configured);
      await opened(toldOf({ priority: "B" }), configured);
      const [first, second] = end.issues;
      expect(first?.fields).toMatchObject({
        issuetype: { name: "Feil" },
        priority: { name: "Highest" },
        labels: ["plenum", `plenum-${toldOf().key}`, "bms"],
        customfield_10042: { value: "North" },
      });
      expect(second?.fields).not.toHaveProperty("priority");
    });

    test("has no links but its own and no markup for any names", async () => {
      for (const name of HOSTILE_NAMES) {
        await opened(namedOf(name));
        const { description } = end.issues.at(-1)?.fields ?? {};
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
      await opened(namedOf("å".repeat(400)));
      expect(issue().fields.summary).toBe(`${"å".repeat(254)}…`);
    });

    test("shortens every text of a description that is too long", async () => {
      await opened(namedOf("{[]} ".repeat(20_000)));
      const { description } = issue().fields;
      const size = typeof description === "string" ? description.length : JSON.stringify(description).length;
      expect(size).toBeLessThanOrEqual(32_767);
      expect(size).toBeGreaterThan(8_000);
      expect(issue().texts[1]).toMatch(/Open in Plenum/);
    });
  });

  describe("updating an issue", () => {
    test("adds no comment with the option comments: false", async () => {
      const silent = receiverWith({ comments: false });
      const place = await opened();
      await silent.update(toldOf({ change: "acknowledged" }), place, never());
      await silent.close(resolvedOf(), place, never());
      expect(issue().comments).toEqual([]);
      expect(issue().status).toEqual(FERDIG);
    });
  });

  describe("closing an issue", () => {
    test("uses a transition to a status of the category done, with any name", async () => {
      const place = await opened();
      const ref = { id: "10001", over: true };
      expect(await receiver.close(resolvedOf(), place, never())).toEqual({ ...place, ref });
      expect(issue().status).toEqual(FERDIG);
      expect(issue().steps).toEqual([{ transition: { id: "31" } }]);
      expect(issue().comments).toHaveLength(1);
    });

    test("uses the first name of the option done that is a transition or a status", async () => {
      end.transitions.push(
        { id: "51", name: "Avvis", from: ["Å gjøre"], to: { name: "Avvist", category: "done" } },
        { id: "61", name: "Til kontroll", from: ["Å gjøre"], to: { name: "Kontroll", category: "new" } },
      );
      const place = await opened();
      await receiverWith({ done: ["Finnes ikke", "avvist", "Fullfør"] }).close(resolvedOf(), place, never());
      expect(issue().steps).toEqual([{ transition: { id: "51" } }]);
      const other = await opened();
      await receiverWith({ done: ["Til kontroll"] }).close(resolvedOf(), other, never());
      expect(end.issues[1]?.steps).toEqual([{ transition: { id: "61" } }]);
    });

    test("sends the configured resolution, or the first one, when it is required", async () => {
      const allowedValues = ["7", "8"].map((id) => ({ id, name: id === "7" ? "Utført" : "Avvist" }));
      const resolution = { required: true, allowedValues };
      end.transitions = [{ id: "31", name: "Fullfør", from: ["Å gjøre"], to: FERDIG, fields: { resolution } }];
      await receiver.close(resolvedOf(), await opened(), never());
      await receiverWith({ resolution: "Avvist" }).close(resolvedOf(), await opened(), never());
      expect(end.issues.map(({ steps }) => steps)).toEqual([
        [{ transition: { id: "31" }, fields: { resolution: { id: "7" } } }],
        [{ transition: { id: "31" }, fields: { resolution: { name: "Avvist" } } }],
      ]);
    });

    test("skips a transition with unknown required fields", async () => {
      const asks = { customfield_1: { required: true } };
      end.transitions.unshift({ id: "21", name: "Lukk", from: ["Å gjøre"], to: FERDIG, fields: asks });
      await receiver.close(resolvedOf(), await opened(), never());
      expect(issue().steps).toEqual([{ transition: { id: "31" } }]);
    });
  });

  describe("an alarm that returns", () => {
    test("counts as open again when its closed issue refuses comments", async () => {
      end.refuseLateComments = true;
      const closed = (await receiver.close(resolvedOf(), await opened(), never())) as IncidentReference;
      const reopened = await receiver.update(toldOf({ change: "retriggered" }), closed, never());
      expect(reopened).toMatchObject({ ref: { over: false } });
      expect(issue().comments).toHaveLength(1);
    });

    test("adds a comment to an issue that could not be closed", async () => {
      end.transitions = [];
      const closed = (await receiver.close(resolvedOf(), await opened(), never())) as IncidentReference;
      await receiver.update(toldOf({ change: "changed" }), closed, never());
      expect(issue().texts.at(-1)).toContain("Since");
      expect(issue().comments).toHaveLength(2);
    });
  });

  describe("error responses", () => {
    test("reports a missing mandatory field as a configuration error with its name", async () => {
      end.screen.set("customfield_10042", { name: "Bygg", required: true });
      const failure = await failureOf(opened());
      expect(failure).toMatchObject({ kind: "config", reason: "validation", field: "fields" });
      expect(String(failure)).toContain("customfield_10042: Bygg er påkrevd.");
    });

    test.each([
      [{ summary: "too long" }, { kind: "rejected" }],
      [{ project: "valid project is required" }, { kind: "config", field: "project" }],
      [{ issuetype: "The issue type selected is invalid." }, { kind: "config", field: "issue_type" }],
    ])("maps status 400 with the errors %j", async (errors, meaning) => {
      end.stub.answer = () => ({ status: 400, body: JSON.stringify({ errorMessages: [], errors }) });
      await expectFailure(opened(), meaning);
    });

    test.each([
      [{ status: 409, body: "{}" }, { kind: "retryable" }],
      [{ status: 201, body: `{"id":"../../x","key":"FM-1"}` }, { kind: "retryable" }],
      [{ status: 201, body: `{"id":"1","key":"FM-1/../x?y"}` }, { kind: "retryable" }],
      [{ status: 200, body: `{"errorMessages":["No."],"errors":{}}` }, { kind: "rejected" }],
    ] as [StubAnswer, object][])(
      "maps the response %j to the opening of an issue to its error",
      async (answer, meaning) => {
        end.stub.answer = () => answer;
        await expectFailure(opened(), { ...meaning });
      },
    );

    test("retries an edit whose response is an HTML page", async () => {
      const place = await opened();
      const { answer } = end.stub;
      end.stub.answer = (seen, response) =>
        seen.method === "PUT" ? { status: 200, body: "<html>Sign in</html>" } : answer(seen, response);
      await expectFailure(receiver.update(toldOf(), place, never()), { kind: "retryable" });
    });
  });

  describe("the probe", () => {
    const probe = (options: object) => receiverWith(options).probe(never());

    test.each([
      [{ project: "XX" }, { kind: "config", field: "project" }],
      [{ issue_type: "Epic" }, { kind: "config", field: "issue_type", hint: "It has Feil, Task." }],
      [{ fields: { customfield_9: 1 } }, { kind: "config", field: "fields", message: /no field customfield_9/ }],
    ])("reports a configuration error for %j", async (options, meaning: Record<string, unknown>) => {
      await expectFailure(probe(options), meaning);
    });

    test("names mandatory fields that are not configured", async () => {
      end.screen.set("customfield_10042", { name: "Bygg", required: true });
      end.screen.set("customfield_10043", { name: "Etasje", required: true });
      end.screen.set("customfield_10044", { name: "Sone", required: true, hasDefaultValue: true });
      const failure = await failureOf(probe({ fields: { customfield_10043: "2" } }));
      expect(failure).toMatchObject({ kind: "config", reason: "validation", field: "fields" });
      expect(String(failure)).toContain("Bygg (customfield_10042)");
      expect(String(failure)).not.toMatch(/Etasje|Sone|reporter/);
      await probe({ fields: { customfield_10042: "N", customfield_10043: "2" } });
    });
  });
});

test("jira: wiki text escapes markup and keeps names searchable", () => {
  const description = WIKI_FORMAT.render({
    status: "Active",
    fields: [{ label: "Site", text: "VS1-GT11_a -gone- _it_\nh1. [~ola]" }],
    list: ["- one | two"],
    curves: ["[~ola] &#1; {noformat} VS1 ▁\u00a0█"],
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
