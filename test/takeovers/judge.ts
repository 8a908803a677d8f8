import { type EventKind, isUrgentKind } from "#src/core/model/event.ts";
import { countBusiestMinuteRequests, type LoggedRequest } from "#src/simulator/request-log.ts";
import {
  ENDS,
  type Evidence,
  type FaultRecord,
  type LoggedEvent,
  type ReceivedEvent,
  type ServiceRecord,
  spread,
  summarizeTexts,
  type Takeover,
  type Verdict,
} from "./evidence.ts";

export function judge(evidence: Evidence): Verdict {
  const verdicts = [judgeHolders, judgeEvents, judgeBuildings, judgeRequests, judgeCommands].map((each) =>
    each(evidence),
  );
  return {
    problems: verdicts.flatMap(({ problems }) => problems),
    figures: verdicts.flatMap(({ figures }) => figures),
  };
}

const UNDER_WAY_MS = 1_000;

function judgeHolders(evidence: Evidence): Verdict {
  const { services, takeovers, faults } = evidence;
  const bySource = Map.groupBy(takeovers, ({ source }) => source);
  const otherRequests: string[] = [];
  let latest = 0;
  for (const { source, requests } of services) {
    const own = (bySource.get(source) ?? []).toSorted((a, b) => a.epoch - b.epoch);
    for (const { atMs, tokenName, path } of requests) {
      const lateMs = howLate(own, tokenName, atMs);
      if (Number.isFinite(lateMs)) latest = Math.max(latest, lateMs);
      if (lateMs <= UNDER_WAY_MS) continue;
      const at = faults.findLast(({ fromMs }) => fromMs <= atMs)?.story ?? "the start";
      otherRequests.push(`${tokenName} asked ${source} for ${path} ${lateMs} ms after it lost it, at ${at}`);
    }
  }
  const epochs = [...bySource.values()].flatMap((own) => epochsThatRepeat(own));
  const moved = takeovers.filter(({ from, to }) => from !== null && from !== to);
  const reasons = Map.groupBy(moved, ({ reason }) => reason);
  const shown = [...reasons].map(([reason, all]) => `${all.length} ${reason}`);
  return {
    problems: [
      ...(otherRequests.length === 0
        ? []
        : [`${otherRequests.length} requests by a member that holds nothing: ${summarizeTexts(otherRequests)}`]),
      ...(epochs.length === 0 ? [] : [`taken over twice with one epoch: ${summarizeTexts(epochs)}`]),
    ],
    figures: [
      ["takeovers", String(moved.length)],
      ["why", shown.join(", ")],
      ["from a lost holder's fault to the takeover", spread(lostFor(moved, faults))],
      ["from the takeover to the first request", spread(startedAfter(evidence, moved))],
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

function startedAfter({ services, takeovers }: Evidence, moved: readonly Takeover[]): readonly number[] {
  const requests = new Map(services.map((service) => [service.source, service.requests]));
  return moved.flatMap(({ source, to, atMs }) => {
    // A source may move again before its first request.
    const endMs = Math.min(
      ...takeovers.filter((each) => each.source === source && each.atMs > atMs).map((each) => each.atMs),
    );
    const first = requests.get(source)?.find((each) => each.atMs >= atMs && each.tokenName === to);
    return first === undefined || first.atMs > endMs ? [] : [first.atMs - atMs];
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

const QUOTA = 20;
const UNDISTURBED_MS = 5_000;

function judgeRequests({ services, faults, graceMs }: Evidence): Verdict {
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
  const { late, table } = silences(services, faults, graceMs);
  if (late.length > 0)
    problems.push(`${late.length} times not polled for more than ${graceMs / 1_000} s: ${summarizeTexts(late)}`);
  return {
    problems,
    figures: [
      ["requests to the services", String(requests)],
      ["most of the quota within 60 s", `${busiest} of ${QUOTA}`],
      ...table,
    ],
  };
}

function silences(services: readonly ServiceRecord[], faults: readonly FaultRecord[], graceMs: number) {
  const late: string[] = [];
  const byKind = new Map<string, number[]>();
  for (const fault of faults) {
    const fromMs = fault.member === null ? fault.endMs : fault.fromMs;
    for (const { source, requests } of services) {
      const silentMs = longestSilence(requests, fromMs, fault.toMs);
      if (silentMs > graceMs) late.push(`${source} for ${(silentMs / 1_000).toFixed(1)} s at ${fault.story}`);
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

function judgeBuildings(evidence: Evidence): Verdict {
  const problems: string[] = [];
  let episodes = 0;
  for (const end of ENDS) {
    for (const service of evidence.services) {
      const received = firstArrivals(evidence.received, end, service.source);
      problems.push(
        ...alarmsAreTrue(service, received, evidence.fromMs).map((text) => `${end}: ${service.source} ${text}`),
        ...valuesAreTrue(service, received).map((text) => `${end}: ${service.source} ${text}`),
      );
      if (end === "webhook") episodes += truthOf(service, "raised").size;
    }
  }
  return { problems, figures: [["alarms raised in the buildings", String(episodes)]] };
}

function firstArrivals(received: readonly ReceivedEvent[], end: ReceivedEvent["end"], source: string) {
  const seen = new Set<string>();
  return received.filter((each) => {
    if (each.end !== end || each.source !== source || each.fact === null || seen.has(each.id)) return false;
    seen.add(each.id);
    return true;
  });
}

const FALSE_TYPES = ["alarm-vanished", "alarm-out-of-scope", "alarm-retriggered", "alarm-unacknowledged"];

function alarmsAreTrue(service: ServiceRecord, received: readonly ReceivedEvent[], fromMs: number): readonly string[] {
  const problems: string[] = [];
  for (const kind of ["raised", "resolved"] as const) {
    const truth = truthOf(service, kind);
    const times = new Map<string, number>();
    for (const { type, fact } of received) {
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
  const forbiddenEvents = received.flatMap(({ type, key }) => (FALSE_TYPES.includes(type) ? [`${type} ${key}`] : []));
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

function valuesAreTrue({ counter }: ServiceRecord, received: readonly ReceivedEvent[]): readonly string[] {
  const problems: string[] = [];
  let latest = 0;
  for (const { fact } of received) {
    if (fact?.of !== "value" || fact.tagId !== counter.tagId || fact.value === null) continue;
    const value = Number(fact.value);
    if (value < latest) problems.push(`${value} was told after ${latest}`);
    if (value > counter.last) problems.push(`${value} was told, and the tag came to ${counter.last} only`);
    latest = Math.max(latest, value);
  }
  if (latest === 0) problems.push("no value of the counting tag was told");
  return problems.length === 0 ? [] : [summarizeTexts(problems)];
}

function judgeEvents(evidence: Evidence): Verdict {
  const infos = new Map(evidence.log.map((event) => [event.id, event]));
  const problems: string[] = [];
  const figures: [string, string][] = [["events in the log", String(evidence.log.length)]];
  for (const end of ENDS) {
    const received = evidence.received.filter((each) => each.end === end);
    const ids = new Set(received.map(({ id }) => id));
    const lost = evidence.log
      .filter(({ id, source, position }) => position <= (evidence.due.get(source) ?? 0) && !ids.has(id))
      .map(({ id, source, position }) => `${source} ${position} ${id}`);
    if (lost.length > 0) problems.push(`${lost.length} events never reached the ${end}: ${summarizeTexts(lost)}`);
    const strange = [...ids].filter((id) => !infos.has(id));
    if (strange.length > 0)
      problems.push(`${strange.length} events at the ${end} were never committed: ${summarizeTexts(strange)}`);
    const { again, altered } = repetitions(received);
    if (altered.length > 0)
      problems.push(`${altered.length} came again at the ${end} with another content: ${summarizeTexts(altered)}`);
    const disorder = outOfOrder(received, infos);
    if (disorder.length > 0)
      problems.push(`${disorder.length} events out of order at the ${end}: ${summarizeTexts(disorder)}`);
    figures.push([`events at the ${end}, and again`, `${ids.size}, ${again}`]);
  }
  return { problems, figures };
}

function repetitions(received: readonly ReceivedEvent[]): {
  readonly again: number;
  readonly altered: readonly string[];
} {
  const seen = new Map<string, string>();
  const altered: string[] = [];
  let repeatedCount = 0;
  for (const { id, key, digest } of received) {
    const one = `${key} ${id}`;
    const before = seen.get(one);
    if (before === undefined) seen.set(one, digest);
    else {
      repeatedCount += 1;
      if (before !== digest) altered.push(one);
    }
  }
  return { again: repeatedCount, altered };
}

function outOfOrder(received: readonly ReceivedEvent[], infos: ReadonlyMap<string, LoggedEvent>): readonly string[] {
  const seen = new Set<string>();
  const last = new Map<string, number>();
  const wrong: string[] = [];
  for (const { id, key } of received) {
    const one = `${key} ${id}`;
    const place = infos.get(id);
    if (seen.has(one) || place === undefined) continue;
    seen.add(one);
    const [type = ""] = id.split(".");
    const order = `${place.source} ${key} ${isUrgentKind(type as EventKind)}`;
    const before = last.get(order) ?? 0;
    if (place.position < before) wrong.push(`${one} (${place.position} after ${before})`);
    last.set(order, Math.max(place.position, before));
  }
  return wrong;
}

function judgeCommands({ commands, services, received }: Evidence): Verdict {
  const problems: string[] = [];
  const written = new Map<string, number>();
  const nameOf = (source: string, tagId: string, value: unknown) => `${source} ${tagId} ${value}`;
  for (const { source, writes } of services)
    for (const { tagId, value } of writes) {
      const name = nameOf(source, tagId, value);
      written.set(name, (written.get(name) ?? 0) + 1);
    }
  const wanted = new Set(commands.map(({ source, tagId, value }) => nameOf(source, tagId, value)));
  for (const [name, times] of written) {
    if (times > 1) problems.push(`written ${times} times: ${name}`);
    if (!wanted.has(name)) problems.push(`written and never asked for: ${name}`);
  }

  const accepted = new Set<string>();
  const ends = new Map<string, Map<string, string>>();
  const reasons = new Map<string, number>();
  for (const { end, type, id, fact } of received) {
    if (end !== "webhook" || fact?.of !== "command") continue;
    if (type === "command-accepted") accepted.add(fact.commandId);
    if (type !== "command-result" || fact.outcome === "duplicate") continue;
    const own = ends.get(fact.commandId) ?? new Map<string, string>();
    ends.set(fact.commandId, own.set(id, fact.outcome ?? ""));
    if (fact.outcome === "rejected") {
      const reason = fact.reason ?? "";
      reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    }
  }
  const outcomes = new Map<string, number>();
  for (const { id, source, tagId, value, isRepeated } of commands) {
    const all = [...(ends.get(id)?.values() ?? [])];
    const isRefusedFirst = isRepeated && all.length > 1 && all[0] === "rejected";
    const own = isRefusedFirst ? all.slice(1) : all;
    if (accepted.has(id) && own.length !== 1)
      problems.push(`${id} was accepted and has ${own.length} ends: ${own.join(", ")}`);
    const [outcome] = own;
    if (outcome === undefined) continue;
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    const isWritten = written.has(nameOf(source, tagId, value));
    if (outcome === "confirmed" && !isWritten) problems.push(`${id} is confirmed and was not written`);
    if (["rejected", "expired", "superseded"].includes(outcome) && isWritten)
      problems.push(`${id} was written and is ${outcome}`);
  }
  const shown = (counts: ReadonlyMap<string, number>) =>
    [...counts]
      .toSorted(([, a], [, b]) => b - a)
      .map(([name, n]) => `${n} ${name}`)
      .join(", ");
  return {
    problems: problems.length === 0 ? [] : [summarizeTexts(problems)],
    figures: [
      ["commands sent, accepted, written", `${commands.length}, ${accepted.size}, ${written.size}`],
      ["how they ended", shown(outcomes)],
      ["why they were rejected", shown(reasons)],
    ],
  };
}
