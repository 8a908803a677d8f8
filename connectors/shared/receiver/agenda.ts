/**
 * Incidents with something to do: now, in the order of their priorities, or at a time that comes. An incident is on the
 * agenda once. So a look at what is due costs as much as there is due, however many incidents are open.
 *
 *   changed ──► (evaluated by the sink) ──► ready: A before B before C, first come first
 *      ▲                                └─► later: at a time ──┐
 *      └───────────────────────────────────────────────────────┘
 */
export interface Agenda {
  /** Something of an incident has changed: it is to be evaluated. */
  change(key: string): void;
  /** Takes up to so many incidents that changed, or whose time has come. */
  take(nowMs: number, most: number): readonly string[];
  /** An evaluated incident can be processed now. One that is ready already keeps its place. */
  ready(key: string, priority: string): void;
  /** An evaluated incident has to wait until a time; infinite: until it changes. */
  later(key: string, atMs: number): void;
  /** The ready incident with the most urgent priority; of several the one that has waited longest. */
  first(): string | undefined;
  /** Number of incidents that are ready; of one priority where one is given. */
  size(priority?: string): number;
  /** The time at which something is to be evaluated; infinite when nothing is. */
  nextMs(): number;
}

interface Entry {
  readonly atMs: number;
  readonly key: string;
}

export function createAgenda(): Agenda {
  const changed = new Set<string>();
  /** By priority, in the order of their arrival. */
  const buckets = new Map<string, Set<string>>();
  const priorities = new Map<string, string>();
  const times = new Map<string, number>();
  /** Binary heap. An entry whose time is not the one in `times` is out of date. */
  const heap: Entry[] = [];

  function leaveBucket(key: string): void {
    const priority = priorities.get(key);
    if (priority === undefined) return;
    priorities.delete(key);
    const bucket = buckets.get(priority);
    bucket?.delete(key);
    if (bucket?.size === 0) buckets.delete(priority);
  }

  function push(entry: Entry): void {
    let at = heap.push(entry) - 1;
    for (let parent = (at - 1) >> 1; at > 0; at = parent, parent = (at - 1) >> 1) {
      const above = heap[parent] as Entry;
      if (above.atMs <= entry.atMs) break;
      heap[at] = above;
      heap[parent] = entry;
    }
  }

  function pop(): void {
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      const right = left + 1;
      const child = (heap[right]?.atMs ?? Number.POSITIVE_INFINITY) < (heap[left]?.atMs ?? 0) ? right : left;
      const below = heap[child];
      if (below === undefined || below.atMs >= last.atMs) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
  }

  /** The earliest entry that is up to date. */
  function top(): Entry | undefined {
    for (let entry = heap[0]; entry !== undefined; entry = heap[0]) {
      if (times.get(entry.key) === entry.atMs) return entry;
      pop();
    }
    return undefined;
  }

  return {
    change: (key) => void changed.add(key),

    take(nowMs, most) {
      const taken: string[] = [];
      for (const key of changed) {
        if (taken.length === most) return taken;
        changed.delete(key);
        taken.push(key);
      }
      for (let entry = top(); entry !== undefined && entry.atMs <= nowMs; entry = top()) {
        if (taken.length === most) break;
        times.delete(entry.key);
        pop();
        taken.push(entry.key);
      }
      return taken;
    },

    ready(key, priority) {
      times.delete(key);
      if (priorities.get(key) === priority) return;
      leaveBucket(key);
      priorities.set(key, priority);
      const bucket = buckets.get(priority);
      if (bucket === undefined) buckets.set(priority, new Set([key]));
      else bucket.add(key);
    },

    later(key, atMs) {
      leaveBucket(key);
      times.delete(key);
      if (atMs === Number.POSITIVE_INFINITY) return;
      times.set(key, atMs);
      push({ atMs, key });
    },

    first() {
      const [priority] = [...buckets.keys()].sort();
      return priority === undefined ? undefined : buckets.get(priority)?.values().next().value;
    },

    size: (priority) => (priority === undefined ? priorities.size : (buckets.get(priority)?.size ?? 0)),
    nextMs: () => (changed.size > 0 ? Number.NEGATIVE_INFINITY : (top()?.atMs ?? Number.POSITIVE_INFINITY)),
  };
}
