import { setTimeout as sleep } from "node:timers/promises";
import type { Stage } from "./stage.ts";

const LOOK_EVERY_MS = 300;
const HEALTHY_WITHIN_MS = 90_000;

export async function until(holds: () => Promise<string | null>, withinMs: number, what: string): Promise<void> {
  const endMs = performance.now() + withinMs;
  let why: string | null = "";
  while (why !== null) {
    if (performance.now() > endMs) throw new Error(`${what} within ${withinMs / 1_000} s: ${why}`);
    why = await holds().catch((error: unknown) => String(error));
    if (why !== null) await sleep(LOOK_EVERY_MS);
  }
}

export async function waitUntilHealthy(stage: Stage, sources: number): Promise<void> {
  const sinceMs = Date.now();
  const { members, observer, services } = stage;
  await until(
    async () => {
      const { members: present, held } = await observer.look();
      const missing = [...members.keys()].filter((name) => !present.includes(name));
      if (missing.length > 0) return `${missing.join(", ")} takes no part`;
      const counts = [...members.keys()].map((name) => held.get(name) ?? 0);
      const sum = counts.reduce((a, b) => a + b, 0);
      if (sum !== sources) return `${sources - sum} sources are held by nobody`;
      if (Math.max(...counts) - Math.min(...counts) > 1) return `they hold ${counts.join(", ")}`;
      const silent = await services.ask<readonly string[]>("silentSince", sinceMs);
      return silent.length === 0 ? null : `not polled: ${silent.join(", ")}`;
    },
    HEALTHY_WITHIN_MS,
    "the fleet is not well",
  );
}

export async function isDelivered({ observer }: Stage, newest: ReadonlyMap<string, number>): Promise<string | null> {
  const behind = (await observer.delivered()).filter(([source, , position]) => position < (newest.get(source) ?? 0));
  return behind.length === 0
    ? null
    : behind.map(([source, sink, position]) => `${source} ${sink} is at ${position}`).join(", ");
}
