import type { TagLog } from "../../core/model/building.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { WritableTag } from "../../engine/commands/allow-list.ts";
import type { HistoryQuery } from "../../engine/source/source.ts";
import type { LagFilter, Store } from "../../engine/store/store.ts";
import type { LiveTagState, TagReadClass } from "../../engine/sync/live-tag-state.ts";
import type { Plots } from "../plots/plot-storage.ts";
import type { CachedDocuments } from "./cache-of-stored-documents.ts";
import type { ListCommands } from "./command-list.ts";
import type { RunningSink } from "./sink-reports.ts";
import type { TagIndex } from "./tag-index.ts";

/** Address of a tag in a sink, such as an MQTT topic or a database query. */
export interface SinkAddress {
  readonly sink: string;
  readonly connector: string;
  readonly text: string;
}

/** Requests history with spare quota; returns null if no worker is running for the source. */
export type FetchHistory = (
  source: string,
  query: Omit<HistoryQuery, "timeZone">,
  signal: AbortSignal,
) => Promise<readonly TagLog[]> | null;

export interface RunningWorker {
  findReadClass(source: string, tagId: string): TagReadClass | null;
  findLiveTagState(source: string, tagId: string): LiveTagState | null;
  sinks(): readonly RunningSink[];
  /** Returns the topic or query of each sink whose filter accepts the event. */
  findSinkAddresses(event: Event): Promise<readonly SinkAddress[]>;
  /** Returns the limits of values to write; null for a tag that may not be written. */
  findWritableTag(source: string, tagId: string): Promise<WritableTag | null>;
  allowedRequestsPerMinute(source: string): number;
  readonly fetchHistory: FetchHistory;
}

export interface PageApiOptions {
  readonly clock: Clock;
  readonly store: Store;
  readonly sources: readonly string[];
  /** Returns the sinks and their filters; a sink without a filter receives all events. */
  readonly sinksAndFilters: () => {
    readonly sinks: readonly string[];
    readonly filterBySink: ReadonlyMap<string, LagFilter>;
  };
  readonly live: RunningWorker;
  readonly plots: Pick<Plots, "minutes" | "raised" | "refused" | "tags"> | null;
}

export interface ResponseContext extends PageApiOptions {
  readonly cache: CachedDocuments;
  readonly tags: TagIndex;
  readonly listCommands: ListCommands;
}
