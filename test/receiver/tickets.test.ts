import { expect, test } from "vitest";
import type { AlarmFact } from "#src/core/model/event.ts";
import { readTickets, ticketKey, withTickets } from "#src/engine/views/tickets.ts";
import { noticeBoard } from "./notice-board.ts";
import { alarm, receiving } from "./trial.ts";

test("ticketsOf returns the ticket of each single or folded alarm, open or closed", async () => {
  const trial = receiving(noticeBoard("findable"));
  const [own, behind, over] = [alarm(1), alarm(2, { behind: "7" }), alarm(3)];
  await trial.offer(own.raised(), behind.raised(), over.raised());
  await trial.offer(over.resolved(4));
  await trial.memory.put(new Map([["something", { of: "another connector" }]]));
  const tickets = await readTickets((set) => trial.store.documents(set), ["chat", "absent"]);
  const of = (one: ReturnType<typeof alarm>) => tickets.get(ticketKey("main", one.episode));
  const chat = { sink: "chat", link: null };
  expect(of(own)).toEqual([{ ...chat, ticket: "N-1", isOpen: true, isFolded: false }]);
  expect(of(behind)).toEqual([{ ...chat, ticket: "N-2", isOpen: true, isFolded: true }]);
  expect(of(over)).toEqual([{ ...chat, ticket: "N-3", isOpen: false, isFolded: false }]);
});

test("ticketsOf returns only http(s) addresses as links", async () => {
  const trial = receiving(noticeBoard("same"));
  for (const [n, link] of ["https://example.com/1", "javascript:alert(1)", "file:///etc/passwd"].entries()) {
    trial.board.open = async () => ({ ref: n, ticket: null, link });
    await trial.offer(alarm(n).raised());
  }
  const tickets = await readTickets((set) => trial.store.documents(set), ["chat"]);
  expect([...tickets.values()].flat().map(({ link }) => link)).toEqual(["https://example.com/1", null, null]);
});

test("withTickets adds the ticket of an alarm to its later events", async () => {
  const trial = receiving(noticeBoard("findable"));
  const [one, two] = [alarm(1), alarm(2)];
  await trial.offer(one.raised());
  const store = withTickets(trial.store, () => ["chat"]);
  await store.commit({ events: [one.acknowledged(), two.acknowledged(), one.raised()] });
  expect(trial.store.events.map(({ data }) => (data as AlarmFact).tickets)).toEqual([
    [{ sink: "chat", ticket: "N-1", link: null }],
    undefined,
    undefined,
  ]);
  expect(trial.store.events[0]?.id).toBe(one.acknowledged().id);
});
