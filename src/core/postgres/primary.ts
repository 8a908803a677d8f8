import { Retryable } from "../errors/errors.ts";
import { type Address, displayAddress } from "./address.ts";
import { failureOf, type Wording } from "./outcome.ts";
import { ReadOnly, refuseUnfit } from "./server.ts";
import { openSession, type Session, type SessionOptions } from "./session.ts";

export interface PrimaryOptions extends Omit<SessionOptions, "address"> {
  /** In the order in which they are tried. */
  readonly addresses: readonly Address[];
  readonly wording: Wording;
}

/**
 * Connects to the first server that accepts writes. Errors have a meaning: of a single server its own; of several a `ConfigError` only
 * when none may become the primary soon.
 */
export async function openPrimary(options: PrimaryOptions, signal: AbortSignal): Promise<Session> {
  const { addresses, wording } = options;
  const failures: Error[] = [];
  for (const address of addresses) {
    try {
      return await openWritable({ ...options, address }, signal);
    } catch (error) {
      signal.throwIfAborted();
      failures.push(failureOf(error, address, wording));
    }
  }
  const passing = failures.find((failure) => failure instanceof Retryable);
  const lasting = failures.find((failure) => !(failure instanceof Retryable || failure instanceof ReadOnly));
  const [first] = failures;
  if (addresses.length === 1 && first !== undefined) throw first;
  if (lasting !== undefined && passing === undefined) throw lasting;
  const names = addresses.map(displayAddress).join(" and ");
  throw new Retryable(`None of the database servers at ${names} takes writes at the moment.`, {
    hint: passing?.message ?? "All of them are replicas; it goes on when one becomes the primary.",
  });
}

async function openWritable(options: SessionOptions, signal: AbortSignal): Promise<Session> {
  const session = await openSession(options, signal);
  try {
    await refuseUnfit(session);
    return session;
  } catch (error) {
    session.cut(error);
    throw error;
  }
}
