import { countBusiestMinuteRequests, type LoggedRequest } from "#src/simulator/request-log.ts";
import {
  type Evidence,
  type FaultRecord,
  type ServiceRecord,
  spread,
  summarizeTexts,
  type Verdict,
} from "../evidence.ts";

const QUOTA = 20;
const UNDISTURBED_MS = 5_000;

export function judgeRequests({ services, faults, soonMs }: Evidence): Verdict {
  const problems: string[] = [];
  let requests = 0;
  let busiest = 0;
  for (const { source, requests: seen } of services) {
    requests += seen.length;
    const refused = seen.filter(({ limit }) => limit === "refused");
    if (refused.length > 0) problems.push(`${source} refused ${refused.length} requests for the quota`);
    const most = countBusiestMinuteRequests(seen);
    if (most > QUOTA) problems.push(`${source} saw ${most} requests of the quota within 60 s`);
    busiest = Math.max(busiest, most);
  }
  const { late, table } = silences(services, faults, soonMs);
  if (late.length > 0)
    problems.push(`${late.length} times not polled for more than ${soonMs / 1_000} s: ${summarizeTexts(late)}`);
  return {
    problems,
    figures: [
      ["requests to the services", String(requests)],
      ["most of the quota within 60 s", `${busiest} of ${QUOTA}`],
      ...table,
    ],
  };
}

function silences(services: readonly ServiceRecord[], faults: readonly FaultRecord[], soonMs: number) {
  const late: string[] = [];
  const byKind = new Map<string, number[]>();
  for (const fault of faults) {
    const fromMs = fault.member === null ? fault.endMs : fault.fromMs;
    for (const { source, requests } of services) {
      const silentMs = longestSilence(requests, fromMs, fault.toMs);
      if (silentMs > soonMs) late.push(`${source} for ${(silentMs / 1_000).toFixed(1)} s at ${fault.story}`);
      if (silentMs > UNDISTURBED_MS) byKind.set(fault.kind, [...(byKind.get(fault.kind) ?? []), silentMs]);
    }
  }
  const table = [...byKind].map(
    ([kind, found]) => [`not polled for, ${kind} (median, 95 %, most)`, spread(found)] as const,
  );
  return { late, table };
}

function longestSilence(requests: readonly LoggedRequest[], fromMs: number, toMs: number): number {
  let before = fromMs;
  let longest = 0;
  for (const { atMs } of requests) {
    if (atMs <= fromMs || atMs >= toMs) continue;
    longest = Math.max(longest, atMs - before);
    before = atMs;
  }
  return Math.max(longest, toMs - before);
}
