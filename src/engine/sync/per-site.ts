import { ConfigError, type Failure, LocalFailure, meaningOf, sentence, Throttled } from "../../core/errors/errors.ts";
import { incomplete, type JobOutcome, OK } from "./job.ts";

/** Result of visiting every site; failed sites are missing in `seen` and are in `failures`. */
export interface Visits<T> {
  readonly seen: ReadonlyMap<number, T>;
  readonly failures: ReadonlyMap<number, Failure>;
}

/**
 * Visits the sites one after the other. The trouble of one site is its own: the others go on. Only what concerns all
 * of them (a refused token, an order to wait, a trouble of this machine, a stop) ends the round, and so does the failure
 * of every single one.
 */
export async function perSite<T>(
  siteIds: Iterable<number>,
  visit: (siteId: number) => Promise<T>,
  signal: AbortSignal,
): Promise<Visits<T>> {
  const seen = new Map<number, T>();
  const failures = new Map<number, Failure>();
  for (const siteId of siteIds) {
    try {
      seen.set(siteId, await visit(siteId));
    } catch (error) {
      signal.throwIfAborted();
      const failure = meaningOf(error);
      if (concernsAll(failure)) throw failure;
      failures.set(siteId, failure);
    }
  }
  const [first] = failures.values();
  if (seen.size === 0 && first !== undefined) throw first;
  return { seen, failures };
}

/** A refusal of one site (403, or 422 because it is gone) stays until a person acts, so it is no reason to repeat. */
export function isRefusal(failure: Failure): boolean {
  return failure instanceof ConfigError;
}

/** The outcome of a round: repeated for what may pass by itself, remarked for what is refused or worth a person's look. */
export function outcomeOf(
  failures: ReadonlyMap<number, Failure>,
  reasons: readonly string[] = [],
  remarks: readonly string[] = [],
): JobOutcome {
  const passing = [...failures].filter(([, failure]) => !isRefusal(failure));
  const refused = [...failures].filter(([, failure]) => isRefusal(failure));
  const [trouble] = passing;
  const said = (first: string) => [first, ...remarks].join(" ");
  if (trouble !== undefined) return incomplete(said(`Site ${trouble[0]}: ${sentence(trouble[1])}`));
  const [reason] = reasons;
  if (reason !== undefined) return incomplete(said(reason));
  const [refusal] = refused;
  const ids = refused.map(([siteId]) => siteId).join(", ");
  const leftOut = refusal === undefined ? [] : [`Left out: site ${ids}. ${sentence(refusal[1])}`];
  const remark = [...leftOut, ...remarks].join(" ");
  return remark === "" ? OK : { kind: "ok", remark };
}

/** A refused token, an order to wait, or a trouble of this machine: no other request would fare better. */
export function concernsAll(failure: Failure): boolean {
  return (
    failure instanceof Throttled ||
    failure instanceof LocalFailure ||
    (failure instanceof ConfigError && failure.reason === "unauthenticated")
  );
}
