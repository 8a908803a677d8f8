import { type Event, makeEvent, SERVICE_SUBJECT, sourceUri } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { documentSet } from "../store/store.ts";
import { parseUtcMs } from "./alarms/alarm-times.ts";
import { JOB_OK, type JobOutcome } from "./job.ts";
import type { PollParts } from "./poll-dependencies.ts";
import type { StoredToken } from "./snapshot.ts";

const EXPIRY_WARNING_DAYS = [30, 14, 7, 1] as const;

const DAY_MS = 86_400_000;

export function createTokenPoll(parts: PollParts) {
  const { source, clock, syncState, scope } = parts;
  const tokenSet = documentSet("token", source.name);
  return {
    async run(signal: AbortSignal): Promise<JobOutcome> {
      const info = await source.me(signal);
      scope.learn(info);
      const now = clock.now();
      const storedToken = syncState.get<StoredToken>(tokenSet).get("token");
      const warnedBefore = storedToken?.info.expiresAt === info.expiresAt ? storedToken.warnedDays : null;
      const dueWarning = findDueWarning(info.expiresAt, now);
      const isWarningNew = dueWarning !== null && (warnedBefore === null || dueWarning.threshold < warnedBefore);
      const events: Event[] = [];
      if (isWarningNew && info.expiresAt !== null) {
        const eventBase = { source: sourceUri(source.name), subject: SERVICE_SUBJECT, time: isoUtc(now) };
        const data = { expiresAt: info.expiresAt, daysLeft: dueWarning.daysLeft };
        const warningFacts = [info.expiresAt, dueWarning.threshold];
        events.push(makeEvent({ ...eventBase, type: "token-expiring", data, facts: warningFacts }));
      }
      const warnedDays = isWarningNew ? dueWarning.threshold : warnedBefore;
      const newToken: StoredToken = { info, checkedAt: isoUtc(now), warnedDays, lost: scope.lost() };
      await parts.commit("token", { documents: [{ set: tokenSet, put: [["token", newToken]] }], events });
      return JOB_OK;
    },
  };
}

/** Returns the lowest passed threshold in days: a first poll five days before the token expires warns once, for 7. */
export function findDueWarning(expiresAt: string | null, nowMs: number) {
  const endMs = parseUtcMs(expiresAt);
  const daysLeft = endMs === null ? Number.POSITIVE_INFINITY : (endMs - nowMs) / DAY_MS;
  const thresholdDays = EXPIRY_WARNING_DAYS.findLast((days) => daysLeft <= days);
  return thresholdDays === undefined ? null : { threshold: thresholdDays, daysLeft: Math.max(0, Math.floor(daysLeft)) };
}
