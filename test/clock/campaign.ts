import { hash } from "node:crypto";
import { TAGS_PER_REQUEST } from "#src/engine/source/source.ts";
import type { Transport } from "#src/engine/source/transport.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import type { CampaignResult } from "../campaign/campaign.ts";
import { withSeededMathRandom } from "../campaign/seeded-chance.ts";
import { arrivalOf, SITE, tagsOf } from "../commands/command-harness.ts";
import { type SeededRandom, seededRandom } from "../commands/seeded-random.ts";
import type { VirtualClock } from "../virtual-clock.ts";
import { START_MS, startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";
import { type ClockJudge, createClockJudge, type SentCommand } from "./judge.ts";

/** Runs the whole worker while its wall clock is set, slewed, frozen and corrected at random; `judge.ts` checks it. */
export function campaign(seed: number): Promise<CampaignResult> {
  return withSeededMathRandom(seed, () => play(seed));
}

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const CLOCK_FAULTS = 6;
const REST_MS = 12 * MINUTE_MS;
/** This sink accepts no event, so every event must remain in the outbox. */
const DEAD_SINK = "dead";

async function play(seed: number): Promise<CampaignResult> {
  const random = seededRandom(seed);
  const tags = tagsOf(createSimulator({ sites: [SITE] }, { now: () => START_MS }), 2 * TAGS_PER_REQUEST);
  const checker = createClockJudge(tags);
  /** True time that no clock of the machine measured. */
  let suspendedMs = 0;
  const trueMs = (clock: VirtualClock) => START_MS + Math.floor(clock.monotonic()) + suspendedMs;
  const watchTransport = (transport: Transport, clock: VirtualClock): Transport => {
    return async (request, signal) => {
      checker.requestSent(request, { wallMs: clock.now(), trueMs: trueMs(clock), measuredMs: clock.monotonic() });
      const reply = await transport(request, signal);
      checker.onReply({ wallMs: clock.now(), trueMs: trueMs(clock) });
      return reply;
    };
  };
  const worker = await startVirtualWorker({
    simulator: { seed, sites: [SITE], alarms: { recorded: false } },
    source: {
      spread: "0s",
      schedules: { alarms: "* * * * *" },
      read: [{ name: "all", every: "1m", select: { ids: tags } }],
      history: [{ name: "fine", resolution: "5m", every: "5m", backfill: "1h", select: { ids: tags.slice(0, 5) } }],
    },
    state: { max_age: "1d" },
    commands: {
      enabled: true,
      max_per_hour: 1_000,
      allow: tags.map((tag_id) => ({
        site_id: SITE,
        tag_id,
        type: "number",
        min: -1e9,
        max: 1e9,
        min_interval: "1s",
        max_per_day: 1_000,
      })),
    },
    eventsFolder: null,
    serviceNow: trueMs,
    around: watchTransport,
  });
  const { clock } = worker;
  const story: string[] = [];
  let commands = 0;

  async function run(ms: number): Promise<void> {
    await clock.advance(ms);
  }

  function stepWallClock(ms: number): void {
    clock.stepWall(ms);
    checker.stepped(ms);
  }

  async function sendCommand(agedMs: number): Promise<SentCommand> {
    commands += 1;
    const sentCommand: SentCommand = {
      issuedMs: trueMs(clock) - agedMs,
      arrivedMs: clock.monotonic(),
      ttlMs: (10 + random.below(100)) * SECOND_MS,
      value: 20 + commands / 1_000,
    };
    checker.sent(sentCommand);
    const payload = JSON.stringify({
      id: `c${commands}`,
      tag: tags[commands % tags.length],
      value: sentCommand.value,
      ttl_s: sentCommand.ttlMs / SECOND_MS,
      issued_at: new Date(sentCommand.issuedMs).toISOString(),
    });
    await worker.worker.accept(arrivalOf(payload, clock.now()));
    return sentCommand;
  }

  async function causeClockFault(): Promise<void> {
    const kind = random.pick(["step", "step", "step", "right", "dst", "freeze", "suspend", "slew", "restart", "ahead"]);
    const ms = logUniform(random, SECOND_MS, 10 * DAY_MS);
    story.push(`${Math.round(clock.monotonic() / SECOND_MS)} s: ${kind} ${Math.round(ms / SECOND_MS)} s`);
    if (kind === "step") stepWallClock(random.chance(0.5) ? ms : -ms);
    if (kind === "right") stepWallClock(trueMs(clock) - clock.now());
    if (kind === "dst") stepWallClock(random.chance(0.5) ? HOUR_MS : -HOUR_MS);
    if (kind === "freeze") {
      const stillMs = Math.min(ms, 6 * HOUR_MS);
      clock.suspend(stillMs);
      checker.stoodStill(stillMs);
    }
    if (kind === "suspend") {
      suspendedMs += ms;
      stepWallClock(ms);
    }
    if (kind === "slew") await slew(random.pick([-0.5, 0.5]));
    if (kind === "restart") await worker.restart("stop");
    if (kind === "ahead") await runAhead(ms);
  }

  async function runAhead(ms: number): Promise<void> {
    stepWallClock(ms);
    await run(3 * MINUTE_MS);
    stepWallClock(trueMs(clock) - clock.now());
    await worker.restart("stop");
  }

  async function slew(perSecondMs: number): Promise<void> {
    for (let secondIndex = 0; secondIndex < 120; secondIndex += 1) {
      await run(SECOND_MS);
      clock.stepWall(perSecondMs);
    }
  }

  try {
    await worker.worker.store.outbox.register(DEAD_SINK, "beginning");
    await run(3 * MINUTE_MS);
    for (let n = 0; n < CLOCK_FAULTS; n += 1) {
      await causeClockFault();
      const untilMs = clock.monotonic() + (1 + random.below(9)) * MINUTE_MS;
      while (clock.monotonic() < untilMs) {
        if (random.chance(0.5)) await sendCommand(random.chance(0.4) ? random.below(2 * HOUR_MS) : 0);
        await run(random.below(MINUTE_MS));
      }
    }
    stepWallClock(trueMs(clock) - clock.now());
    await run(REST_MS);
    const lastSent = await sendCommand(0);
    await run(MINUTE_MS);
    if (!checker.wasWritten(lastSent.value)) checker.complain("everything works again", "no command is written");
    await judgeEnd(worker, checker.complain);
    checker.end(clock.monotonic(), clock.woken());
    story.push(`${checker.written()} commands were written`);
    return {
      problems: checker.problems(),
      story,
      digest: await computeDigest(worker),
      requests: worker.simulator.truth.requests().length,
      simulatedMs: clock.monotonic(),
    };
  } finally {
    await worker.clear();
  }
}

async function judgeEnd(worker: VirtualWorker, addProblem: ClockJudge["complain"]): Promise<void> {
  const { outbox } = worker.worker.store;
  const lags = await outbox.lag();
  for (const { sink, dropped } of lags) if (dropped > 0) addProblem("nothing is dropped", `${sink}: ${dropped} events`);
  const events = (await worker.events()).length;
  const lag = lags.find(({ sink }) => sink === DEAD_SINK);
  if (lag?.depth !== events)
    addProblem("nothing is dropped", `${lag?.depth} of ${events} events wait for a sink that takes nothing`);
  if (events < 20) addProblem("there was work", `only ${events} events were told`);
}

async function computeDigest({ events, simulator }: VirtualWorker): Promise<string> {
  const requestLines = simulator.truth.requests().map(({ atMs, path, query }) => `${atMs} ${path}?${query}`);
  const eventLines = (await events()).map((event) => JSON.stringify(event));
  return hash("sha256", [...requestLines, ...eventLines].join("\n")).slice(0, 16);
}

function logUniform(random: SeededRandom, least: number, most: number): number {
  return Math.round(least * (most / least) ** random());
}
