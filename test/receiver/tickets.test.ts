import { expect, test } from "vitest";
import type { AlarmFact } from "#src/core/model/event.ts";
import { addTicketsOnCommit, alarmTicketKey, readAlarmTickets } from "#src/engine/views/alarm-tickets.ts";
import { createHarness, sampleAlarm } from "./receiver-harness.ts";
import { createReceiverStub } from "./receiver-stub.ts";

test("ticketsOf returns open and closed tickets, for single alarms and for alarms grouped behind a gateway", async () => {
  const sinkTest = createHarness(createReceiverStub("findable"));
  const [own, behind, over] = [sampleAlarm(1), sampleAlarm(2, { behind: "7" }), sampleAlarm(3)];
  await sinkTest.offer(own.raised(), behind.raised(), over.raised());
  await sinkTest.offer(over.resolved(4));
  await sinkTest.sinkState.put(new Map([["something", { of: "another connector" }]]));
  const tickets = await readAlarmTickets((set) => sinkTest.store.documents(set), ["chat", "absent"]);
  const of = (one: ReturnType<typeof sampleAlarm>) => tickets.get(alarmTicketKey("main", one.episode));
  const chat = { sink: "chat", link: null };
  expect(of(own)).toEqual([{ ...chat, ticket: "N-1", isOpen: true, isFolded: false }]);
  expect(of(behind)).toEqual([{ ...chat, ticket: "N-2", isOpen: true, isFolded: true }]);
  expect(of(over)).toEqual([{ ...chat, ticket: "N-3", isOpen: false, isFolded: false }]);
});

test("ticketsOf returns only http(s) addresses as links", async () => {
  const sinkTest = createHarness(createReceiverStub("same"));
  for (const [n, link] of ["https://example.com/1", "javascript:alert(1)", "file:///etc/passwd"].entries()) {
    sinkTest.stub.open = async () => ({ ref: n, ticket: null, link });
    await sinkTest.offer(sampleAlarm(n).raised());
  }
  const tickets = await readAlarmTickets((set) => sinkTest.store.documents(set), ["chat"]);
  expect([...tickets.values()].flat().map(({ link }) => link)).toEqual(["https://example.com/1", null, null]);
});

test("withTickets adds the ticket of an alarm to its later events", async () => {
  const sinkTest = createHarness(createReceiverStub("findable"));
  const [one, two] = [sampleAlarm(1), sampleAlarm(2)];
  await sinkTest.offer(one.raised());
  const store = addTicketsOnCommit(sinkTest.store, () => ["chat"]);
  await store.commit({ events: [one.acknowledged(), two.acknowledged(), one.raised()] });
  expect(sinkTest.store.events.map(({ data }) => (data as AlarmFact).tickets)).toEqual([
    [{ sink: "chat", ticket: "N-1", link: null }],
    undefined,
    undefined,
  ]);
  expect(sinkTest.store.events[0]?.id).toBe(one.acknowledged().id);
});
