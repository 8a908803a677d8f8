import { expect, onTestFinished, test } from "vitest";
import { describeLag, MIXED } from "../suites/lag-suite.ts";
import { openDispatcher, scriptedSink } from "./dispatcher-harness.ts";

describeLag("SQLite");

test("the dispatcher's status counts only events that pass the filter in the lag of a sink that cannot be opened", async () => {
  const harness = await openDispatcher();
  onTestFinished(() => harness.dispose());
  const sink = scriptedSink();
  sink.onOpen = () => Promise.reject(new Error("away"));
  const dispatcher = harness.dispatcher({ a: sink }, { filter: { kinds: ["alarm-*"] } });
  await dispatcher.start(new AbortController().signal);
  await harness.store.commit({ events: MIXED });
  await harness.clock.advance(6_000);
  expect(dispatcher.status()[0]?.lag).toMatchObject({ depth: 3, exact: true });
});
