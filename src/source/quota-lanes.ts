import { LANES, type Lane } from "./source.ts";

interface Waiting {
  readonly signal: AbortSignal;
  readonly lane: Lane;
}

/** Who waits in which lane, and who has been passed over too often. */
export interface WaitingLanes {
  add(id: string, request: Waiting): void;
  remove(id: string, lane: Lane): void;
  /** A request of this lane got a slot; whoever waits behind it was passed over. */
  served(lane: Lane): void;
  /** The first lane in which somebody waits. */
  first(): Lane | undefined;
  /** The oldest request of each lane that was passed over too often. */
  overdue(): readonly { readonly id: string; readonly lane: Lane }[];
  counts(): Record<Lane, number>;
}

/** A lane is passed over so many times in a row by the lanes before it; then the next slot is its own. */
const PATIENCE = 9;

export function createWaitingLanes(): WaitingLanes {
  const waiting = new Map(LANES.map((lane) => [lane, new Map<string, Waiting>()]));
  const passedOver = new Map<Lane, number>();
  const size = (lane: Lane) => waiting.get(lane)?.size ?? 0;

  return {
    add: (id, request) => void waiting.get(request.lane)?.set(id, request),
    remove: (id, lane) => void waiting.get(lane)?.delete(id),
    served(lane) {
      const behind = LANES.slice(LANES.indexOf(lane) + 1);
      for (const each of LANES) {
        if (each === lane || size(each) === 0) passedOver.set(each, 0);
        else if (behind.includes(each)) passedOver.set(each, (passedOver.get(each) ?? 0) + 1);
      }
    },
    first: () => LANES.find((lane) => size(lane) > 0),
    overdue() {
      const found: { id: string; lane: Lane }[] = [];
      for (const lane of LANES) {
        if ((passedOver.get(lane) ?? 0) < PATIENCE) continue;
        for (const [id, request] of waiting.get(lane) ?? []) {
          // One that is aborted leaves by itself, in this very turn.
          if (request.signal.aborted) continue;
          found.push({ id, lane });
          break;
        }
      }
      return found;
    },
    counts: () => ({
      write: size("write"),
      "on-demand": size("on-demand"),
      live: size("live"),
      history: size("history"),
    }),
  };
}
