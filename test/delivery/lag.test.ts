import { expect, onTestFinished, test } from "vitest";
import { describeLag, MIXED } from "../suites/lag-suite.ts";
import { openWorkshop, scriptedSink } from "./workshop.ts";

describeLag("SQLite");

test("the dispatcher's status contains the filtered lag of a sink that cannot be opened", async () => {
  const workshop = await openWorkshop();
  onTestFinished(() => workshop.dispose());
  const sink = scriptedSink();
  sink.onOpen = () => Promise.reject(new Error("away"));
  const dispatcher = workshop.dispatcher({ a: sink }, { filter: { kinds: ["alarm-*"] } });
  await dispatcher.start(new AbortController().signal);
  await workshop.store.commit({ events: MIXED });
  await workshop.clock.advance(6_000);
  expect(dispatcher.status()[0]?.lag).toMatchObject({ depth: 3, exact: true });
});
