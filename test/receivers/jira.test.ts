import { Writable } from "node:stream";
import { inspect } from "node:util";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { WIKI } from "#connectors/jira/body.ts";
import { JiraConfig } from "#connectors/jira/config.ts";
import { createJiraReceiver } from "#connectors/jira/receiver.ts";
import type { IncidentReference, Receiver } from "#connectors/shared/receiver/receiver.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { clockAt, contextFor, never } from "../connectors/context.ts";
import { type StubAnswer, startStub } from "../connectors/stub-server.ts";
import { FERDIG, JIRA_TOKEN, JIRA_USER, type JiraEnd, startJiraEnd } from "./jira-end.ts";
import { gatewayOf, HOSTILE_NAMES, namedOf, resolvedOf, toldOf } from "./told-samples.ts";

const BEGAN = "2026-11-02T06:16:00.000Z";

const KEY = toldOf().key;

/** What people read of an issue whose format is a document. */
const RESOLVED_COMMENT = /Resolved\nEnded: 2026-11-02 07:20:00 \+01:00\nLasted: 5 min\n/;

describe.each(["cloud", "data_center"] as const)("jira %s", (deployment) => {
  let end: JiraEnd;
  let receiver: Receiver;
  const clock = clockAt(BEGAN);
  let lines: string[];

  const receiverWith = (options: Record<string, unknown> = {}) => {
    const made = createJiraReceiver(JiraConfig.parse({ ...end.config, ...options }), {
      ...contextFor("jira", clock),
      log: createLog({
        level: "trace",
        destination: new Writable({
          write(line, _encoding, done) {
            lines.push(String(line));
            done();
          },
        }),
      }),
    });
    onTestFinished(() => made.dispose());
    return made;
  };

  beforeEach(async () => {
    clock.set(BEGAN);
    lines = [];
    end = await startJiraEnd({ deployment, now: () => clock.now(), searchLagMs: 120_000 });
    receiver = receiverWith();
    return () => end.stop();
  });

  const opened = (...[said = toldOf(), by = receiver]: [ReturnType<typeof toldOf>?, Receiver?]) =>
    by.open(said, never());
  const issue = () => {
    const [first] = end.issues;
    if (first === undefined) throw new Error("there is no issue");
    return first;
  };
  const failureOf = (promise: Promise<unknown>) =>
    promise.then(
      () => null,
      (error: unknown) => error,
    );

  describe("open", () => {
    test("creates one issue with our label, and answers what people call it and where it is", async () => {
      const place = await opened();
      expect(place).toEqual({ ref: { id: "10001", over: false }, ticket: "FM-1", link: `${end.url}/browse/FM-1` });
      expect(issue().fields).toMatchObject({
        project: { key: "FM" },
        issuetype: { name: "Task" },
        summary: "Supply temperature low, Kvarnholmen 4",
        labels: ["plenum", `plenum-${KEY}`],
      });
      expect(issue().fields).not.toHaveProperty("priority");
      const [, description] = issue().texts;
      expect(description).toContain("Active");
      expect(description).toMatch(/Since\*?: 2026-11-02 07:15:00 \+01:00/);
      expect(description).toContain("Open in Plenum");
      expect(end.things()).toEqual([{ key: KEY, isOpen: true, texts: issue().texts }]);
    });

    test("priority, labels, type and further fields are as configured", async () => {
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
        labels: ["plenum", `plenum-${KEY}`, "bms"],
        customfield_10042: { value: "North" },
      });
      expect(second?.fields).not.toHaveProperty("priority");
    });

    test.each(HOSTILE_NAMES.entries().toArray())("hostile name %i is shown and never carried out", async (_, name) => {
      const place = await opened(namedOf(name));
      const { summary, description } = issue().fields as { summary: string; description: unknown };
      expect(summary).not.toMatch(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/u);
      expect(summary.length).toBeLessThanOrEqual(255);
      expect(JSON.stringify(description)).not.toMatch(/[\u202a-\u202e\u2066-\u2069]|\\u001b/u);
      // Only our own link is one.
      if (deployment === "cloud") {
        expect(JSON.stringify(description).match(/"type":"link"/g)).toHaveLength(1);
      } else {
        const text = description as string;
        expect(text.match(/\[/g)).toHaveLength(1);
        expect(text).not.toMatch(/[{}!^~?+@<>]|:\/\/evil|\*\*|&(?!#\d+;)/);
        for (const line of text.split("\n")) expect(line).toMatch(/^($|\*[^*]+\*$|\* \*[^*]+\*: |\* |\[Open)/);
      }
      await receiver.update(namedOf(name, { change: "acknowledged" }), place, never());
      expect(end.issues[0]?.comments).toHaveLength(1);
    });

    test("a summary is cut between characters, at 255 units", async () => {
      await opened(namedOf("👩‍👩‍👧‍👦".repeat(200)));
      expect(issue().fields.summary).toMatch(/^(👩‍👩‍👧‍👦)+…$/u);
      await opened(namedOf("å".repeat(400)));
      expect(end.issues[1]?.fields.summary).toBe(`${"å".repeat(254)}…`);
    });

    test("a description that would be too long is shortened everywhere, not cut in the middle", async () => {
      await opened(namedOf("{[]} ".repeat(20_000)));
      const { description } = issue().fields;
      const size = typeof description === "string" ? description.length : JSON.stringify(description).length;
      expect(size).toBeLessThanOrEqual(32_767);
      expect(size).toBeGreaterThan(8_000);
      expect(issue().texts[1]).toMatch(/Open in Plenum/);
    });

    test("a list of what is behind a gateway is shown", async () => {
      await opened(gatewayOf(12));
      expect(issue().fields.summary).toBe("Gateway Basement gateway is offline: 12 of 30 alarms active");
      expect(issue().texts[1]).toContain("Supply temperature low 19");
      expect(issue().texts[1]).toContain("and 10 more");
    });

    test("without an address of the status page there is no link", async () => {
      await opened(toldOf({ link: null }));
      expect(issue().texts[1]).not.toContain("Open in Plenum");
    });
  });

  describe("update", () => {
    test("edits the description and leaves the summary to people", async () => {
      const place = await opened();
      expect(await receiver.update(toldOf({ change: "changed", priority: "B" }), place, never())).toEqual(place);
      expect(issue().comments).toEqual([]);
      const edit = JSON.parse(end.seen.at(-1)?.body.toString() ?? "") as { fields: object };
      expect(Object.keys(edit.fields)).toEqual(["description"]);
      expect(issue().texts.at(-1)).toMatch(/Priority\*?: B/);
    });

    test("the summary of a gateway counts, so it is edited", async () => {
      const place = await opened(gatewayOf(12));
      await receiver.update(gatewayOf(3, { change: "members" }), place, never());
      expect(issue().fields.summary).toContain("3 of 30 alarms active");
      expect(issue().comments).toEqual([]);
    });

    test.each([
      [{ change: "acknowledged", status: "acknowledged" }, /^\*?Acknowledged\*?\n.*Acknowledged by\*?: Ola/s],
      [{ change: "recovering", status: "recovering" }, /^\*?Recovering\*?\n?$/],
      [{ change: "vanished", status: "unknown" }, /State unknown\*?: The service does not show/],
      [{ change: "out-of-scope", status: "unknown" }, /State unknown\*?: The site is out of sight/],
      [{ change: "retriggered", status: "active" }, /^\*?Active\*?\n.*Since\*?: /s],
    ] as const)("a comment says it: %j", async (change, words) => {
      const place = await opened();
      await receiver.update(namedOf("Ola", change), place, never());
      expect(issue().comments).toHaveLength(1);
      expect(issue().texts.at(-1)).toMatch(words);
    });

    test.each(["raised", "changed", "members", "unacknowledged"] as const)("no comment says %s", async (change) => {
      const place = await opened();
      await receiver.update(toldOf({ change }), place, never());
      expect(issue().comments).toEqual([]);
    });

    test("with `comments: false` none is written", async () => {
      const silent = receiverWith({ comments: false });
      const place = await opened();
      await silent.update(toldOf({ change: "acknowledged" }), place, never());
      await silent.close(resolvedOf(), place, never());
      expect(issue().comments).toEqual([]);
      expect(issue().status).toEqual(FERDIG);
    });

    test("an issue that somebody has closed is left as it is", async () => {
      const place = await opened();
      issue().status = FERDIG;
      const before = structuredClone(issue());
      expect(await receiver.update(toldOf({ change: "acknowledged" }), place, never())).toEqual(place);
      expect(issue()).toEqual(before);
    });

    test("an issue that was deleted is gone", async () => {
      const place = await opened();
      end.issues.pop();
      expect(await receiver.update(toldOf({ change: "changed" }), place, never())).toBe("gone");
      expect(await receiver.close(resolvedOf(), place, never())).toBe("gone");
    });

    test("an issue that we may not see any more is not gone: a person has to act", async () => {
      const place = await opened();
      end.mayBrowse = false;
      for (const failing of [
        () => receiver.update(toldOf({ change: "changed" }), place, never()),
        () => receiver.close(resolvedOf(), place, never()),
        () => receiver.find?.(toldOf(), clock.now(), never()) ?? Promise.resolve(),
      ]) {
        for (end.hidesSilently of [false, true]) {
          expect(await failureOf(failing())).toMatchObject({ kind: "config", reason: "forbidden", field: "project" });
        }
      }
    });

    test("a page for a wrong address is not an issue that is gone", async () => {
      const place = await opened();
      end.instead = () => ({ status: 404, body: "<html>Not here</html>" });
      expect(await failureOf(receiver.update(toldOf(), place, never()))).toMatchObject({
        kind: "config",
        field: "url",
      });
    });
  });

  describe("close", () => {
    test("by a transition to a status of the category done, whatever it is called there", async () => {
      const place = await opened();
      expect(await receiver.close(resolvedOf(), place, never())).toEqual({
        ...place,
        ref: { id: "10001", over: true },
      });
      expect(issue().status).toEqual(FERDIG);
      expect(issue().steps).toEqual([{ transition: { id: "31" } }]);
      expect(issue().comments).toHaveLength(1);
      expect(issue().texts.at(-1)?.replaceAll("*", "").replaceAll(/^ /gm, "")).toMatch(
        deployment === "cloud" ? RESOLVED_COMMENT : /Resolved\nEnded: .*\nLasted: 5 min/,
      );
      expect(lines).toEqual([]);
    });

    test("by the name of a transition or of a status, in the order of `done`", async () => {
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

    test("a resolution that is asked for is the configured one, or the first", async () => {
      const resolution = {
        required: true,
        allowedValues: [
          { id: "7", name: "Utført" },
          { id: "8", name: "Avvist" },
        ],
      };
      end.transitions = [{ id: "31", name: "Fullfør", from: ["Å gjøre"], to: FERDIG, fields: { resolution } }];
      await receiver.close(resolvedOf(), await opened(), never());
      await receiverWith({ resolution: "Avvist" }).close(resolvedOf(), await opened(), never());
      expect(end.issues.map(({ steps }) => steps)).toEqual([
        [{ transition: { id: "31" }, fields: { resolution: { id: "7" } } }],
        [{ transition: { id: "31" }, fields: { resolution: { name: "Avvist" } } }],
      ]);
    });

    test("a transition that asks for what we do not know is passed over", async () => {
      const asks = { customfield_1: { required: true } };
      end.transitions.unshift({ id: "21", name: "Lukk", from: ["Å gjøre"], to: FERDIG, fields: asks });
      await receiver.close(resolvedOf(), await opened(), never());
      expect(issue().steps).toEqual([{ transition: { id: "31" } }]);
    });

    test.each([
      ["none is offered", () => ({ transitions: [] })],
      ["the workflow refuses it", () => ({ refuseTransitions: true })],
    ])("where %s, the issue stays open with a comment, and the log says so once", async (_, change) => {
      Object.assign(end, change());
      for (const _again of [1, 2]) {
        const place = await opened();
        expect(await receiver.close(resolvedOf(), place, never())).toMatchObject({ ref: { over: true } });
      }
      expect(end.issues.map(({ comments, status }) => [comments.length, status.category])).toEqual([
        [1, "new"],
        [1, "new"],
      ]);
      expect(lines).toHaveLength(1);
      expect(JSON.parse(lines[0] ?? "")).toMatchObject({ ticket: "FM-1", project: "FM" });
      expect(lines[0]).toContain("stays open although its alarm is over");
    });

    test("an issue that somebody has closed already is left", async () => {
      const place = await opened();
      issue().status = FERDIG;
      expect(await receiver.close(resolvedOf(), place, never())).toEqual({
        ...place,
        ref: { id: "10001", over: true },
      });
      expect(issue()).toMatchObject({ comments: [], steps: [] });
    });
  });

  describe("an alarm that comes back", () => {
    test("opens what we closed, by the configured transition, whatever the last word was", async () => {
      const reopening = receiverWith({ reopen: "åpne igjen" });
      const closed = await reopening.close(resolvedOf(), await opened(), never());
      if (closed === "gone") throw new Error("gone");
      // It came back and was acknowledged before anybody was told.
      const place = await reopening.update(toldOf({ change: "acknowledged", status: "acknowledged" }), closed, never());
      expect(issue().status.category).toBe("new");
      expect(place).toMatchObject({ ref: { id: "10001", over: false } });
      expect(issue().comments).toHaveLength(2);
      expect(issue().texts.at(-1)).toContain("Since");
    });

    test("opens what was closed before its end, or by us with a lost answer, too", async () => {
      const reopening = receiverWith({ reopen: "Åpne igjen" });
      const place = await opened();
      issue().status = FERDIG;
      const closed = (await reopening.close(resolvedOf(), place, never())) as IncidentReference;
      await reopening.update(toldOf({ change: "acknowledged", status: "acknowledged" }), closed, never());
      expect(issue().status.category).toBe("new");
    });

    test("a closed issue that takes no comments stops nothing", async () => {
      end.refuseLateComments = true;
      const closed = (await receiver.close(resolvedOf(), await opened(), never())) as IncidentReference;
      expect(await receiver.update(toldOf({ change: "retriggered" }), closed, never())).toMatchObject({
        ref: { over: false },
      });
      expect(issue().comments).toHaveLength(1);
    });

    test("says so in an issue that could not be closed", async () => {
      end.transitions = [];
      const closed = (await receiver.close(resolvedOf(), await opened(), never())) as IncidentReference;
      await receiver.update(toldOf({ change: "changed" }), closed, never());
      expect(issue().texts.at(-1)).toContain("Since");
      expect(issue().comments).toHaveLength(2);
    });

    test("opens what somebody closed, when it is retriggered", async () => {
      const place = await opened();
      issue().status = FERDIG;
      await receiverWith({ reopen: "Å gjøre" }).update(toldOf({ change: "retriggered" }), place, never());
      expect(issue().status.category).toBe("new");
    });

    test("without such a transition the issue stays closed and gets a comment, once", async () => {
      const place = await opened();
      const closed = (await receiver.close(resolvedOf(), place, never())) as IncidentReference;
      const back = (await receiver.update(toldOf({ change: "retriggered" }), closed, never())) as IncidentReference;
      expect(issue().status).toEqual(FERDIG);
      expect(issue().comments).toHaveLength(2);
      expect(await receiver.update(toldOf({ change: "changed" }), back, never())).toEqual(back);
      expect(issue().comments).toHaveLength(2);
      expect(lines.filter((line) => line.includes("stays closed"))).toHaveLength(1);
    });
  });

  describe("find", () => {
    const find = (sinceMs: number, said = toldOf()) => {
      if (receiver.find === undefined) throw new Error("no find");
      return receiver.find(said, sinceMs, never());
    };

    test("an opening whose answer was lost is found once the search shows it, and not made again", async () => {
      const sinceMs = clock.now();
      end.loseAnswers(1);
      expect(await failureOf(opened())).toMatchObject({ kind: "retryable" });
      expect(end.issues).toHaveLength(1);
      expect(await find(sinceMs)).toEqual({ againInMs: 60_000 });
      clock.set("2026-11-02T06:18:00.000Z");
      expect(await find(sinceMs)).toEqual({
        ref: { id: "10001", over: false },
        ticket: "FM-1",
        link: `${end.url}/browse/FM-1`,
      });
    });

    test("where nothing was made, that is sure only after a while", async () => {
      const sinceMs = clock.now();
      const settledMs = deployment === "cloud" ? 300_000 : 60_000;
      clock.set(new Date(sinceMs + settledMs - 10_000).toISOString());
      expect(await find(sinceMs)).toEqual({ againInMs: 10_000 });
      clock.set(new Date(sinceMs + settledMs).toISOString());
      expect(await find(sinceMs)).toBeNull();
      // Our clock was an hour fast when it began.
      expect(await find(sinceMs + 3_600_000)).toBeNull();
    });

    test("of two the oldest is taken, and the other says so", async () => {
      await opened();
      await opened();
      await opened();
      end.issues.reverse();
      const [third, second, first] = end.issues;
      if (third === undefined) throw new Error("too few");
      third.status = FERDIG;
      clock.set("2026-11-02T06:30:00.000Z");
      expect(await find(clock.now())).toMatchObject({ ticket: "FM-1" });
      expect([third.comments.length, second?.comments.length, first?.comments.length]).toEqual([0, 1, 0]);
      expect(second?.texts.at(-1)).toContain("Duplicate of FM-1");
      expect(JSON.parse(lines[0] ?? "")).toMatchObject({ ticket: "FM-1", duplicates: ["FM-2"] });
    });

    test("the issue of another alarm is not taken", async () => {
      await opened(gatewayOf(2));
      clock.set("2026-11-02T06:30:00.000Z");
      expect(await find(Date.parse(BEGAN))).toBeNull();
    });
  });

  describe("failures", () => {
    test("429 says how long, and that it was not carried out", async () => {
      end.tellToWait(1);
      expect(await failureOf(opened())).toMatchObject({ kind: "throttled", retryAfterMs: 7_000, scope: "allowance" });
      expect(end.issues).toEqual([]);
    });

    test("a wrong or expired token is one of settings, wherever it shows", async () => {
      const place = await opened();
      end.token = "another token";
      for (const failing of [
        () => opened(),
        () => receiver.update(toldOf(), place, never()),
        () => receiver.close(resolvedOf(), place, never()),
        () => receiver.find?.(toldOf(), 0, never()) ?? Promise.resolve(),
        () => receiver.probe(never()),
      ]) {
        expect(await failureOf(failing())).toMatchObject({ kind: "config", reason: "unauthenticated" });
      }
    });

    test("a mandatory field is one of settings, and is named", async () => {
      end.screen.set("customfield_10042", { name: "Bygg", required: true });
      const failure = await failureOf(opened());
      expect(failure).toMatchObject({ kind: "config", reason: "validation", field: "fields" });
      expect(String(failure)).toContain("customfield_10042: Bygg er påkrevd.");
    });

    test.each([
      [{ summary: "too long" }, { kind: "rejected" }],
      [{ description: "INVALID_INPUT" }, { kind: "rejected" }],
      [{ project: "valid project is required" }, { kind: "config", field: "project" }],
      [{ issuetype: "The issue type selected is invalid." }, { kind: "config", field: "issue_type" }],
      [
        { priority: "x", summary: "y" },
        { kind: "config", field: "fields" },
      ],
    ])("400 about %j", async (errors, meaning) => {
      end.instead = () => ({ status: 400, body: JSON.stringify({ errorMessages: [], errors }) });
      expect(await failureOf(opened())).toMatchObject(meaning);
    });

    test.each([
      [
        { status: 302, headers: { location: "https://evil.example/" } },
        { kind: "config", field: "url" },
      ],
      [
        { status: 403, body: "{}" },
        { kind: "config", reason: "forbidden" },
      ],
      [{ status: 409, body: "{}" }, { kind: "retryable" }],
      [{ status: 413, body: "" }, { kind: "rejected" }],
      [{ status: 500, body: "oops" }, { kind: "retryable" }],
      [
        { status: 503, headers: { "retry-after": "3" } },
        { kind: "throttled", scope: "everything", retryAfterMs: 3_000 },
      ],
      [{ status: 200, body: "<html>Sign in</html>" }, { kind: "retryable" }],
      [{ status: 201, body: "{}" }, { kind: "retryable" }],
      [{ status: 201, body: `{"id":"../../x","key":"FM-1"}` }, { kind: "retryable" }],
      [{ status: 201, body: `{"id":"1","key":"FM-1/../x?y"}` }, { kind: "retryable" }],
      [{ status: 201, body: "x".repeat(1_000_000) }, { kind: "retryable" }],
      [{ status: 200, body: `{"errorMessages":["No."],"errors":{}}` }, { kind: "rejected" }],
    ] as [StubAnswer, object][])("an answer to an opening: %#", async (answer, meaning) => {
      end.instead = () => answer;
      expect(await failureOf(opened())).toMatchObject(meaning);
    });

    test("a page of a gatekeeper is not taken for an edit that was carried out", async () => {
      const place = await opened();
      end.instead = ({ method }) => (method === "PUT" ? { status: 200, body: "<html>Sign in</html>" } : null);
      expect(await failureOf(receiver.update(toldOf(), place, never()))).toMatchObject({ kind: "retryable" });
    });

    test("an abort ends it with the signal's own reason", async () => {
      const stub = await startStub();
      onTestFinished(() => stub.stop());
      const stop = new AbortController();
      const reason = new Error("stopping");
      stub.answer = () => {
        stop.abort(reason);
        return null;
      };
      const stuck = receiverWith({ url: stub.url });
      expect(await failureOf(stuck.open(toldOf(), stop.signal))).toBe(reason);
    });

    test("no secret is in a failure or in the log, even where Jira repeats it", async () => {
      const place = await opened();
      const basic = Buffer.from(`${JIRA_USER}:${JIRA_TOKEN}`).toString("base64");
      const echo = JSON.stringify({ errorMessages: [`${JIRA_TOKEN} ${basic}`], errors: {} });
      for (const status of [200, 302, 400, 401, 403, 404, 409, 429, 500, 503]) {
        end.instead = () => ({ status, body: echo });
        const failures = [
          await failureOf(opened()),
          await failureOf(receiver.update(toldOf(), place, never())),
          await failureOf(receiver.probe(never())),
        ];
        const shown = inspect(failures, { depth: 9 }) + lines.join();
        expect(shown).not.toContain(JIRA_TOKEN);
        expect(shown).not.toContain(JIRA_TOKEN.slice(5, 25));
        expect(shown).not.toContain(basic.slice(0, 40));
      }
      expect(JSON.stringify(place)).not.toContain(JIRA_TOKEN);
    });
  });

  describe("probe", () => {
    const probe = (options: Record<string, unknown> = {}) => failureOf(receiverWith(options).probe(never()));

    test("passes where all is right, and creates nothing", async () => {
      expect(await probe({ priority: { A: "Highest" }, issue_type: "task" })).toBeNull();
      expect(end.issues).toEqual([]);
      expect(end.seen.every(({ method }) => method === "GET")).toBe(true);
    });

    test.each([
      [{ project: "XX" }, { kind: "config", field: "project" }],
      [{ issue_type: "Epic" }, { kind: "config", field: "issue_type", hint: "It has Feil, Task." }],
      [{ fields: { customfield_9: 1 } }, { kind: "config", field: "fields", message: /no field customfield_9/ }],
    ])("complains of %j", async (options, { message, ...meaning }: Record<string, unknown>) => {
      const failure = await probe(options);
      expect(failure).toMatchObject(meaning);
      expect(String(failure)).toMatch((message as RegExp | undefined) ?? /./);
    });

    test("names the mandatory fields that nobody fills", async () => {
      end.screen.set("customfield_10042", { name: "Bygg", required: true });
      end.screen.set("customfield_10043", { name: "Etasje", required: true });
      end.screen.set("customfield_10044", { name: "Sone", required: true, hasDefaultValue: true });
      const failure = await probe({ fields: { customfield_10043: "2" } });
      expect(failure).toMatchObject({ kind: "config", reason: "validation", field: "fields" });
      expect(String(failure)).toContain("Bygg (customfield_10042)");
      expect(String(failure)).not.toMatch(/Etasje|Sone|reporter/);
      expect(await probe({ fields: { customfield_10042: "N", customfield_10043: "2" } })).toBeNull();
    });
  });
});

test("jira: wiki text keeps a word that can be searched for, and no sign that means something", () => {
  const description = WIKI.render({
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

test("jira: the same far end has the same name, with or without a slash in the end", async () => {
  const config = (url: string) =>
    JiraConfig.parse({ url, user: "a@example.com", token: { env: "NONE" }, project: "FM" });
  const farEnd = (url: string) => createJiraReceiver(config(url), contextFor("jira")).farEnd;
  expect(farEnd("https://a.example.com/jira/")).toBe(farEnd("https://a.example.com/jira"));
  expect(farEnd("https://a.example.com/jira")).not.toBe(farEnd("https://b.example.com/jira"));
});
