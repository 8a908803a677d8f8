import type { CommandMessage } from "#src/core/connector.ts";
import type { TransportRequest } from "#src/engine/source/transport.ts";
import { arrivalOf } from "../commands/command-harness.ts";
import type { SeededRandom } from "../commands/seeded-random.ts";
import type { VirtualClock } from "../virtual-clock.ts";

/** A sent command. Its value is unique, so a write identifies its command. */
interface Sent {
  readonly id: string;
  readonly tag: string;
  readonly isLawful: boolean;
  readonly isTimed: boolean;
  readonly untilMs: number;
}

export const RANGE = { min: 10, max: 30 };

const DIFFERENCE_MS = 31_000;

/** Sends commands of every kind and checks every write to the service. */
export function createCommanders(
  tags: readonly string[],
  clock: () => VirtualClock,
  trueMs: () => number,
  holds: (tag: string) => unknown,
  random: SeededRandom,
) {
  const byValue = new Map<number, Sent>();
  const written = new Map<string, number>();
  const acknowledged = new Set<string>();
  /** By tag: old values that timed commands may restore, each once. */
  const mayBePutBack = new Map<string, Set<unknown>>();
  const restoreValue = (tag: string) => {
    const values = mayBePutBack.get(tag) ?? new Set();
    mayBePutBack.set(tag, values);
    return values;
  };
  const problems: string[] = [];
  /** Repeated ids: the first may have been refused, and the age of the second depends on two clocks. */
  const repeatedIds = new Set<string>();
  const history: (readonly [payload: object, changes: Partial<CommandMessage>])[] = [];
  let serial = 0;

  function createCommand(): readonly [payload: object, changes: Partial<CommandMessage>] {
    serial += 1;
    const kind = random.pick(["good", "good", "good", "timed", "retained", "range", "unlisted", "stale"] as const);
    const inside = RANGE.min + 1 + (serial % 1_000) / 100 + serial / 1e6;
    const value = kind === "range" ? RANGE.max + 1 + serial / 1e6 : inside;
    const ttlS = 10 + random.below(100);
    const agedMs = kind === "stale" ? (ttlS + 60 + random.below(3_600)) * 1_000 : 0;
    const sent = {
      id: `c${serial}`,
      tag: kind === "unlisted" ? "nobody-allowed-it" : random.pick(tags),
      isLawful: kind === "good" || kind === "timed",
      isTimed: kind === "timed",
      untilMs: clock().monotonic() + ttlS * 1_000 - agedMs + (agedMs > 0 ? DIFFERENCE_MS : 0),
    };
    byValue.set(value, sent);
    const payload = {
      id: sent.id,
      tag: sent.tag,
      value,
      ttl_s: ttlS,
      issued_at: new Date(trueMs() - agedMs).toISOString(),
      ...(kind === "timed" ? { for_s: 60 + random.below(300) } : {}),
    };
    return [payload, { retained: kind === "retained" }];
  }

  return {
    acknowledged: acknowledged as ReadonlySet<string>,
    problems: problems as readonly string[],
    writes: () => [...written.values()].reduce((sum, count) => sum + count, 0),
    async send(accept: (arrival: CommandMessage) => Promise<void>) {
      const [payload, changes] = history.length > 0 && random.chance(0.15) ? random.pick(history) : createCommand();
      const { id } = payload as { readonly id: string };
      if (history.some(([before]) => before === payload)) repeatedIds.add(id);
      history.push([payload, changes]);
      const arrival = arrivalOf(JSON.stringify(payload), clock().now(), changes);
      try {
        await accept(arrival);
        acknowledged.add(id);
      } catch {}
    },
    requestSent({ method, path, body }: TransportRequest) {
      if (method !== "POST" || !path.includes("/tags/write")) return;
      const { tags: writes } = JSON.parse(body ?? "{}") as {
        readonly tags: readonly { readonly tag_id: string; readonly value: number }[];
      };
      if (writes.length > 20) problems.push(`${writes.length} tags in one write`);
      for (const { tag_id, value } of writes) {
        const sent = byValue.get(value);
        // A restore writes the old value, from the building or an earlier command.
        if (sent === undefined) continue;
        if (mayBePutBack.get(tag_id)?.delete(value) === true) continue;
        if (sent.isTimed) restoreValue(tag_id).add(holds(tag_id));
        const count = (written.get(sent.id) ?? 0) + 1;
        written.set(sent.id, count);
        if (count > 1) problems.push(`${sent.id} was written ${count} times`);
        if (!sent.isLawful) problems.push(`${sent.id} was written and is not lawful`);
        if (sent.tag !== tag_id) problems.push(`${sent.id} was written to ${tag_id}, not to ${sent.tag}`);
        const toleranceMs = repeatedIds.has(sent.id) ? DIFFERENCE_MS : 0;
        if (clock().monotonic() > sent.untilMs + toleranceMs) problems.push(`${sent.id} was written after its life`);
      }
    },
  };
}
