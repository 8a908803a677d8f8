import { beforeEach, describe, expect, test } from "vitest";
import type { AlarmReceiver, IncidentReference } from "#connectors/shared/receiver/receiver-interface.ts";
import { clockAt, never } from "../connectors/context.ts";
import { disposeAfterTest } from "../test-resources.ts";
import { DONE_STATUS, type JiraStub, startJiraStub } from "./jira-stub.ts";
import { expectFailure, loggedContext, onlyOne } from "./receiver-helpers.ts";
import { createReceiver } from "./receivers.ts";
import { alarmMessage, endMessage, gatewayMessage, namedMessage } from "./sent-samples.ts";
import { type ServiceNowStub, startServiceNowStub } from "./servicenow-stub.ts";

const BEGIN_TIME = "2026-11-02T06:16:00.000Z";

const removeMarkup = (text: string) => text.replaceAll("*", "").replaceAll(/^ /gm, "").trim();

function wrapJira(server: JiraStub) {
  return {
    server,
    tickets: () =>
      server.issues.map(({ comments, fields, status, texts }) => ({
        title: fields.summary as string,
        description: texts.filter((text) => !comments.includes(text)).at(-1) ?? "",
        notes: comments.map(removeMarkup),
        isOpen: status.category !== "done",
      })),
    closeByHand(n: number) {
      const issue = server.issues[n];
      if (issue !== undefined) issue.status = DONE_STATUS;
    },
    forbidReading: () => Object.assign(server, { mayBrowse: false }),
    changeSecret: () => Object.assign(server, { token: "another token" }),
    refuseClosing: () => Object.assign(server, { transitions: [] }),
  };
}

function wrapServiceNow(server: ServiceNowStub) {
  return {
    server,
    tickets: () =>
      server.records.map(({ fields, notes }) => ({
        title: fields.short_description ?? "",
        description: fields.description ?? "",
        notes: [...notes, ...(fields.close_notes === undefined ? [] : [fields.close_notes])],
        isOpen: !["6", "7", "8"].includes(fields.state ?? ""),
      })),
    closeByHand(n: number) {
      const record = server.records[n];
      if (record !== undefined) record.fields.state = "6";
    },
    forbidReading: () => Object.assign(server, { mayRead: false }),
    changeSecret: () => Object.assign(server, { password: "another password" }),
    refuseClosing: () => server.readOnly.add("state"),
  };
}

const searchLagMs = 30_000;
const SYSTEMS = [
  {
    connector: "jira",
    ...{ name: "jira cloud", reopen: { reopen: "åpne igjen" }, settledMs: 300_000 },
    start: async (now: () => number) => wrapJira(await startJiraStub({ now, searchLagMs })),
  },
  {
    connector: "jira",
    ...{ name: "jira data center", reopen: { reopen: "Å gjøre" }, settledMs: 60_000 },
    start: async (now: () => number) => wrapJira(await startJiraStub({ deployment: "data_center", now, searchLagMs })),
  },
  {
    connector: "servicenow",
    ...{ name: "servicenow", reopen: { reopen_state: 2 }, settledMs: 60_000 },
    start: async () => wrapServiceNow(await startServiceNowStub()),
  },
] as const;

