import { expect, test } from "vitest";
import { buildMessages } from "#connectors/mqtt/messages.ts";
import { createTopics } from "#connectors/mqtt/topics.ts";
import { sampleEvent } from "../../sample-events.ts";

const topics = createTopics("plenum", "{prefix}/{source}/{site}/{kind}/{id}/{aspect}");
const retainOptions = { alarms: true, inventory: true, values: true };
const listTopics = (...args: Parameters<typeof sampleEvent<"alarm-resolved">>) =>
  buildMessages(sampleEvent(...args), topics, retainOptions).map(({ topic }) => topic);

test("publishes a superseded alarm episode as an event, and not on the state topic of the alarm", () => {
  const { data } = sampleEvent("alarm-resolved");
  expect(listTopics("alarm-resolved")).toEqual([
    "plenum/main/1/alarm/500001/state",
    "plenum/main/1/event/alarm-resolved",
  ]);
  expect(listTopics("alarm-resolved", { data: { ...data, superseded: true } })).toEqual([
    "plenum/main/1/event/alarm-resolved",
  ]);
});
