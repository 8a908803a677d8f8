import { expect, onTestFinished, test } from "vitest";
import { openStore } from "#src/engine/store/open.ts";
import { valueEvent } from "../sample-events.ts";
import { sized } from "../sizes.ts";
import { describeUrgent } from "../suites/urgent-suite.ts";
import { openDispatcher } from "./dispatcher-harness.ts";

describeUrgent("the state in a folder", 20_000, sized(100, 30));

test("an event that is being sent when another process starts a replay is sent again after the older replayed events", async () => {
  const { folder, clock, store, dispose } = await openDispatcher();
  onTestFinished(dispose);
  const ids = async () => (await store.outbox.next("a", 10)).events.map(({ event }) => event.id);
  await store.outbox.register("a", "beginning");
  await store.commit({ events: [valueEvent(0)] });
  await ids();
  await store.outbox.settle("a", { isRepeat: false, through: 1, rejected: [] });
  await store.commit({ events: [valueEvent(1)] });
  await ids();
  const operator = await openStore({ folder, clock, locksFolder: false });
  await operator.outbox.replay("a", "2020-01-01T00:00:00Z");
  await operator.close();
  await store.outbox.settle("a", { isRepeat: false, through: 2, rejected: [] });
  expect(await ids()).toEqual([valueEvent(0).id, valueEvent(1).id]);
});
