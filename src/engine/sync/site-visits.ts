import { asFailure, ConfigError, errorText, type Failure, LocalFailure, Throttled } from "../../core/errors/errors.ts";
import { incompleteOutcome, JOB_OK, type JobOutcome } from "./job.ts";

/** Visits sites one by one. Throws a failure that concerns all sites, and the first failure if every site failed. */
export async function visitSites<T>(
  siteIds: Iterable<number>,
  visit: (siteId: number) => Promise<T>,
  signal: AbortSignal,
): Promise<{ readonly seen: ReadonlyMap<number, T>; readonly failures: ReadonlyMap<number, Failure> }> {
  const resultsBySite = new Map<number, T>();
  const failures = new Map<number, Failure>();
  for (const siteId of siteIds) {
    try {
      resultsBySite.set(siteId, await visit(siteId));
    } catch (error) {
      signal.throwIfAborted();
      const failure = asFailure(error);
      if (concernsAllSites(failure)) throw failure;
      failures.set(siteId, failure);
    }
  }
  const [firstFailure] = failures.values();
  if (resultsBySite.size === 0 && firstFailure !== undefined) throw firstFailure;
  return { seen: resultsBySite, failures };
}

export function isSiteRefusal(failure: Failure | undefined): boolean {
  return failure instanceof ConfigError;
}

/** Builds a job's outcome: incomplete after temporary failures or with `reasons`, with a remark for refusals. */
export function buildOutcome(
  failures: ReadonlyMap<number, Failure>,
  reasons: readonly string[] = [],
  remarks: readonly string[] = [],
): JobOutcome {
  const temporary = [...failures].find(([, failure]) => !isSiteRefusal(failure));
  const reason = temporary === undefined ? reasons[0] : `Site ${temporary[0]}: ${errorText(temporary[1])}`;
  if (reason !== undefined) return incompleteOutcome([reason, ...remarks].join(" "));
  const [refusal] = failures.values();
  const leftOut =
    refusal === undefined ? [] : [`Left out: site ${[...failures.keys()].join(", ")}. ${errorText(refusal)}`];
  const fullRemark = [...leftOut, ...remarks].join(" ");
  return fullRemark === "" ? JOB_OK : { kind: "ok", remark: fullRemark };
}

/** True for a refused token, a 429 or 503, or a failure of this machine, which would fail requests of all sites. */
export function concernsAllSites(failure: Failure): boolean {
  return (
    failure instanceof Throttled ||
    failure instanceof LocalFailure ||
    (failure instanceof ConfigError && failure.reason === "unauthenticated")
  );
}
