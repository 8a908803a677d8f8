import { asFailure, ConfigError, errorText, type Failure, LocalFailure, Throttled } from "../../core/errors/errors.ts";
import { incompleteJobOutcome, JOB_OUTCOME_OK, type JobOutcome } from "./job.ts";

/** Polls sites one by one. Throws a failure that concerns all sites, and the first failure if every site failed. */
export async function pollEachSite<T>(
  siteIds: Iterable<number>,
  pollSite: (siteId: number) => Promise<T>,
  signal: AbortSignal,
): Promise<{ readonly results: ReadonlyMap<number, T>; readonly failures: ReadonlyMap<number, Failure> }> {
  const pollResultsBySite = new Map<number, T>();
  const failuresBySite = new Map<number, Failure>();
  for (const siteId of siteIds) {
    try {
      pollResultsBySite.set(siteId, await pollSite(siteId));
    } catch (error) {
      signal.throwIfAborted();
      const failure = asFailure(error);
      if (isFailureOfAllSites(failure)) throw failure;
      failuresBySite.set(siteId, failure);
    }
  }
  const [firstFailure] = failuresBySite.values();
  if (pollResultsBySite.size === 0 && firstFailure !== undefined) throw firstFailure;
  return { results: pollResultsBySite, failures: failuresBySite };
}

export function isSiteRefusal(failure: Failure | undefined): boolean {
  return failure instanceof ConfigError;
}

/** Builds a job's outcome: incomplete after temporary failures or with `reasons`. A refused site only adds a remark. */
export function buildJobOutcome(
  failures: ReadonlyMap<number, Failure>,
  reasons: readonly string[] = [],
  remarks: readonly string[] = [],
): JobOutcome {
  const siteFailure = [...failures].find(([, failure]) => !isSiteRefusal(failure));
  const reason = siteFailure === undefined ? reasons[0] : `Site ${siteFailure[0]}: ${errorText(siteFailure[1])}`;
  if (reason !== undefined) return incompleteJobOutcome([reason, ...remarks].join(" "));
  const [refusal] = failures.values();
  const leftOutSitesRemarks =
    refusal === undefined ? [] : [`Left out: site ${[...failures.keys()].join(", ")}. ${errorText(refusal)}`];
  const outcomeRemark = [...leftOutSitesRemarks, ...remarks].join(" ");
  return outcomeRemark === "" ? JOB_OUTCOME_OK : { kind: "ok", remark: outcomeRemark };
}

/** True for a refused token, a 429 or 503, or a failure of this machine, which would fail requests of all sites. */
export function isFailureOfAllSites(failure: Failure): boolean {
  return (
    failure instanceof Throttled ||
    failure instanceof LocalFailure ||
    (failure instanceof ConfigError && failure.reason === "unauthenticated")
  );
}
