import { randomBytes } from "node:crypto";
import { ConfigError } from "../../core/errors/errors.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Silence } from "./silence.ts";

/** Which silence somebody wants to begin, now or later. */
export interface SilenceRequest extends Pick<Silence, "source" | "site" | "priorities" | "name" | "alarm" | "madeBy"> {
  /** Milliseconds since 1970. */
  readonly fromMs: number;
  readonly toMs: number;
  readonly reason: string;
}

/** A silence longer than this is a mistake, or a matter for the configuration, in milliseconds. */
const LONGEST_MS = 366 * 86_400_000;

/** Characters of a reason. */
export const LONGEST_REASON = 500;

/** Creates the requested silence; throws `ConfigError` with one sentence when the request is invalid. */
export function silenceOf({ fromMs, toMs, reason, ...wish }: SilenceRequest, nowMs: number): Silence {
  if (toMs <= Math.max(fromMs, nowMs)) throw new ConfigError("The end has to be after the beginning, and after now.");
  if (toMs - fromMs > LONGEST_MS) throw new ConfigError("A silence lasts a year at most.");
  const why = reason.trim();
  if (why === "" || why.length > LONGEST_REASON)
    throw new ConfigError(`Say why, in ${LONGEST_REASON} characters at most.`);
  return {
    ...wish,
    id: randomBytes(4).toString("hex"),
    from: isoUtc(fromMs),
    to: isoUtc(toMs),
    reason: why,
    isTold: false,
  };
}
