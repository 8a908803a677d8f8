import type { Failure } from "../../core/errors/errors.ts";
import type {
  Alarm,
  Gateway,
  Host,
  Resolution,
  ServiceHealth,
  Site,
  System,
  Tag,
  TagLog,
  TagReading,
  TagScalar,
  TagTotal,
  TokenInfo,
} from "../../core/model/building.ts";
import type { OtherClientUse } from "./quota/refusal-slowdown.ts";

/** The monitoring service. Throws failures of core/errors. `findStored` lets lists reuse equal stored objects. */
export interface Source {
  readonly name: string;
  sites(filter: SiteFilter, signal: AbortSignal, findStored?: FindRecord<Site>): AsyncIterable<ListPage<Site>>;
  alarms(filter: AlarmFilter, signal: AbortSignal, findStored?: FindRecord<Alarm>): AsyncIterable<ListPage<Alarm>>;
  tags(filter: TagFilter, signal: AbortSignal, findStored?: FindRecord<Tag>): AsyncIterable<ListPage<Tag>>;
  gateways(
    filter: GatewayFilter,
    signal: AbortSignal,
    findStored?: FindRecord<Gateway>,
  ): AsyncIterable<ListPage<Gateway>>;
  hosts(filter: SystemFilter, signal: AbortSignal, findStored?: FindRecord<Host>): AsyncIterable<ListPage<Host>>;
  systems(filter: SystemFilter, signal: AbortSignal, findStored?: FindRecord<System>): AsyncIterable<ListPage<System>>;
  read(tagIds: RequestContent<readonly string[]>, lane: QueueLane, signal: AbortSignal): Promise<TagReadReply>;
  /** Sends nothing if `prepareWrites` returns no writes. The caller reads a failed write back and never repeats it. */
  write(prepareWrites: () => Promise<readonly TagWrite[]>, signal: AbortSignal): Promise<readonly TagReading[]>;
  /** Returns the history of 1 to 20 tags; throws `NoTagLog` if the service logs no history of one of them. */
  history(query: RequestContent<HistoryQuery>, lane: QueueLane, signal: AbortSignal): Promise<readonly TagLog[]>;
  totals(query: RequestContent<HistoryQuery>, lane: QueueLane, signal: AbortSignal): Promise<readonly TagTotal[]>;
  me(signal: AbortSignal): Promise<TokenInfo>;
  health(signal: AbortSignal): Promise<ServiceHealth>;
  quota(): QuotaStatus;
  listRate(): ListRequestRate;
  clockSkewMs(): number | null;
  close(): Promise<void>;
}

/** Priorities of requests, highest first; `spare` gets the request slots that no other lane uses. */
export const LANES = ["write", "on-demand", "live", "history", "spare"] as const;
export type QueueLane = (typeof LANES)[number];

/** The endpoints that share 20 requests per minute, or have 20 each (interface, Limits). */
export const QUOTA_ENDPOINTS = ["read", "write", "history"] as const;
export type QuotaEndpoint = (typeof QUOTA_ENDPOINTS)[number];

/** Chooses the content of a request when a slot is free; must not wait. A thrown error rejects the request. */
export type RequestChooser<T> = (offer: OfferedSlot) => RequestChoice<T>;
export type RequestContent<T> = T | RequestChooser<T>;
export type RequestChoice<T> = { readonly content: T } | { readonly declineForMs: number };

export interface OfferedSlot {
  readonly isLaneOverdue: boolean;
}

export const TAGS_PER_REQUEST = 20;

/** Tag ids with a comma cannot be requested: commas separate ids in the query. */
export function isRequestableTagId(id: string): boolean {
  return id !== "" && !id.includes(",");
}

export interface SiteFilter {
  readonly search?: string;
}

export interface AlarmFilter extends SiteFilter {
  readonly siteId?: number;
  /** The status filter is always sent, because the interface's default hides resolved alarms. */
  readonly status: "active" | "resolved" | "all";
  readonly priority?: "A" | "B" | "C";
  readonly acknowledged?: boolean;
}

export interface SystemFilter extends SiteFilter {
  readonly siteId: number;
}

export type TagFilter = SystemFilter & { readonly systemId?: string };
export type GatewayFilter = SystemFilter & { readonly isUrgent?: boolean };

export type FindRecord<T> = (id: string) => T | undefined;

export interface ListPage<T> {
  readonly items: readonly T[];
  readonly number: number;
  readonly lastPage: number;
  readonly total: number | null;
  readonly hasMore: boolean;
  readonly unreadable?: readonly string[];
  /** Failure of a part of this page, whose records are missing. */
  readonly failure?: Failure;
}

export interface TagReadReply {
  readonly readings: readonly TagReading[];
  readonly unreadTags?: readonly UnreadTag[];
  readonly receivedAtMs: number;
  readonly latencyMs: number;
}

export interface UnreadTag {
  readonly id: string;
  /** `unreadable`: a value that the interface does not allow. `unanswered`: the reply does not list the tag. */
  readonly kind: "unreadable" | "unanswered";
  readonly reason: string;
}

export interface TagWrite {
  readonly tagId: string;
  readonly value: TagScalar;
}

export interface HistoryQuery {
  readonly tagIds: readonly string[];
  readonly from: string;
  /** ISO 8601 with trailing Z; the interface does not state whether the end is inclusive. */
  readonly to: string;
  readonly resolution: Resolution;
  readonly timeZone: string;
}

export interface ListRequestRate {
  readonly perMinute: number;
  readonly configured: number;
}

export interface QuotaStatus {
  readonly buckets: readonly RateLimitStatus[];
  readonly heldUntilMs: number | null;
}

export interface RateLimitStatus {
  readonly name: string;
  readonly perMinute: number;
  readonly pacedPerMinute: number;
  readonly lastingPerMinute: number;
  readonly used: number;
  readonly waiting: Readonly<Record<QueueLane, number>>;
  readonly heldUntilMs: number | null;
  readonly nextSlotInMs: number;
  readonly throttled: number;
  readonly foreign: OtherClientUse | null;
}
