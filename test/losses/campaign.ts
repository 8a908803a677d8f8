import { createHash } from "node:crypto";
import type { CampaignResult, Problem } from "../campaign/campaign.ts";
import { withSeededMathRandom } from "../campaign/seeded-chance.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { START_MS } from "../virtual-worker.ts";
import { anyFault, isolatedFault, type SourceFault } from "./faults.ts";
import { displayedAgesAreTrue } from "./judge/ages.ts";
import {
  everyBackfillIsComplete,
  everyGapIsReported,
  everyPointIsEmitted,
  missingLogsAreReported,
  noPointIsRepeated,
  nothingIsInvented,
  unansweredHistoryIsNotFetched,
} from "./judge/history.ts";
import { unaffectedTagsAreOnTime } from "./judge/punctual.ts";
import { reportedGaps } from "./judge/reported-gaps.ts";
import {
  onlyRejectedTagsAreQuarantined,
  quarantineIsEmpty,
  quotaIsMet,
  serviceIsNotFlooded,
  tokenRequestsAreRare,
} from "./judge/requests.ts";
import { createLossHarness, type Harness, type LastingFault, testBackfill } from "./loss-harness.ts";
import { createReceivedEvents, type ReceivedEvents } from "./received-events.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const FAULTS_MS = 24 * MINUTE;
/** Pauses after the last fault: refused tags are retried after 10 min, 1, 6 and 24 h, missing logs after a day. */
const QUIET_PHASES: readonly { readonly stillMs: number; readonly awakeMs: number }[] = [
  { stillMs: 0, awakeMs: 4 * MINUTE },
  { stillMs: 7 * MINUTE, awakeMs: 3 * MINUTE },
  { stillMs: 50 * MINUTE, awakeMs: 3 * MINUTE },
  { stillMs: 5 * HOUR, awakeMs: 3 * MINUTE },
  { stillMs: 19 * HOUR, awakeMs: 8 * MINUTE },
  { stillMs: 70 * MINUTE, awakeMs: 3 * MINUTE },
];
const EXTRA_WAITS_MAX = 8;

/** Plays one random schedule of faults, backfills and restarts, then a time without faults, and judges the events. */
export function campaign(seed: number): Promise<CampaignResult> {
  return withSeededMathRandom(seed, () => play(seed, seededRandom(seed)));
}

