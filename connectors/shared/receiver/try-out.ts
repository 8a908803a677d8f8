import type { Clock } from "../../../src/core/runtime/clock.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { IncidentMessage, IncidentReference, Receiver } from "./receiver.ts";
import type { StoredIncident } from "./stored-incident.ts";

/** Opens, changes and closes a marked test alarm at a receiver, and says of each step what came of it. */
export async function tryOut(
  options: {
    readonly receiver: Receiver;
    readonly told: (held: StoredIncident) => IncidentMessage;
    readonly clock: Pick<Clock, "now">;
    readonly say: (line: string) => void;
  },
  signal: AbortSignal,
): Promise<void> {
  const { receiver, clock, say } = options;
  const incident = testIncident(clock.now());
  const told = (done: string, state: Partial<StoredIncident>) =>
    options.told({ ...incident, ...state, changeId: `${incident.changeId}.${done}` });
  const report = (done: string, { ticket, link }: IncidentReference) =>
    say([done, ticket, link].filter((text) => text !== null).join(" "));

  const opened = await receiver.open(told("opened", {}), signal);
  report("opened", opened);
  const acknowledged = told("changed", { status: "acknowledged", change: "acknowledged" });
  const changed = await receiver.update(acknowledged, opened, signal);
  if (changed === "gone") return say("changed: it is not there any more");
  report("changed", changed);
  const over = told("closed", { status: "resolved", change: "resolved", endedAt: isoUtc(clock.now()) });
  const closed = await receiver.close(over, changed, signal);
  if (closed === "gone") return say("closed: it is not there any more");
  report("closed", closed);
}

/** An incident that is none, to see how one looks there. */
function testIncident(nowMs: number): StoredIncident {
  return {
    kind: "test",
    source: "plenum",
    episode: String(nowMs),
    site: null,
    alarm: null,
    gateway: null,
    priority: "C",
    status: "active",
    change: "raised",
    changeId: `test.${nowMs}`,
    startedAt: isoUtc(nowMs),
    endedAt: null,
    retriggers: 0,
    into: null,
    metMs: nowMs,
    holdFromMs: nowMs,
    changedMs: nowMs,
    through: 0,
    openingMs: null,
    told: null,
  };
}
