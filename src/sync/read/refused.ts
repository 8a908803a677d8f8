import { ConfigError, NoLog, Rejected } from "../../errors.ts";
import { culprits } from "../plan/split.ts";

/** Whether the service may have refused a whole group because of one of its tags: 403, 404 or 422. */
export function isMemberRefusal(error: unknown): error is ConfigError | Rejected | NoLog {
  return error instanceof Rejected || error instanceof NoLog || isRefusedConfig(error);
}

function isRefusedConfig(error: unknown): error is ConfigError {
  return error instanceof ConfigError && error.reason !== "unauthenticated" && error.reason !== "gone";
}

/** Refusals in a row, with no success of anybody, after which it is not about single tags. */
const HOPELESS = 8;

/**
 * Reads all members of a refused group that can be read, and returns the others. `read` reads and settles a part.
 * Throws the refusal when nothing shows that anything can be read at all: then it is about the token or the
 * request, and no tag is to blame.
 */
export async function searchRefused(
  ids: readonly string[],
  refusal: ConfigError | Rejected | NoLog,
  read: (part: readonly string[]) => Promise<void>,
  othersAreRead: () => boolean,
): Promise<readonly string[]> {
  let refusals = 1;
  let anyRead = false;
  const attempt = async (part: readonly string[]): Promise<boolean> => {
    try {
      await read(part);
      anyRead = true;
      return true;
    } catch (error) {
      if (!isMemberRefusal(error)) throw error;
      refusals++;
      if (!anyRead && refusals >= HOPELESS && !othersAreRead()) throw refusal;
      return false;
    }
  };

  const named = namedMember(ids, refusal);
  if (named !== null) {
    const rest = ids.filter((id) => id !== named);
    if (rest.length === 0 || (await attempt(rest))) return [named];
    return [named, ...(await search(rest, attempt))];
  }
  const refused = await search(ids, attempt);
  if (!anyRead && ids.length > 1 && !othersAreRead()) throw refusal;
  return refused;
}

async function search(
  failed: readonly string[],
  attempt: (part: readonly string[]) => Promise<boolean>,
): Promise<readonly string[]> {
  const searching = culprits(failed);
  let step = searching.next();
  while (!step.done) step = searching.next(await attempt(step.value));
  return step.value;
}

/** The tag that a validation error names by its place in the request: `tags.3`, `tags[3]`, `tags.3.id`. */
function namedMember(ids: readonly string[], refusal: ConfigError | Rejected | NoLog): string | null {
  if (!(refusal instanceof ConfigError) || refusal.field === undefined) return null;
  const place = /^tags(?:\.|\[)(\d+)/.exec(refusal.field)?.[1];
  return place === undefined ? null : (ids[Number(place)] ?? null);
}
