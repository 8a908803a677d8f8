/** Runs what it is given one after the other: two polls that compare with the same snapshot must not cross. */
export type OneAtATime = <T>(work: () => Promise<T>) => Promise<T>;

export function oneAtATime(): OneAtATime {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const mine = last.then(work, work);
    last = mine.catch((error: unknown) => error);
    return mine;
  };
}