describe.each(SYSTEMS)("tickets of $name", ({ connector, reopen, settledMs, start }) => {
  const clock = clockAt(BEGIN_TIME);
  let system: ReturnType<typeof wrapJira> | ReturnType<typeof wrapServiceNow>;
  let receiver: AlarmReceiver;
  let lines: string[];

  beforeEach(async () => {
    clock.set(BEGIN_TIME);
    lines = [];
    system = await start(clock.now);
    receiver = receiverWith();
    return () => system.server.stop();
  });

  function receiverWith(options: object = {}): AlarmReceiver {
    return disposeAfterTest(createReceiver(connector, system.server, loggedContext("tickets", lines, clock), options));
  }

  const openIncident = (message = alarmMessage()) => receiver.open(message, never());
  const closeIncident = async (by = receiver) =>
    (await by.close(endMessage(), await openIncident(), never())) as IncidentReference;
  const find = (sinceMs = clock.now(), message = alarmMessage()) => receiver.find?.(message, sinceMs, never());
  const onlyTicket = () => onlyOne<ReturnType<typeof system.tickets>[number]>(system.tickets());

  test("updates the description but not the title, which people may edit", async () => {
    const reference = await openIncident();
    const changed = alarmMessage({ change: "changed", priority: "B" });
    expect(await receiver.update(changed, reference, never())).toEqual(reference);
    const edit = JSON.parse(system.server.stub.seen.at(-1)?.body.toString() ?? "") as { readonly fields?: object };
    expect(Object.keys(edit.fields ?? edit)).toEqual(["description"]);
    expect(removeMarkup(onlyTicket().description)).toMatch(/Priority: B/);
    expect(onlyTicket().notes).toEqual([]);
  });

  test("updates the title of a gateway's ticket, which contains the number of alarms", async () => {
    const reference = await openIncident(gatewayMessage(12));
    await receiver.update(gatewayMessage(3, { change: "members" }), reference, never());
    expect(onlyTicket()).toMatchObject({ title: expect.stringContaining("3 of 30 alarms active"), notes: [] });
  });

  test.each([
    [{ change: "acknowledged", status: "acknowledged" }, "Acknowledged\nAcknowledged by: Ola\nMessage: Ola"],
    [{ change: "recovering", status: "recovering" }, "Recovering"],
    [
      { change: "vanished", status: "unknown" },
      "State unknown\nState unknown: The service does not show the alarm any more and does not say that it is over.",
    ],
    [{ change: "retriggered", status: "active" }, "Active\nSince: 2026-11-02 07:15:00 +01:00"],
  ] as const)("adds a note after the alarm change %j", async (change, note) => {
    await receiver.update(namedMessage("Ola", change), await openIncident(), never());
    expect(onlyTicket().notes).toEqual([note]);
  });

  test.each(["raised", "changed", "members", "unacknowledged"] as const)("adds no note after %s", async (change) => {
    await receiver.update(alarmMessage({ change }), await openIncident(), never());
    expect(onlyTicket().notes).toEqual([]);
  });

  test("closes the ticket with a note and logs nothing", async () => {
    expect((await closeIncident()).ref).toMatchObject({ over: true });
    const note = "Resolved\nEnded: 2026-11-02 07:20:00 +01:00\nLasted: 5 min";
    expect(onlyTicket()).toMatchObject({ isOpen: false, notes: [note] });
    expect(lines).toEqual([]);
  });

  test("does not change a ticket that a person closed", async () => {
    const reference = await openIncident();
    system.closeByHand(0);
    const ticketBefore = onlyTicket();
    expect(await receiver.update(alarmMessage({ change: "acknowledged" }), reference, never())).toEqual(reference);
    expect(await receiver.close(endMessage(), reference, never())).toMatchObject({ ref: { over: true } });
    expect(onlyTicket()).toEqual(ticketBefore);
  });

  test("leaves a ticket open when closing is forbidden, and logs the failure once", async () => {
    system.refuseClosing();
    for (const _twice of [1, 2]) expect(await closeIncident()).toMatchObject({ ref: { over: true } });
    expect(system.tickets().map(({ isOpen, notes }) => [isOpen, notes.length])).toEqual(Array(2).fill([true, 1]));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain("stays open although its alarm is over");
  });

  test("reopens a ticket closed by Plenum at any change of an alarm that is active again", async () => {
    const reopening = receiverWith(reopen);
    const back = alarmMessage({ change: "acknowledged", status: "acknowledged" });
    const reference = await reopening.update(back, await closeIncident(reopening), never());
    expect(reference).toMatchObject({ ref: { over: false } });
    expect(onlyTicket().isOpen).toBe(true);
    expect(onlyTicket().notes.join()).toContain("Since: ");
  });

  test("reopens a ticket closed by a person when the alarm is retriggered or becomes active again after its end", async () => {
    const reopening = receiverWith(reopen);
    const reference = await openIncident();
    system.closeByHand(0);
    await reopening.update(alarmMessage({ change: "retriggered" }), reference, never());
    expect(onlyTicket().isOpen).toBe(true);
    system.closeByHand(0);
    const over = (await reopening.close(endMessage(), reference, never())) as IncidentReference;
    await reopening.update(alarmMessage({ change: "acknowledged" }), over, never());
    expect(onlyTicket().isOpen).toBe(true);
  });

  test("adds one note to a closed ticket when the alarm returns and no option allows reopening", async () => {
    const reference = await closeIncident();
    const retriggered = alarmMessage({ change: "retriggered" });
    const back = (await receiver.update(retriggered, reference, never())) as IncidentReference;
    expect(await receiver.update(alarmMessage({ change: "changed" }), back, never())).toEqual(back);
    expect(onlyTicket()).toMatchObject({ isOpen: false, notes: { length: 2 } });
    expect(lines.filter((line) => /stays (closed|resolved)/.test(line))).toHaveLength(1);
  });

  test.each([
    ["forbidden", "the tickets are not visible any more"],
    ["unauthenticated", "the secret is rejected"],
  ])("reports a configuration error (%s) and does not treat a ticket as deleted when %s", async (reason) => {
    const reference = await openIncident();
    if (reason === "forbidden") system.forbidReading();
    else system.changeSecret();
    for (const request of [
      () => receiver.update(alarmMessage({ change: "changed" }), reference, never()),
      () => receiver.close(endMessage(), reference, never()),
      () => find(),
    ])
      await expectFailure(request(), { kind: "config", reason });
  });

  test("reports that no ticket exists only after the search index is up to date, and retries until then", async () => {
    await openIncident(gatewayMessage(2));
    const sinceMs = clock.now();
    clock.set(new Date(sinceMs + settledMs - 10_000).toISOString());
    expect(await find(sinceMs)).toEqual({ retryInMs: 10_000 });
    clock.set(new Date(sinceMs + settledMs).toISOString());
    expect(await find(sinceMs)).toBeNull();
    expect(await find(sinceMs + 3_600_000)).toBeNull();
  });

  test("adopts the oldest of several tickets and adds a note to the other open tickets", async () => {
    for (const _each of [1, 2, 3]) await openIncident();
    system.closeByHand(2);
    clock.set("2026-11-02T06:30:00.000Z");
    const { ticket } = (await find()) as IncidentReference;
    const note = `Duplicate of ${ticket}; Plenum keeps only that one up to date.`;
    expect(system.tickets().map(({ notes }) => notes)).toEqual([[], [note], []]);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ ticket, duplicates: [expect.any(String)] });
  });

  test("keeps the link at the end of a long description", async () => {
    await openIncident(namedMessage("{[]}".repeat(3_000)));
    expect(onlyTicket().description).toMatch(/Open in Plenum/);
  });
});
