import type { Store } from "../../engine/store/store.ts";

/** Recent rejections and failures of the service, by source. */
export interface Refusals {
  load(): Promise<void>;
  note(source: string, refused: Refused): void;
  /** Newest first, at most 50. */
  of(source: string): readonly Refused[];
  write(): Promise<void>;
}

export interface Refused {
  /** UTC. */
  readonly at: string;
  readonly what: string;
  readonly words: string;
}

const KEY = "refused";
const KEPT = 50;
/** The same of the same thing is not noted again for so long, so that an outage leaves room for others; milliseconds. */
const SAME_MS = 3_600_000;

export function createRefusals(set: string, store: Pick<Store, "commit" | "document">): Refusals {
  let bySource: Readonly<Record<string, readonly Refused[]>> = {};
  let isChanged = false;

  return {
    async load() {
      bySource = (await store.document<typeof bySource>(set, KEY)) ?? {};
    },
    note(source, refused) {
      const before = bySource[source] ?? [];
      const { at, what, words } = refused;
      const isKnown = before.some(
        (each) =>
          each.what === what && each.words === words && Math.abs(Date.parse(at) - Date.parse(each.at)) < SAME_MS,
      );
      if (isKnown) return;
      bySource = { ...bySource, [source]: [refused, ...before].slice(0, KEPT) };
      isChanged = true;
    },
    of: (source) => bySource[source] ?? [],
    async write() {
      if (!isChanged) return;
      await store.commit({ documents: [{ set, put: [[KEY, bySource]] }] });
      isChanged = false;
    },
  };
}
