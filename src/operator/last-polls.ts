import { isoUtc } from "../clock.ts";
import type { Metrics } from "../metrics.ts";

/**
 * When each job of a source last finished well, by job, UTC. Every job says it to the gauge at once, and writes it
 * into the state at most once a minute.
 */
export async function lastPolls(
  { pollSuccess }: Pick<Metrics, "pollSuccess">,
  source: string,
): Promise<ReadonlyMap<string, string>> {
  const { values } = await pollSuccess.get();
  return new Map(
    values
      .map(({ labels, value }) => ({ labels: labels as Readonly<Record<string, unknown>>, value }))
      .filter(({ labels }) => labels.source === source)
      .map(({ labels, value }) => [String(labels.job), isoUtc(value * 1_000)]),
  );
}
