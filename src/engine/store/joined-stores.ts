import { ConfigError } from "../../core/errors/errors.ts";
import type { LoggedEvent, SinkLag, Store } from "./store.ts";

export interface SourceStore {
  readonly source: string;
  readonly store: Store;
}

/** Joins the stores of a fleet's sources. The set `tag/north` is in the store of `north`, `silence` in all stores. */
export function joinSourceStores(sourceStores: readonly SourceStore[]): Store {
  const [onlySourceStore] = sourceStores;
  if (sourceStores.length === 1 && onlySourceStore !== undefined) return onlySourceStore.store;
  const stores = sourceStores.map(({ store }) => store);
  const storeBySource = new Map(sourceStores.map(({ source, store }) => [source, store]));
  const queryStores = <T>(read: (store: Store) => Promise<T>) => Promise.all(stores.map(read));
  const sumOfStores = async (read: (store: Store) => Promise<number>) => sum(await queryStores(read));

  /** Returns the stores with a document set. All stores have sink state, even of a sink with the name of a source. */
  function storesWithSet(setName: string): readonly Store[] {
    const slashIndex = setName.lastIndexOf("/");
    const sourceStore = setName.startsWith("memory/") ? undefined : storeBySource.get(setName.slice(slashIndex + 1));
    return slashIndex > 0 && sourceStore !== undefined ? [sourceStore] : stores;
  }

  const rejectCall = async (): Promise<never> => {
    throw new ConfigError(
      `This asks one source of the fleet; add --source and one of ${[...storeBySource.keys()].join(", ")}.`,
    );
  };

  return {
    async document<T>(set: string, key: string) {
      for (const store of storesWithSet(set)) {
        const storedDocument = await store.document<T>(set, key);
        if (storedDocument !== undefined) return storedDocument;
      }
      return undefined;
    },
    async documents<T>(set: string) {
      const documentMaps = await Promise.all(storesWithSet(set).map((store) => store.documents<T>(set)));
      return new Map(documentMaps.flatMap((documentMap) => [...documentMap]));
    },
    version: async (set) => sum(await Promise.all(storesWithSet(set).map((store) => store.version(set)))),
    changes: () => sumOfStores((store) => store.changes()),
    damagedKeys: async (set) => (await queryStores((store) => store.damagedKeys(set))).flat(),
    async commit({ documents = [], events = [], records = [] }) {
      if (events.length > 0 || records.length > 0) await rejectCall();
      for (const targetStore of stores) {
        const targetChanges = documents.filter(({ set }) => storesWithSet(set).includes(targetStore));
        if (targetChanges.length > 0) await targetStore.commit({ documents: targetChanges });
      }
      return { lastPosition: 0, repeated: [] };
    },
    putDeferred: async (set, key, value) =>
      void (await Promise.all(storesWithSet(set).map((store) => store.putDeferred(set, key, value)))),
    records: rejectCall,
    lastRecord: rejectCall,
    async describe() {
      const descriptions = await queryStores((store) => store.describe());
      const [firstDescription] = descriptions;
      if (firstDescription === undefined) throw new RangeError("A fleet has one source at least.");
      return { ...firstDescription, damaged: descriptions.flatMap(({ damaged }) => damaged) };
    },
    close: async () => void (await queryStores((store) => store.close())),
    quotaStore: {
      ...{ load: rejectCall, save: rejectCall, saveDeferred: rejectCall, forgetSlots: rejectCall },
      ...{ loadPause: rejectCall, savePause: rejectCall, loadClock: rejectCall, saveClock: rejectCall },
    },
    outbox: {
      ...{ register: rejectCall, next: rejectCall, nextUrgent: rejectCall, settle: rejectCall },
      ...{ prune: rejectCall, after: rejectCall, replayBetween: rejectCall },
      setEnded: async (sink, reason) => void (await queryStores(({ outbox }) => outbox.setEnded(sink, reason))),
      async deadLetters(sink, limit = 100) {
        const deadLetters = (await queryStores(({ outbox }) => outbox.deadLetters(sink, limit))).flat();
        return deadLetters.toSorted((a, b) => b.at.localeCompare(a.at)).slice(0, limit);
      },
      // Ids of dead letters are unique in a database, so one source has each.
      resendDeadLetters: (sink, ids) => sumOfStores(({ outbox }) => outbox.resendDeadLetters(sink, ids)),
      discardDeadLetters: (sink, ids) => sumOfStores(({ outbox }) => outbox.discardDeadLetters(sink, ids)),
      replay: (sink, since, kinds) => sumOfStores(({ outbox }) => outbox.replay(sink, since, kinds)),
      lag: async (lagFilters) => sumSinkLags((await queryStores(({ outbox }) => outbox.lag(lagFilters))).flat()),
      async pressure() {
        const pressures = await queryStores(({ outbox }) => outbox.pressure());
        return {
          bytes: sum(pressures.map(({ bytes }) => bytes)),
          pendingBytes: Math.max(...pressures.map(({ pendingBytes }) => pendingBytes)),
          oldestTelemetry: pressures.flatMap(({ oldestTelemetry }) => oldestTelemetry ?? []).toSorted()[0] ?? null,
        };
      },
      latest: async (limit, kinds, query) =>
        selectNewestEvents((await queryStores(({ outbox }) => outbox.latest(limit, kinds, query))).flat(), limit),
      recent: async (query, kinds, bounds) =>
        selectNewestEvents(
          (await queryStores(({ outbox }) => outbox.recent(query, kinds, bounds))).flat(),
          bounds.limit,
        ),
      waitForChange: async (signal) => Promise.race(stores.map(({ outbox }) => outbox.waitForChange(signal))),
    },
  };
}

function selectNewestEvents(events: readonly LoggedEvent[], limit: number): readonly LoggedEvent[] {
  return events.toSorted((a, b) => b.committedAt.localeCompare(a.committedAt)).slice(0, limit);
}

function sumSinkLags(lags: readonly SinkLag[]): readonly SinkLag[] {
  return [...Map.groupBy(lags, ({ sink }) => sink).values()].flatMap((sourceLags) => {
    const [firstLag] = sourceLags;
    if (firstLag === undefined) return [];
    const sumLagField = (getValue: (lag: SinkLag) => number) => sum(sourceLags.map(getValue));
    return {
      ...firstLag,
      ended: sourceLags.find(({ ended }) => ended !== null)?.ended ?? null,
      depth: sumLagField(({ depth }) => depth),
      oldest: sourceLags.flatMap(({ oldest }) => oldest ?? []).toSorted()[0] ?? null,
      exact: sourceLags.every(({ exact }) => exact),
      deadLetters: sumLagField(({ deadLetters }) => deadLetters),
      again: sumLagField(({ again }) => again),
      dropped: sumLagField(({ dropped }) => dropped),
      remembered: sumLagField(({ remembered }) => remembered),
    };
  });
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
