/**
 * Serves the members of a group that is refused because of some of them: halves are asked, and halves of what is
 * refused, until what is left was refused alone. Nobody is found guilty because others went well: whoever is left over
 * is asked alone as well. One bad member of 20 costs at most nine requests, and each good one is served once.
 */
export interface RefusedSingly<T, R> {
  readonly member: T;
  readonly refusal: R;
}

/**
 * `ask` returns null when a part was served, the refusal of it, or `stop` when nothing can be said of the group, which
 * is then null. After a refusal that is the last, what is known so far is the result.
 */
export async function divide<T, R extends { readonly isLast: boolean }>(
  group: readonly T[],
  ask: (part: readonly T[]) => Promise<R | "stop" | null>,
): Promise<readonly RefusedSingly<T, R>[] | null> {
  const refused: RefusedSingly<T, R>[] = [];
  let isOver = false;

  /** True when it was served; null when the others are not asked any more. */
  const attempt = async (part: readonly T[]): Promise<boolean | null> => {
    const refusal = await ask(part);
    if (refusal === null) return true;
    if (refusal === "stop") return null;
    const [member] = part;
    if (part.length === 1 && member !== undefined) refused.push({ member, refusal });
    isOver = refusal.isLast;
    return isOver ? null : false;
  };

  /** The halves of what was refused. False after a stop. */
  const search = async (part: readonly T[]): Promise<boolean> => {
    if (part.length <= 1) return true;
    const middle = Math.floor(part.length / 2);
    const [first, second] = [part.slice(0, middle), part.slice(middle)];
    const isServed = await attempt(first);
    if (isServed === null || (!isServed && !(await search(first)))) return false;
    // It is in the other half then, which is divided without being asked whole.
    if (isServed && second.length > 1) return search(second);
    const isOtherServed = await attempt(second);
    return isOtherServed !== null && (isOtherServed || search(second));
  };

  const isServed = await attempt(group);
  if (isServed === true) return [];
  const isDone = isServed !== null && (await search(group));
  return isDone || isOver ? refused : null;
}
