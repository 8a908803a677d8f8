import type { SeededRandom } from "../commands/seeded-random.ts";

/** `cut` breaks a member's database connections, `stall` delays them, `…-in-commit` begins inside a packet. */
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
  readonly member: string | null;
  readonly lastsMs: number;
  /** 0 is before the first byte of the packet, 1 after the last. */
  readonly tornAt: number;
  readonly clock: { readonly member: string; readonly aheadS: number } | null;
}

const SECOND_MS = 1_000;
const AHEAD_S = [-300, 300, 0];
const CLOCK_SHARE = 0.3;

const DOUBLE_FAULT_SHARE = 0.12;

export function drawFaults(random: SeededRandom, members: readonly string[]): readonly Fault[] {
  const first = drawFault(random, members);
  const second = drawFault(
    random,
    members.filter((member) => member !== first.member),
  );
  const isTwo = random.chance(DOUBLE_FAULT_SHARE) && first.member !== null && second.member !== null;
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
