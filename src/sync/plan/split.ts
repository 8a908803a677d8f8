/**
 * Finds the members that make a group fail, when one bad member fails the whole group. Pure: it yields the
 * smaller groups to try, is told whether each went well, and returns the bad members.
 *
 * A half is tried, and when it goes well the other must hold the culprit and is split without being tried. One
 * bad tag of 20 costs at most 8 tries, and every good member is in a group that went well exactly once.
 */
export function* culprits<T>(failed: readonly T[]): Generator<readonly T[], readonly T[], boolean> {
  if (failed.length <= 1) return failed;
  const middle = Math.floor(failed.length / 2);
  const first = failed.slice(0, middle);
  const second = failed.slice(middle);
  if (yield first) return yield* culprits(second);
  const bad = yield* culprits(first);
  return (yield second) ? bad : [...bad, ...(yield* culprits(second))];
}
