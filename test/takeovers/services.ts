import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator, type Simulator } from "#src/simulator/simulator.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { childOptions, serve } from "./child.ts";
import type { ServiceRecord } from "./evidence.ts";

export interface ServiceInfo {
  readonly source: string;
  readonly url: string;
  readonly read: readonly string[];
  readonly written: readonly string[];
  readonly siteId: number;
}

const SITE = 12;
const TAGS = 8;
const READ = 4;
const TICK_MS = 1_000;
const COUNT_EVERY_MS = 2_000;
const RAISE_SHARE = 0.04;
const ACKNOWLEDGE_SHARE = 0.02;
const MOST_OPEN = 4;

interface RunningService {
  readonly source: string;
  readonly simulator: Simulator;
  readonly tags: readonly string[];
  readonly open: Map<string, number>;
  count: number;
}

const { count, seed, members } = childOptions<{ count: number; seed: number; members: readonly string[] }>();
const random = seededRandom(seed);

const alive: readonly RunningService[] = Array.from({ length: count }, (_, n) => {
  const simulator = createSimulator(
    {
      sites: [SITE],
      seed: seed + n,
      max_tags: TAGS,
      alarms: { recorded: false },
      limits: { tag_endpoints: { model: "sliding_log" } },
      request_log: 10_000_000,
      tokens: members.map((name) => ({ token: tokenOf(name), name })),
    },
    { now: Date.now },
  );
  const tags = [...simulator.world.tags.keys()];
  for (const tag of tags.slice(READ)) simulator.control.setTag(tag, 20);
  return { source: `s${String(n + 1).padStart(2, "0")}`, simulator, tags, open: new Map(), count: 0 };
});

const infos: readonly ServiceInfo[] = await Promise.all(
  alive.map(async ({ source, simulator, tags }) => ({
    source,
    url: (await startSimulatorServer(simulator)).url,
    read: tags.slice(0, READ),
    written: tags.slice(READ),
    siteId: SITE,
  })),
);

function tokenOf(member: string): string {
  return `${SERVICE_TOKEN}-${member}`;
}

function live({ simulator: { control }, open }: RunningService): void {
  const nowMs = Date.now();
  for (const [id, untilMs] of open) {
    if (untilMs <= nowMs) {
      control.resolveAlarm(id);
      open.delete(id);
    } else if (random.chance(ACKNOWLEDGE_SHARE)) control.acknowledgeAlarm(id, "Caretaker");
  }
  if (open.size < MOST_OPEN && random.chance(RAISE_SHARE))
    open.set(control.raiseAlarm({ siteId: SITE }), nowMs + 1_000 + random.below(60_000));
}

const life = [
  setInterval(() => {
    for (const each of alive) live(each);
  }, TICK_MS),
  setInterval(() => {
    for (const each of alive) {
      each.simulator.control.setTag(each.tags[0] ?? "", each.count + 1);
      each.count += 1;
    }
  }, COUNT_EVERY_MS),
];
for (const each of alive) each.simulator.control.setTag(each.tags[0] ?? "", 0);

serve({
  infos: () => infos,
  stop() {
    for (const timer of life) clearInterval(timer);
  },
  silentSince: (sinceMs: number) =>
    alive
      .filter(({ simulator }) => (simulator.truth.requests().at(-1)?.atMs ?? 0) <= sinceMs)
      .map(({ source }) => source),
  record: (): readonly ServiceRecord[] =>
    alive.map(({ source, simulator: { truth }, tags, count: last }) => ({
      source,
      requests: truth.requests(),
      writes: truth.writes(),
      transitions: truth.alarms.transitions(0, Number.MAX_SAFE_INTEGER),
      counter: { tagId: tags[0] ?? "", last },
    })),
});
