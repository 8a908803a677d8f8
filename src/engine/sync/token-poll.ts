import { type Event, makeEvent, SERVICE_SUBJECT, sourceUri } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { documentSet } from "../store/store.ts";
import { parseUtcMs } from "./alarms/alarm-times.ts";
import { JOB_OUTCOME_OK, type JobOutcome } from "./job.ts";
import type { PollContext } from "./poll-context.ts";
import type { StoredToken } from "./stored-documents.ts";

const TOKEN_EXPIRY_WARNING_DAYS = [30, 14, 7, 1] as const;
const DAY_MS = 86_400_000;

export function createTokenPoll(pollContext: PollContext) {
  const { source, clock, syncState, scope } = pollContext;
  const tokenDocumentSet = documentSet("token", source.name);
  return {
    async run(signal: AbortSignal): Promise<JobOutcome> {
      const tokenInfo = await source.me(signal);
      scope.learn(tokenInfo);
      const now = clock.now();
      const storedToken = syncState.get<StoredToken>(tokenDocumentSet).get("token");
      const lastWarnedDays = storedToken?.info.expiresAt === tokenInfo.expiresAt ? storedToken.warnedDays : null;
      const dueWarning = findDueExpiryWarning(tokenInfo.expiresAt, now);
      const isWarningNew = dueWarning !== null && (lastWarnedDays === null || dueWarning.threshold < lastWarnedDays);
      const events: Event[] = [];
      if (isWarningNew && tokenInfo.expiresAt !== null) {
        const eventBase = { source: sourceUri(source.name), subject: SERVICE_SUBJECT, time: isoUtc(now) };
        const data = { expiresAt: tokenInfo.expiresAt, daysLeft: dueWarning.daysLeft };
        const expiryWarningFacts = [tokenInfo.expiresAt, dueWarning.threshold];
        events.push(makeEvent({ ...eventBase, type: "token-expiring", data, facts: expiryWarningFacts }));
      }
      const warnedDays = isWarningNew ? dueWarning.threshold : lastWarnedDays;
      const newToken: StoredToken = { info: tokenInfo, checkedAt: isoUtc(now), warnedDays, lost: scope.lost() };
      await pollContext.commit("token", { documents: [{ set: tokenDocumentSet, put: [["token", newToken]] }], events });
      return JOB_OUTCOME_OK;
    },
  };
}

/** Returns the lowest passed threshold: five days before the token expires it is 7 days. */
export function findDueExpiryWarning(expiresAt: string | null, nowMs: number) {
  const tokenExpiryMs = parseUtcMs(expiresAt);
  const daysLeft = tokenExpiryMs === null ? Number.POSITIVE_INFINITY : (tokenExpiryMs - nowMs) / DAY_MS;
  const thresholdDays = TOKEN_EXPIRY_WARNING_DAYS.findLast((days) => daysLeft <= days);
  return thresholdDays === undefined ? null : { threshold: thresholdDays, daysLeft: Math.max(0, Math.floor(daysLeft)) };
}
