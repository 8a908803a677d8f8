import type { Simulator } from "#src/simulator/simulator.ts";
import type { SeededRandom } from "../seeded-random.ts";

const LEAST: Partial<Record<string, number>> = { kill: 10, flood: 8 };

const DISTURBANCES = {
  kill: 15,
  stop: 3,
  "broker-ends": 3,
  "broker-dies": 3,
  cut: 12,
  flood: 16,
  "stop-message": 3,
  "stop-file": 2,
  faults: 14,
} as const;
export type Disturbance = keyof typeof DISTURBANCES;

export const MOMENTS = ["write", "delivery", "acknowledgement", "read", "now"] as const;
export type Moment = (typeof MOMENTS)[number];

export function planOf(random: SeededRandom, commands: number): { readonly at: number; readonly what: Disturbance }[] {
  const all = Object.entries(DISTURBANCES).flatMap(([what, count]) =>
    Array.from({ length: Math.max(LEAST[what] ?? 1, Math.round((count * commands) / 20_000)) }, () => ({
      what: what as Disturbance,
      order: random(),
    })),
  );
  const every = commands / (all.length + 1);
  return all
    .toSorted((a, b) => a.order - b.order)
    .map(({ what }, index) => ({ what, at: Math.round(every * (index + 0.5 + random())) }));
}

const SLOW = { match: { endpoints: ["write", "read"] as ("write" | "read")[] } };

export function calm(simulator: Simulator): void {
  simulator.control.setFaults([{ ...SLOW, fault: { kind: "slow", delay_ms: 30 } }]);
}

export function addServiceFault(simulator: Simulator, random: SeededRandom): void {
  const match = { endpoints: ["write" as const] };
  simulator.control.setFaults([
    { ...SLOW, fault: { kind: "slow", delay_ms: 30 } },
    random.pick([
      { match, when: { count: 2 }, fault: { kind: "throttled", retry_after_s: 5 } },
      { match, when: { probability: 0.5 }, fault: { kind: "cut", after_bytes: 3 } },
      { match, when: { probability: 0.5 }, fault: { kind: "reset", effect: "applied" } },
      { match, when: { probability: 0.5 }, fault: { kind: "reset", effect: "none" } },
      { match, when: { probability: 0.5 }, fault: { kind: "error", status: 422 } },
      { match, when: { probability: 0.5 }, fault: { kind: "error", status: 500, effect: "applied" } },
      { ...SLOW, when: { probability: 0.3 }, fault: { kind: "slow", delay_ms: 2_000 } },
    ] as const),
  ]);
}
