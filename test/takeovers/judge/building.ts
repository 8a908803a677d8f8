import {
  ENDS,
  type Evidence,
  type ReceivedEvent,
  type ServiceRecord,
  summarizeTexts,
  type Verdict,
} from "../evidence.ts";

export function judgeBuildings(evidence: Evidence): Verdict {
  const problems: string[] = [];
  let episodes = 0;
  for (const end of ENDS) {
    for (const service of evidence.services) {
      const told = firstArrivals(evidence.told, end, service.source);
      problems.push(
        ...alarmsAreTrue(service, told, evidence.fromMs).map((text) => `${end}: ${service.source} ${text}`),
        ...valuesAreTrue(service, told).map((text) => `${end}: ${service.source} ${text}`),
      );
      if (end === "webhook") episodes += truthOf(service, "raised").size;
    }
  }
  return { problems, figures: [["alarms raised in the buildings", String(episodes)]] };
}

function firstArrivals(
  told: readonly ReceivedEvent[],
  end: ReceivedEvent["end"],
  source: string,
): readonly ReceivedEvent[] {
  const seen = new Set<string>();
  return told.filter((each) => {
    if (each.end !== end || each.source !== source || each.fact === null || seen.has(each.id)) return false;
    seen.add(each.id);
    return true;
  });
}

const FALSE_TYPES = ["alarm-vanished", "alarm-out-of-scope", "alarm-retriggered", "alarm-unacknowledged"];

function alarmsAreTrue(service: ServiceRecord, told: readonly ReceivedEvent[], fromMs: number): readonly string[] {
  const problems: string[] = [];
  for (const kind of ["raised", "resolved"] as const) {
    const truth = truthOf(service, kind);
    const times = new Map<string, number>();
    for (const { type, fact } of told) {
      if (type !== `alarm-${kind}` || fact?.of !== "alarm") continue;
      const episode = `${fact.alarmId} of ${fact.triggeredAtMs}`;
      times.set(episode, (times.get(episode) ?? 0) + 1);
    }
    const neverEmitted = [...truth].filter(([episode, raisedMs]) => raisedMs >= fromMs && !times.has(episode));
    if (neverEmitted.length > 0)
      problems.push(`never told as ${kind}: ${summarizeTexts(neverEmitted.map(([episode]) => episode))}`);
    const wrong = [...times.keys()].filter((episode) => !truth.has(episode));
    if (wrong.length > 0) problems.push(`falsely told as ${kind}: ${summarizeTexts(wrong)}`);
    const twice = [...times].filter(([, count]) => count > 1).map(([episode]) => episode);
    if (twice.length > 0) problems.push(`told twice as ${kind}: ${summarizeTexts(twice)}`);
  }
  const forbiddenEvents = told
    .filter(({ type }) => FALSE_TYPES.includes(type))
    .map(({ type, key }) => `${type} ${key}`);
  if (forbiddenEvents.length > 0) problems.push(`told what never happened: ${summarizeTexts(forbiddenEvents)}`);
  return problems;
}

function truthOf({ transitions }: ServiceRecord, kind: "raised" | "resolved"): ReadonlyMap<string, number> {
  return new Map(
    transitions
      .filter((transition) => transition.kind === kind)
      .map(({ alarmId, triggeredAtMs }) => {
        const second = Math.floor(triggeredAtMs / 1_000) * 1_000;
        return [`${alarmId} of ${second}`, triggeredAtMs];
      }),
  );
}

function valuesAreTrue({ counter }: ServiceRecord, told: readonly ReceivedEvent[]): readonly string[] {
  const problems: string[] = [];
  let latest = 0;
  for (const { fact } of told) {
    if (fact?.of !== "value" || fact.tagId !== counter.tagId || fact.value === null) continue;
    const value = Number(fact.value);
    if (value < latest) problems.push(`${value} was told after ${latest}`);
    if (value > counter.last) problems.push(`${value} was told, and the tag came to ${counter.last} only`);
    latest = Math.max(latest, value);
  }
  if (latest === 0) problems.push("no value of the counting tag was told");
  return problems.length === 0 ? [] : [summarizeTexts(problems)];
}
