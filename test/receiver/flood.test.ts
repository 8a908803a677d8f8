import { expect, onTestFinished, test } from "vitest";
import { computeIncidentKey } from "#connectors/shared/receiver/receiver-interface.ts";
import { createReceiverSink } from "#connectors/shared/receiver/sink.ts";
import { Throttled } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { contextFor } from "../connectors/context.ts";
import { openDispatcher } from "../delivery/dispatcher-harness.ts";
import { seed } from "../seed.ts";
import { sized } from "../sizes.ts";
import { ReceiverOptions, sampleAlarm } from "./receiver-harness.ts";
import { createStub } from "./receiver-stub.ts";

const ALARMS = 2_000;
const CHANGES_A_MINUTE = 200;
const MINUTES = sized(10, 4);

test("summarizes 2,000 simultaneous alarms in one message within a minute and ends with the correct state of each", async () => {
  const harness = await openDispatcher();
  onTestFinished(() => harness.dispose());
  const { clock, store } = harness;
  const stub = createStub("findable");
  let lastMs = Number.NEGATIVE_INFINITY;
  let refusals = 0;
  stub.failCall = (isDone) => {
    if (isDone) return;
    const waitMs = lastMs + 1_000 - clock.monotonic();
    if (waitMs > 0) {
      refusals += 1;
      throw new Throttled("One message a second.", waitMs);
    }
    lastMs = clock.monotonic();
  };
  const config = ReceiverOptions.parse({ fold: { storm: { openings: 20, within: "5m" } } });
  const sink = createReceiverSink(stub, config, contextFor("chat", clock, store));
  await harness.dispatcher({ chat: sink }).start(new AbortController().signal);

  const random = seededRandom(seed);
  const startMs = Date.parse("2026-11-02T12:00:00Z");
  const minutes = () => (clock.now() - startMs) / 60_000;
  const alarmCases = Array.from({ length: ALARMS }, (_, n) => ({
    sample: sampleAlarm(n, { at: minutes() }),
    isOver: false,
  }));
  await store.commit({ events: alarmCases.map(({ sample }) => sample.raised()) });
  await clock.advance(60_000);
  const summary = stub.incidents.find(({ message }) => message.kind === "storm");
  expect(summary?.message.members.total).toBe(ALARMS - 20);

  for (let change = 0; change < MINUTES * CHANGES_A_MINUTE; change += 1) {
    const alarmCase = random.pick(alarmCases);
    const events: Event[] = [];
    if (alarmCase.isOver) events.push(alarmCase.sample.retriggered(minutes()));
    else if (random.chance(0.5)) events.push(alarmCase.sample.changed(`Now ${change}`, minutes()));
    else events.push(alarmCase.sample.resolved(minutes()));
    if (events[0]?.type !== "alarm-changed") alarmCase.isOver = !alarmCase.isOver;
    await store.commit({ events });
    await clock.advance(60_000 / CHANGES_A_MINUTE);
  }
  await clock.advance(3 * 60_000);

  const [lag] = await store.outbox.lag();
  expect(lag).toMatchObject({ depth: 0, deadLetters: 0 });
  const own = new Map(stub.incidents.filter(({ message }) => message.kind === "alarm").map((note) => [note.key, note]));
  const keyOf = ({ sample }: (typeof alarmCases)[number]) => computeIncidentKey("main", "alarm", sample.episode);
  for (const alarmCase of alarmCases.filter((each) => own.has(keyOf(each))))
    expect(own.get(keyOf(alarmCase))?.isOpen, alarmCase.sample.episode).toBe(!alarmCase.isOver);
  const folded = alarmCases.filter((each) => !own.has(keyOf(each)));
  expect(own.size).toBe(20);
  const active = folded.filter(({ isOver }) => !isOver).length;
  expect(summary?.message.members).toMatchObject({ total: folded.length, active });
  expect(refusals).toBeLessThan(stub.calls.length * 2);
});
