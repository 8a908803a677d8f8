import { type Evidence, type FaultRecord, spread, summarizeTexts, type Takeover, type Verdict } from "../evidence.ts";

const UNDER_WAY_MS = 1_000;

export function judgeHolders(evidence: Evidence): Verdict {
  const { services, takeovers, faults } = evidence;
  const bySource = Map.groupBy(takeovers, ({ source }) => source);
  const foreignRequests: string[] = [];
  let latest = 0;
  for (const { source, requests } of services) {
    const own = (bySource.get(source) ?? []).toSorted((a, b) => a.epoch - b.epoch);
    for (const { atMs, tokenName, path } of requests) {
      const lateMs = howLate(own, tokenName, atMs);
      if (Number.isFinite(lateMs)) latest = Math.max(latest, lateMs);
      if (lateMs <= UNDER_WAY_MS) continue;
      const at = faults.findLast(({ fromMs }) => fromMs <= atMs)?.story ?? "the start";
      foreignRequests.push(`${tokenName} asked ${source} for ${path} ${lateMs} ms after it lost it, at ${at}`);
    }
  }
  const epochs = [...bySource.values()].flatMap((own) => epochsThatRepeat(own));
  const moved = takeovers.filter(({ from, to }) => from !== null && from !== to);
  const reasons = Map.groupBy(moved, ({ reason }) => reason);
  const shown = [...reasons].map(([reason, all]) => `${all.length} ${reason}`);
  return {
    problems: [
      ...(foreignRequests.length === 0
        ? []
        : [`${foreignRequests.length} requests by a member that holds nothing: ${summarizeTexts(foreignRequests)}`]),
      ...(epochs.length === 0 ? [] : [`taken over twice with one epoch: ${summarizeTexts(epochs)}`]),
    ],
    figures: [
      ["takeovers", String(moved.length)],
      ["why", shown.join(", ")],
      ["from a lost holder's fault to the takeover", spread(lostFor(moved, faults))],
      ["from the takeover to the first request", spread(begunAfter(evidence, moved))],
      ["latest request after a takeover", `${latest} ms`],
    ],
  };
}

function howLate(takeovers: readonly Takeover[], member: string | null, atMs: number): number {
  const present = takeovers.findLastIndex((each) => each.atMs <= atMs);
  if (takeovers[present]?.to === member) return 0;
  const lost = takeovers.findLastIndex((each, index) => index < present && each.to === member);
  const next = lost < 0 ? undefined : takeovers[lost + 1];
  return next === undefined ? Number.POSITIVE_INFINITY : atMs - next.atMs;
}

function lostFor(moved: readonly Takeover[], faults: readonly FaultRecord[]): readonly number[] {
  return moved
    .filter(({ reason }) => reason === "lease-ran-out")
    .flatMap(({ atMs, from }) => {
      const fault = faults.find(({ fromMs, member, toMs }) => member === from && fromMs <= atMs && atMs < toMs);
      return fault === undefined ? [] : [atMs - fault.fromMs];
    });
}

function begunAfter({ services }: Evidence, moved: readonly Takeover[]): readonly number[] {
  const requests = new Map(services.map((service) => [service.source, service.requests]));
  return moved.flatMap(({ source, to, atMs }) => {
    const first = requests.get(source)?.find((each) => each.atMs >= atMs && each.tokenName === to);
    return first === undefined ? [] : [first.atMs - atMs];
  });
}

function epochsThatRepeat(own: readonly Takeover[]): readonly string[] {
  const seen = new Set<number>();
  return own.flatMap(({ source, epoch }) => {
    const again = seen.has(epoch);
    seen.add(epoch);
    return again ? [`${source} ${epoch}`] : [];
  });
}
