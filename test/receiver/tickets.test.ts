import { expect, test } from "vitest";
import type { AlarmFact } from "#src/core/model/event.ts";
import { addTicketsOnCommit, alarmTicketKey, readAlarmTickets } from "#src/engine/views/alarm-tickets.ts";
import { createHarness, sampleAlarm } from "./receiver-harness.ts";
import { createStub } from "./receiver-stub.ts";

test("ticketsOf returns open and closed tickets, for single alarms and for alarms grouped behind a gateway", async () => {
  const harness = createHarness(createStub("findable"));
  const [own, behind, over] = [sampleAlarm(1), sampleAlarm(2, { behind: "7" }), sampleAlarm(3)];
  await harness.offer(own.raised(), behind.raised(), over.raised());
  await harness.offer(over.resolved(4));
  await harness.sinkState.put(new Map([["something", { of: "another connector" }]]));
  const tickets = await readAlarmTickets((set) => harness.store.documents(set), ["chat", "absent"]);
  const of = (one: ReturnType<typeof sampleAlarm>) => tickets.get(alarmTicketKey("main", one.episode));
  const chat = { sink: "chat", link: null };
  expect(of(own)).toEqual([{ ...chat, ticket: "N-1", isOpen: true, isFolded: false }]);
  expect(of(behind)).toEqual([{ ...chat, ticket: "N-2", isOpen: true, isFolded: true }]);
  expect(of(over)).toEqual([{ ...chat, ticket: "N-3", isOpen: false, isFolded: false }]);
});

test("ticketsOf returns only http(s) addresses as links", async () => {
  const harness = createHarness(createStub("same"));
  for (const [n, link] of ["https://example.com/1", "javascript:alert(1)", "file:///etc/passwd"].entries()) {
    harness.stub.open = async () => ({ ref: n, ticket: null, link });
    await harness.offer(sampleAlarm(n).raised());
  }
  const tickets = await readAlarmTickets((set) => harness.store.documents(set), ["chat"]);
  expect([...tickets.values()].flat().map(({ link }) => link)).toEqual(["https://example.com/1", null, null]);
});

test("withTickets adds the ticket of an alarm to its later events", async () => {
  const harness = createHarness(createStub("findable"));
  const [one, two] = [sampleAlarm(1), sampleAlarm(2)];
  await harness.offer(one.raised());
  const store = addTicketsOnCommit(harness.store, () => ["chat"]);
  await store.commit({ events: [one.acknowledged(), two.acknowledged(), one.raised()] });
  expect(harness.store.events.map(({ data }) => (data as AlarmFact).tickets)).toEqual([
    [{ sink: "chat", ticket: "N-1", link: null }],
    undefined,
    undefined,
  ]);
  expect(harness.store.events[0]?.id).toBe(one.acknowledged().id);
});
