import { ConfigError } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Store } from "../store/store.ts";
import type { Command } from "./command.ts";
import type { WriteRefusal } from "./gate.ts";
import type { Journal } from "./journal.ts";
import type { StoredBuildingReader } from "./stored-building-reader.ts";

export const WRITE_LOCK_SET = "command-lock";

export interface WriteLockTarget {
  readonly source: string;
  readonly scope: "tag" | "system" | "site";
  readonly id: string;
}

/** Reserves a tag, or the tags of a system or site, for its owner, e.g. while a technician works there. */
export interface WriteLock extends WriteLockTarget {
  /** Name of a sender, or a sink, whose commands the lock lets pass. */
  readonly owner: string;
  readonly reason: string;
  readonly until: string;
}

/** Sets a lock, or ends the present lock if `lock` is null. */
export interface WriteLockChange {
  readonly target: WriteLockTarget;
  readonly lock: Pick<WriteLock, "owner" | "reason" | "until"> | null;
  readonly by: string;
}

export interface ActiveLocks {
  readonly count: number;
  /** End of the lock that ends first, UTC; null without a lock. */
  readonly nextEnd: string | null;
}

export type WriteLocks = Awaited<ReturnType<typeof openWriteLocks>>;

export async function openWriteLocks(options: {
  readonly store: Pick<Store, "documents">;
  readonly journal: Pick<Journal, "recordAudit">;
  readonly view: Pick<StoredBuildingReader, "systemIds">;
  readonly clock: Clock;
}) {
  const { clock, journal, view } = options;
  const locks = await options.store.documents<WriteLock>(WRITE_LOCK_SET);

  return {
    active(): ActiveLocks {
      const lockEnds = [...locks.values()].filter((lock) => isInForce(lock, clock.now())).map(({ until }) => until);
      return { count: lockEnds.length, nextEnd: lockEnds.toSorted()[0] ?? null };
    },
    /** Returns a refusal if another owner has locked the command's tag, system or site. */
    async findRefusal(
      command: Pick<Command, "source" | "siteId" | "tagId" | "via" | "user">,
    ): Promise<WriteRefusal | null> {
      const { source, siteId, tagId, user, via } = command;
      const locksOfOthers = [...locks.values()].filter(
        (lock) => lock.source === source && isInForce(lock, clock.now()) && lock.owner !== via && lock.owner !== user,
      );
      const isSystemLocked = locksOfOthers.some(({ scope }) => scope === "system");
      const systemIds = isSystemLocked ? await view.systemIds(source, tagId) : [];
      const idsByScope = { tag: [tagId], site: [`${siteId}`], system: systemIds };
      const lock = locksOfOthers.find(({ scope, id }) => idsByScope[scope].includes(id));
      return lock === undefined ? null : { reason: "locked", message: formatWriteLock(lock) };
    },
    /** Sets or ends a lock. Throws ConfigError if another owner holds it, or if there is no lock to end. */
    async changeLock({ by, lock, target }: WriteLockChange): Promise<void> {
      const key = `${target.source}/${target.scope}/${target.id}`;
      const currentLock = locks.get(key);
      const isLocked = currentLock !== undefined && isInForce(currentLock, clock.now());
      if (lock === null ? !isLocked : isLocked && currentLock.owner !== lock.owner) {
        const message = isLocked ? formatWriteLock(currentLock) : `There is no lock of ${target.scope} ${target.id}.`;
        throw new ConfigError(message, { hint: "`plenum writes` lists the locks, `plenum writes unlock` ends one." });
      }
      if (lock !== null && Date.parse(lock.until) <= clock.now()) throw new ConfigError("The lock ends in the past.");
      const endedKeys = [...locks].flatMap(([lockKey, oldLock]) => (isInForce(oldLock, clock.now()) ? [] : [lockKey]));
      const removedKeys = lock === null ? [...endedKeys, key] : endedKeys.filter((lockKey) => lockKey !== key);
      const lockEntries = lock === null ? [] : [[key, { ...target, ...lock }] as const];
      const auditStep = lock === null ? "writing-unlocked" : "writing-locked";
      await journal.recordAudit(auditStep, { ...target, ...(lock ?? currentLock), by }, [
        { set: WRITE_LOCK_SET, put: lockEntries, remove: removedKeys },
      ]);
      for (const lockKey of removedKeys) locks.delete(lockKey);
      for (const [lockKey, storedLock] of lockEntries) locks.set(lockKey, storedLock);
    },
  };
}

export function isInForce({ until }: WriteLock, nowMs: number): boolean {
  return Date.parse(until) > nowMs;
}

export function formatWriteLock({ id, owner, reason, scope, until }: WriteLock): string {
  return `${scope.charAt(0).toUpperCase()}${scope.slice(1)} ${id} is locked by ${owner} until ${until}: ${reason}`;
}
