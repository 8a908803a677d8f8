import type { SeededRandom } from "../commands/seeded-random.ts";

/**
 * What happens to a fleet. `cut`: the connections of one member to the database are broken, and none is let in.
 * `stall`: they stay, and nothing passes; when it is over, everything passes that was held up. `…-in-commit`: the same,
 * beginning in the middle of a packet that the member sends.
 */
const WEIGHTS = {
  kill: 5,
  freeze: 5,
  cut: 3,
  stall: 3,
  "cut-in-commit": 3,
  "stall-in-commit": 3,
  stop: 3,
  drain: 2,
  "database-restart": 2,
  "database-kill": 2,
} as const;
export type FaultKind = keyof typeof WEIGHTS;
const KINDS = Object.keys(WEIGHTS) as readonly FaultKind[];

export interface Fault {
  readonly kind: FaultKind;
  /** Whom it meets; null where it meets the database. */
  readonly member: string | null;
  /** How long it lasts, in milliseconds: until the process goes on or is started again, the way is free, … */
  readonly lastsMs: number;
  /** Where a packet is torn, as a share of it: 0 is before its first byte, 1 behind the last. */
  readonly tornAt: number;
  /** A wall clock that is set as it begins, and stays so until it is set again: by so many seconds ahead of true time. */
  readonly clock: { readonly member: string; readonly aheadS: number } | null;
}

const SECOND_MS = 1_000;
/** How wrong a wall clock may be, in seconds: 5 minutes either way, or not at all. */
const AHEAD_S = [-300, 300, 0];
const CLOCK_SHARE = 0.3;

/** How often two members are met at once. */
const TWO_SHARE = 0.12;

/** The next one, or two at once; the same seed gives the same ones in the same order, whatever became of them. */
export function drawFaults(random: SeededRandom, members: readonly string[]): readonly Fault[] {
  const first = drawFault(random, members);
  const second = drawFault(
    random,
    members.filter((member) => member !== first.member),
  );
  const isTwo = random.chance(TWO_SHARE) && first.member !== null && second.member !== null;
  return isTwo ? [first, second] : [first];
}

function drawFault(random: SeededRandom, members: readonly string[]): Fault {
  const kind = random.pick(KINDS.flatMap((each) => Array.from({ length: WEIGHTS[each] }, () => each)));
  const member = random.pick(members);
  const clockMember = random.pick(members);
  const aheadS = random.pick(AHEAD_S);
  return {
    kind,
    member: kind.startsWith("database") ? null : member,
    lastsMs: lastsMs(kind, random),
    tornAt: random.pick([0, 0.3, 0.5, 0.9, 1]),
    clock: random.chance(CLOCK_SHARE) ? { member: clockMember, aheadS } : null,
  };
}

function lastsMs(kind: FaultKind, random: SeededRandom): number {
  const between = (leastS: number, mostS: number) => Math.round((leastS + random() * (mostS - leastS)) * SECOND_MS);
  const share = random();
  switch (kind) {
    case "freeze":
      // Most are longer than a lease, some shorter, some as long as a suspended machine.
      return share < 0.7 ? between(12, 20) : share < 0.85 ? between(4, 10) : between(55, 60);
    case "cut":
    case "stall":
    case "cut-in-commit":
    case "stall-in-commit":
      return share < 0.8 ? between(11, 18) : between(2, 8);
    case "kill":
      return share < 0.5 ? between(0, 2) : between(5, 12);
    case "stop":
    case "drain":
    case "database-restart":
    case "database-kill":
      return between(0, 5);
  }
}

export function storyOf({ kind, member, lastsMs, tornAt, clock }: Fault): string {
  const torn = kind.endsWith("in-commit") ? `, torn at ${tornAt}` : "";
  const clockStory = clock === null ? "" : `, clock of ${clock.member} ${clock.aheadS} s ahead`;
  return `${member === null ? kind : `${kind} ${member}`} for ${(lastsMs / SECOND_MS).toFixed(1)} s${torn}${clockStory}`;
}
