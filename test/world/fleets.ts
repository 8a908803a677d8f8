import { hash } from "node:crypto";
import type { CampaignResult } from "../campaign/campaign.ts";
import type { SeededRandom } from "../commands/seeded-random.ts";
import { createVirtualFleet, type VirtualMember } from "../fleet/virtual-fleet.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const POLL_MS = 10 * SECOND;
const UNREST_MS = 30 * MINUTE;
/** Maximum time until a source is polled again after its member failed, in milliseconds. */
const TAKEOVER_MS = 15 * SECOND;
/** Time of two failed polls and a trial with one source. */
const TRIAL_MS = 60 * SECOND;
const SOURCES = Array.from({ length: 9 }, (_, n) => `s${n}`);
const NAMES = ["a", "b", "c"] as const;

const KINDS = [
  "a member is killed",
  "a member stops",
  "a member does not reach the database",
  "a member does not reach the services",
  "a service is away",
  "the clock of the database is set",
] as const;

/** Three members, one fault at a time: no source has two holders, and each reachable source is polled in time. */
export async function fleets(_seed: number, random: SeededRandom): Promise<CampaignResult> {
  const counts: Record<string, number> = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
  const fleet = createVirtualFleet(SOURCES);
  const { clock } = fleet;
  const running = new Map<string, VirtualMember>();
  const polledMs = new Map(SOURCES.map((source) => [source, 0]));
  const unavailableServices = new Set<string>();
  const cut = new Set<string>();
  const problems: { readonly rule: string; readonly text: string }[] = [];
  const story: string[] = [];
  const logLine = (text: string) => story.push(`${Math.round(clock.monotonic() / SECOND)} s: ${text}`);
  let polls = 0;
  let allowedMs = POLL_MS + TAKEOVER_MS;

  async function start(name: string): Promise<void> {
    const member = fleet.member(name, { random });
    member.network.reaches = (source) => !unavailableServices.has(source) && !cut.has(name);
    running.set(name, member);
    await member.start();
  }

  async function pass(ms: number): Promise<void> {
    const untilMs = clock.monotonic() + ms;
    while (clock.monotonic() < untilMs) {
      await clock.advance(SECOND);
      for (const member of running.values()) poll(member);
      for (const [source, atMs] of polledMs) {
        const lateMs = clock.monotonic() - atMs - allowedMs;
        if (lateMs < 0) continue;
        problems.push({
          rule: "a source is polled in time",
          text: `${source}: not polled for ${allowedMs / SECOND} s at ${Math.round(clock.monotonic() / SECOND)} s`,
        });
        polledMs.set(source, clock.monotonic());
      }
    }
  }

  function poll(member: VirtualMember): void {
    for (const source of member.holding()) {
      if ((Math.floor(clock.monotonic() / SECOND) + SOURCES.indexOf(source)) % (POLL_MS / SECOND) !== 0) continue;
      const isReached = member.network.reaches(source);
      polls += 1;
      member.leases.findLast((lease) => lease.source === source)?.noteReached(isReached);
      if (isReached) polledMs.set(source, clock.monotonic());
    }
  }

  async function fault(): Promise<void> {
    const kind = random.pick(KINDS);
    counts[kind] = (counts[kind] ?? 0) + 1;
    const name = random.pick(NAMES);
    const member = running.get(name);
    const lastsMs = (20 + random.below(100)) * SECOND;
    logLine(`${kind}: ${name}, for ${lastsMs / SECOND} s`);
    switch (kind) {
      case "a member is killed":
        if (member === undefined) return;
        running.delete(name);
        member.link.state = "stalls";
        await pass(lastsMs);
        await start(name);
        return;
      case "a member stops":
        if (member === undefined) return;
        running.delete(name);
        await member.stop();
        await pass(lastsMs);
        await start(name);
        return;
      case "a member does not reach the database":
        if (member === undefined) return;
        member.link.state = random.pick(["fails", "stalls"] as const);
        await pass(lastsMs);
        member.link.state = "well";
        return;
      case "a member does not reach the services":
        cut.add(name);
        allowedMs += TRIAL_MS;
        await pass(lastsMs);
        cut.delete(name);
        // A handover that began during the fault may still continue.
        await pass(TRIAL_MS);
        allowedMs -= TRIAL_MS;
        return;
      case "a service is away": {
        const lostSources = random.chance(0.3) ? SOURCES : [random.pick(SOURCES)];
        for (const source of lostSources) unavailableServices.add(source);
        const before = fleet.tables.takeovers.length;
        allowedMs += lastsMs + POLL_MS;
        await pass(lastsMs);
        unavailableServices.clear();
        await pass(POLL_MS + SECOND);
        allowedMs -= lastsMs + POLL_MS;
        // One trial per member, as one may see the outage or its end before the others, each with one balancing move. If
        // all sources are away, a source may also follow the trial of another.
        const most = NAMES.length + (lostSources.length > 1 ? 1 : 0);
        const takeovers = fleet.tables.takeovers.slice(before);
        const trials = takeovers.filter(([source]) => lostSources.includes(source)).length;
        for (const [source, moves] of Map.groupBy(takeovers, ([source]) => source)) {
          if (moves.length <= (lostSources.includes(source) ? most : trials)) continue;
          problems.push({
            rule: "no source moves back and forth",
            text: `${moves.length} takeovers of ${source} while ${lostSources.join(", ")} did not answer`,
          });
        }
        return;
      }
      case "the clock of the database is set": {
        const byMs = Math.round(SECOND * (24 * 3_600) ** random()) * (random.chance(0.5) ? 1 : -1);
        logLine(`by ${byMs / SECOND} s`);
        clock.stepWall(byMs);
        if (random.chance(0.5) && member !== undefined) {
          running.delete(name);
          member.link.state = "stalls";
        }
        await pass(lastsMs);
        clock.stepWall(-byMs);
        if (!running.has(name)) await start(name);
      }
    }
  }

  for (const name of NAMES) await start(name);
  await pass(20 * SECOND);
  const unrestMs = clock.monotonic() + UNREST_MS;
  while (clock.monotonic() < unrestMs) {
    await fault();
    await pass((20 + random.below(60)) * SECOND);
  }
  problems.push(...fleet.faults.map((text) => ({ rule: "one holder at a time", text })));
  const { takeovers } = fleet.tables;
  for (const member of running.values()) await member.stop();
  return {
    problems,
    story,
    counts,
    digest: hash("sha256", JSON.stringify([takeovers, story])).slice(0, 12),
    requests: polls,
    simulatedMs: clock.monotonic(),
  };
}
