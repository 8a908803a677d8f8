import { CATALOG } from "#connectors/catalog.ts";
import type { Clock } from "#src/clock.ts";
import type { ConnectorDefinition, Receipt, Sink } from "#src/connector.ts";
import { meaningOf } from "#src/errors.ts";
import type { Event } from "#src/event.ts";
import { incidentKey } from "#src/receiver/incident.ts";
import type { Store } from "#src/store/store.ts";
import { type SeededRandom, seededRandom } from "../commands/seeded-random.ts";
import { contextFor, never } from "../connectors/context.ts";
import { alarm, START } from "../receiver/trial.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import type { ReceiverFarEnd, Thing } from "./far-end.ts";

/**
 * Crashes between what is said and what is remembered, at random moments, with lost answers and orders to wait among
 * them, while alarms begin, flap, are acknowledged, end and come back. At the end each episode is one thing at the far
 * end (two, where a receiver cannot know better), open where its alarm is active and closed where it is resolved.
 */
export interface Contestant {
  readonly name: string;
  readonly connector: string;
  /** The most things of one episode that came back so often after its end. */
  readonly most: (returns: number) => number;
  start(now: () => number): Promise<ReceiverFarEnd>;
  /** The connector's options, of the far end's configuration. */
  options(end: ReceiverFarEnd): unknown;
}

export interface Played {
  readonly kills: number;
  readonly lost: number;
  readonly problems: readonly string[];
}

class Kill extends Error {}

const STEPS = 60;

export async function playReceiver(contestant: Contestant, seed: number): Promise<Played> {
  const random = seededRandom(seed);
  let nowMs = START;
  const clock: Clock = {
    now: () => nowMs,
    monotonic: () => nowMs - START,
    sleep: async (ms) => {
      nowMs += ms;
    },
  };
  const end = await contestant.start(() => nowMs);
  const store = createMemoryStore(() => nowMs);
  const definition = (CATALOG as Readonly<Record<string, ConnectorDefinition>>)[contestant.connector];
  if (definition === undefined) throw new Error(`There is no connector ${contestant.connector}.`);
  const parts = { definition, config: definition.Config.parse(contestant.options(end)) };
  /** The process ends at the next write to the state but so many. */
  let killIn = Number.POSITIVE_INFINITY;
  let kills = 0;
  let lost = 0;
  const mortal: Store = {
    ...store,
    async commit(change) {
      killIn -= 1;
      if (killIn >= 0) return store.commit(change);
      killIn = Number.POSITIVE_INFINITY;
      kills += 1;
      throw new Kill("killed");
    },
  };
  const make = (): Sink => {
    const made = parts.definition.sink?.(parts.config, contextFor("people", clock, mortal));
    if (made === undefined) throw new Error("It makes no sink.");
    return made;
  };

  let sink = make();
  const told: { readonly position: number; readonly event: Event }[] = [];
  let settled = 0;

  async function restart(): Promise<void> {
    await sink.close();
    sink = make();
  }

  /** As the engine offers: from the cursor on, until all is settled. */
  async function deliver(): Promise<void> {
    for (let tries = 0; settled < told.length; tries += 1) {
      if (tries > 200) throw new Error(`seed ${seed}: ${told.length - settled} events are never settled`);
      const batch = told.slice(settled);
      let receipt: Receipt;
      try {
        receipt = await sink.write(
          batch.map(({ event }) => event),
          never(),
          undefined,
          { positions: batch.map(({ position }) => position), again: false },
        );
      } catch (error) {
        if (error instanceof Kill) await restart();
        else await wait(error);
        continue;
      }
      if (receipt.remember !== undefined)
        throw new Error("A receiver's sink writes what it remembers by itself.");
      settled += receipt.kept?.from ?? batch.length;
      if (receipt.kept !== undefined) await wait(receipt.kept.error);
    }
  }

  async function wait(error: unknown): Promise<void> {
    const failure = meaningOf(error);
    if (failure.kind === "config" || failure.kind === "malformed") throw error;
    nowMs += failure.kind === "throttled" ? (failure.retryAfterMs ?? 30_000) : 5_000;
  }

  async function tick(): Promise<void> {
    try {
      await sink.tick?.(never());
    } catch (error) {
      if (error instanceof Kill) await restart();
      else await wait(error);
    }
  }

  const lives: Life[] = [];
  try {
    for (let step = 0; step < STEPS; step += 1) {
      nowMs += random.pick([1_000, 20_000, 120_000]);
      const minutes = (nowMs - START) / 60_000;
      if (random.chance(0.35)) lives.push(begun(lives.length, minutes));
      const some = lives.filter(() => random.chance(0.3)).map((life) => happening(life, minutes, random));
      const fresh = lives.filter((life) => life.isNew).map((life) => begin(life));
      for (const event of [...fresh, ...some.filter((each) => each !== null)])
        told.push({ position: told.length + 1, event });
      if (random.chance(0.5)) killIn = random.below(4);
      if (random.chance(0.2)) {
        end.loseAnswers(1);
        lost += 1;
      }
      if (random.chance(0.1)) end.tellToWait(1);
      await deliver();
      await tick();
    }
    killIn = Number.POSITIVE_INFINITY;
    end.loseAnswers(0);
    end.tellToWait(0);
    await deliver();
    // An opening in doubt is looked for until a search must show it.
    for (let turn = 0; turn < 10; turn += 1) {
      nowMs += 60_000;
      await tick();
    }
    return { kills, lost, problems: judge(contestant, lives, end.things()) };
  } finally {
    await sink.close();
    await end.stop();
    await store.close();
  }
}

interface Life {
  readonly n: number;
  readonly one: ReturnType<typeof alarm>;
  isNew: boolean;
  isOver: boolean;
  returns: number;
}

function begun(n: number, minutes: number): Life {
  const one = alarm(n, { at: minutes, priority: n % 2 === 0 ? "A" : "C" });
  return { n, one, isNew: true, isOver: false, returns: 0 };
}

function begin(life: Life): Event {
  life.isNew = false;
  return life.one.raised();
}

/** Something that can happen to an alarm now; null for nothing. */
function happening(life: Life, minutes: number, random: SeededRandom): Event | null {
  if (life.isNew) return null;
  const { one } = life;
  if (life.isOver) {
    if (!random.chance(0.3)) return null;
    life.isOver = false;
    life.returns += 1;
    return one.retriggered(minutes);
  }
  const what = random.pick([
    "acknowledged",
    "recovering",
    "changed",
    "vanished",
    "resolved",
    "resolved",
  ] as const);
  if (what === "changed") return one.changed(`It is ${random.below(1_000)} now`, minutes);
  if (what === "resolved") life.isOver = true;
  return one[what](minutes);
}

function judge({ most }: Contestant, lives: readonly Life[], things: readonly Thing[]): readonly string[] {
  const problems: string[] = [];
  for (const { n, one, isNew, isOver, returns } of lives) {
    if (isNew) continue;
    const key = incidentKey("main", "alarm", one.episode);
    const own = things.filter((thing) => thing.key === key);
    if (own.length === 0) problems.push(`alarm ${n} was never told`);
    if (own.length > most(returns))
      problems.push(`alarm ${n}, back ${returns} times, is ${own.length} things`);
    const open = own.filter(({ isOpen }) => isOpen).length;
    if (open !== (isOver ? 0 : 1))
      problems.push(
        `alarm ${n} is ${isOver ? "over" : "active"}, and of its ${own.length} things ${open} are open`,
      );
  }
  const foreign = things.filter(({ key }) => key === null);
  if (foreign.length > 0) problems.push(`${foreign.length} things are of nobody`);
  return problems;
}
