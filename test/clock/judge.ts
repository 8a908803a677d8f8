import type { Transport } from "#src/engine/source/transport.ts";
import type { Problem } from "../campaign/campaign.ts";

export type ClockJudge = ReturnType<typeof createClockJudge>;

interface Moment {
  readonly wallMs: number;
  readonly trueMs: number;
}

export interface SentCommand {
  readonly issuedMs: number;
  readonly arrivedMs: number;
  readonly ttlMs: number;
  readonly value: number;
}

const INTERVAL_MS = 60_000;
const GRACE_MS = 10_000;
const QUOTA = 20;
const WINDOW_MS = 60_000;
/** The 30 s bound of clock differences plus the resolution of a Date header. */
const DIFFERENCE_MS = 31_000;
const STEP_MS = 2_100;
const AGREEING_REPLIES = 2;
const MOST_WAKES = 40;
const TAG_ENDPOINTS = /\/tags\/(read|write|history)/;

export function createClockJudge(tags: readonly string[]) {
  const problems: Problem[] = [];
  const commands = new Map<number, SentCommand>();
  const written = new Set<number>();
  const tagRequests: number[] = [];
  const alarms = watchGaps("alarms are polled");
  const reads = new Map(tags.map((tag) => [tag, watchGaps(`the value of ${tag} is read`)]));
  let stillTotalMs = 0;
  let agreeing = Number.POSITIVE_INFINITY;

  const addProblem = (rule: string, text: string) => void problems.push({ rule, text });

  function watchGaps(rule: string) {
    let requestedMs = 0;
    let suspendedMs = 0;
    return {
      onRequest(measuredMs: number) {
        const gapMs = measuredMs - requestedMs - suspendedMs;
        if (gapMs > 2 * INTERVAL_MS + GRACE_MS)
          addProblem(rule, `not for ${Math.round(gapMs / 1_000)} s until ${Math.round(measuredMs / 1_000)} s`);
        requestedMs = measuredMs;
        suspendedMs = 0;
      },
      stoodStill(ms: number) {
        suspendedMs += ms;
      },
    };
  }

  function wrote(body: string, { measuredMs, trueMs, wallMs }: Moment & { readonly measuredMs: number }): void {
    const { tags } = JSON.parse(body) as { readonly tags: readonly { readonly value: number }[] };
    const unlawful = (text: string) => addProblem("commands are lawful", text);
    const differMs = Math.abs(wallMs - trueMs);
    const at = `at ${Math.round(measuredMs / 1_000)} s`;
    if (differMs > DIFFERENCE_MS) unlawful(`written ${at} by a clock that is ${differMs} ms wrong`);
    if (agreeing < AGREEING_REPLIES) unlawful(`written ${at} after a step that no service had agreed to`);
    for (const { value } of tags) {
      const command = commands.get(value);
      if (command === undefined) {
        unlawful(`${value} was written ${at} and never asked for`);
        continue;
      }
      if (written.has(value)) unlawful(`${value} was written twice`);
      written.add(value);
      if (measuredMs - command.arrivedMs > command.ttlMs)
        unlawful(`${value} was written ${at}, after its life by measured time`);
      if (trueMs - command.issuedMs > command.ttlMs + DIFFERENCE_MS)
        unlawful(`${value} was written ${at}, ${trueMs - command.issuedMs} ms after it was issued`);
    }
  }

  return {
    requestSent(request: Parameters<Transport>[0], at: Moment & { readonly measuredMs: number }) {
      if (/\/alarms\b/.test(request.path)) alarms.onRequest(at.measuredMs);
      if (/\/tags\/read/.test(request.path)) {
        const { searchParams } = new URL(request.path, "http://service");
        for (const tag of (searchParams.get("tags") ?? "").split(",")) reads.get(tag)?.onRequest(at.measuredMs);
      }
      if (request.method === "POST") wrote(request.body ?? "{}", at);
      if (!TAG_ENDPOINTS.test(request.path)) return;
      tagRequests.push(at.measuredMs);
      const earlierRequestMs = tagRequests.at(-QUOTA - 1);
      if (earlierRequestMs !== undefined && at.measuredMs - earlierRequestMs < WINDOW_MS)
        addProblem(
          "the quota is kept",
          `more than ${QUOTA} tag requests in a minute at ${Math.round(at.measuredMs / 1_000)} s`,
        );
    },
    onReply({ wallMs, trueMs }: Moment) {
      agreeing = Math.abs(wallMs - trueMs) <= DIFFERENCE_MS ? agreeing + 1 : 0;
    },
    stepped(byMs: number) {
      if (Math.abs(byMs) > STEP_MS) agreeing = 0;
    },
    stoodStill(ms: number) {
      alarms.stoodStill(ms);
      for (const readGaps of reads.values()) readGaps.stoodStill(ms);
      stillTotalMs += ms;
    },
    sent(command: SentCommand) {
      commands.set(command.value, command);
    },
    wasWritten: (value: number) => written.has(value),
    complain: addProblem,
    end(measuredMs: number, woken: number) {
      alarms.onRequest(measuredMs);
      for (const readGaps of reads.values()) readGaps.onRequest(measuredMs);
      const perSecond = (woken * 1_000) / (measuredMs - stillTotalMs);
      if (perSecond > MOST_WAKES)
        addProblem("nothing spins", `${perSecond.toFixed(0)} wakes in a second of measured time`);
      if (tagRequests.length < 80) addProblem("there was work", `only ${tagRequests.length} tag requests`);
    },
    problems: (): readonly Problem[] => problems,
    written: () => written.size,
  };
}