async function play(seed: number, random: ReturnType<typeof seededRandom>): Promise<CampaignResult> {
  const harness = await createLossHarness(seed, random);
  const receivedEvents = createReceivedEvents(harness);
  const { world, virtual } = harness;
  const { clock, simulator } = virtual;
  const problems = new Map<string, Problem>();
  const story: string[] = [];
  const at = () => new Date(harness.now()).toISOString().slice(5, 19);
  const logLine = (text: string) => story.push(`${at()} ${text}`);
  const note = (rule: string, texts: readonly string[]) => {
    for (const text of texts) problems.set(`${rule} ${text.split(",")[0]}`, { rule, text });
  };
  logLine(`sites ${world.siteIds.join()}, ${[...world.tags.values()].flat().length} tags`);

  async function judgeNow(): Promise<void> {
    await receivedEvents.look();
    note(
      "every hole is named",
      await everyGapIsReported(harness, receivedEvents, await reportedGaps(harness), unseen(harness)),
    );
    note("nobody is condemned", await onlyRejectedTagsAreQuarantined(harness));
    note("no age is flattered", await displayedAgesAreTrue(harness, receivedEvents));
  }

  const lastingFaults: { readonly one: LastingFault; readonly endMs: number }[] = [];
  function beginFault(fault: SourceFault, forMs: number): void {
    logLine(`${fault.name}, for ${Math.round(forMs / SECOND)} s`);
    lastingFaults.push({ one: harness.begin(fault), endMs: harness.now() + forMs });
  }
  let checkMs = harness.now() + 3 * MINUTE;
  async function passTime(ms: number): Promise<void> {
    const untilMs = harness.now() + ms;
    while (harness.now() < untilMs) {
      const dueMs = Math.min(...lastingFaults.map(({ endMs }) => endMs));
      await clock.advance(Math.max(0, Math.min(untilMs, dueMs, checkMs) - harness.now()));
      for (const lastingFault of lastingFaults.splice(0)) {
        if (lastingFault.endMs > harness.now()) lastingFaults.push(lastingFault);
        else {
          harness.end(lastingFault.one);
          logLine(`over: ${lastingFault.one.fault.name}`);
        }
      }
      if (harness.now() >= checkMs) {
        checkMs = harness.now() + (3 + random.below(5)) * MINUTE;
        await judgeNow();
      }
    }
  }

  let backfills = 0;
  async function disturb(): Promise<void> {
    const dice = random();
    if (dice < 0.15) {
      backfills += 1;
      const order = testBackfill(harness, random, `order ${backfills}`);
      logLine(
        `${order.id}: ${order.stored.resolution} ${order.stored.from} to ${order.stored.to}, ${order.tagIds.size} tags`,
      );
      await harness.order(order);
    } else if (dice < 0.25) {
      const how = random.chance(0.5) ? "stop" : "crash";
      logLine(`restart after a ${how}`);
      await harness.restart(how);
    } else if (dice < 0.65) {
      beginFault(anyFault(world, random), (20 + random.below(280)) * SECOND);
    } else {
      await passTime(3 * MINUTE);
      beginFault(isolatedFault(world, random), (60 + random.below(300)) * SECOND);
      await passTime(3 * MINUTE);
    }
  }

  await passTime(random.chance(0.3) ? 5 * SECOND : (2 + random.below(4)) * MINUTE);
  const unrestMs = harness.now() + FAULTS_MS;
  while (harness.now() < unrestMs) {
    await disturb();
    await passTime((10 + random.below(110)) * SECOND);
  }
  while (lastingFaults.length > 0) await passTime(MINUTE);
  logLine("everything is given back");
  const quietMs = harness.now();
  for (const { stillMs, awakeMs } of QUIET_PHASES) {
    await harness.suspend(stillMs);
    await clock.advance(awakeMs);
    await receivedEvents.look();
  }
  for (let tick = 0; tick < EXTRA_WAITS_MAX && (await isOpen(harness)); tick += 1) await clock.advance(4 * MINUTE);
  await receivedEvents.look();
  const namedGaps = await reportedGaps(harness);
  note("every point is had", everyPointIsEmitted(harness, receivedEvents));
  note("no point is told twice", noPointIsRepeated(receivedEvents));
  note("nothing is invented", nothingIsInvented(harness, receivedEvents));
  note("every order is done", await everyBackfillIsComplete(harness));
  note("every hole is named", await everyGapIsReported(harness, receivedEvents, namedGaps, new Set()));
  note("what has no log is named", missingLogsAreReported(harness, receivedEvents, namedGaps));
  note("nothing unanswered is had", unansweredHistoryIsNotFetched(harness, receivedEvents, namedGaps));
  note("nobody else is late", unaffectedTagsAreOnTime(harness, receivedEvents, quietMs));
  note("the quota is kept", quotaIsMet(harness));
  note("nothing is flooded", serviceIsNotFlooded(harness));
  note("the token is asked sparingly", tokenRequestsAreRare(harness));
  note("nobody is set aside", await quarantineIsEmpty(harness));
  note("no age is flattered", await displayedAgesAreTrue(harness, receivedEvents));
  const result = {
    problems: [...problems.values()],
    story,
    digest: computeDigest(harness, receivedEvents),
    requests: simulator.truth.requests().length,
    simulatedMs: harness.now() - START_MS,
  };
  await virtual.clear();
  return result;
}

const LIST_DELAY_MS = 15 * MINUTE;

/** Tags that the lists do not contain, or did not contain recently. */
function unseen({ faults, now }: Harness): ReadonlySet<string> {
  return new Set(
    faults.filter(({ toMs }) => toMs + LIST_DELAY_MS > now()).flatMap(({ fault }) => [...(fault.hidesTags ?? [])]),
  );
}

async function isOpen(harness: Harness): Promise<boolean> {
  const namedGaps = await reportedGaps(harness);
  return [...namedGaps.values()].flat().some(({ kind }) => kind === "to come");
}

function computeDigest({ virtual }: Harness, far: ReceivedEvents): string {
  const requestLines = virtual.simulator.truth.requests().map(({ atMs, path, query }) => `${atMs} ${path}?${query}`);
  const emittedPoints = [...far.points].map(([key, points]) => [key, [...points]]);
  return createHash("sha256")
    .update(JSON.stringify([requestLines, emittedPoints, [...far.values]]))
    .digest("hex")
    .slice(0, 16);
}
