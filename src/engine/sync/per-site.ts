import { asFailure, ConfigError, errorText, type Failure, LocalFailure, Throttled } from "../../core/errors/errors.ts";
import { incomplete, type JobOutcome, OK } from "./job.ts";

/** Visits the sites in turn. Throws a failure that concerns all sites, and the first failure if every site failed. */
export async function perSite<T>(
  siteIds: Iterable<number>,
  visit: (siteId: number) => Promise<T>,
  signal: AbortSignal,
): Promise<{ readonly seen: ReadonlyMap<number, T>; readonly failures: ReadonlyMap<number, Failure> }> {
  const seen = new Map<number, T>();
  const failures = new Map<number, Failure>();
  for (const siteId of siteIds) {
    try {
      seen.set(siteId, await visit(siteId));
    } catch (error) {
      signal.throwIfAborted();
      const failure = asFailure(error);
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

/** Outcome of a round: repeated for temporary failures and `reasons`, with a remark for refusals and `remarks`. */
export function outcomeOf(
  failures: ReadonlyMap<number, Failure>,
  reasons: readonly string[] = [],
  remarks: readonly string[] = [],
): JobOutcome {
  const temporary = [...failures].find(([, failure]) => !isRefusal(failure));
  const reason = temporary === undefined ? reasons[0] : `Site ${temporary[0]}: ${errorText(temporary[1])}`;
  if (reason !== undefined) return incomplete([reason, ...remarks].join(" "));
  const [refusal] = failures.values();
  const leftOut =
    refusal === undefined ? [] : [`Left out: site ${[...failures.keys()].join(", ")}. ${errorText(refusal)}`];
  const remark = [...leftOut, ...remarks].join(" ");
  return remark === "" ? OK : { kind: "ok", remark };
}

/** True for a refused token, a 429 or 503, or a failure of this machine: no other request would succeed. */
export function concernsAll(failure: Failure): boolean {
  return (
    failure instanceof Throttled ||
    failure instanceof LocalFailure ||
    (failure instanceof ConfigError && failure.reason === "unauthenticated")
  );
}
