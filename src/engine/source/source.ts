import type {
  Alarm,
  Gateway,
  Health,
  Host,
  Resolution,
  Site,
  System,
  Tag,
  TagLog,
  TagReading,
  TagScalar,
  TagTotal,
  TokenInfo,
} from "../../core/model/building.ts";
import type { OtherClientUse } from "./quota/caution.ts";

/**
 * A monitored service: one method per endpoint. Failures are the classes of src/core/errors/errors.ts.
 * `stored` returns records that the caller stores: pages contain these objects in place of equal records.
 */
export interface Source {
  readonly name: string;
  sites(filter: SiteFilter, signal: AbortSignal, held?: Known<Site>): AsyncIterable<Page<Site>>;
  alarms(filter: AlarmFilter, signal: AbortSignal, held?: Known<Alarm>): AsyncIterable<Page<Alarm>>;
  tags(filter: TagFilter, signal: AbortSignal, held?: Known<Tag>): AsyncIterable<Page<Tag>>;
  gateways(filter: GatewayFilter, signal: AbortSignal, held?: Known<Gateway>): AsyncIterable<Page<Gateway>>;
  hosts(filter: HostFilter, signal: AbortSignal, held?: Known<Host>): AsyncIterable<Page<Host>>;
  systems(filter: SystemFilter, signal: AbortSignal, held?: Known<System>): AsyncIterable<Page<System>>;
  /** Current values of 1 to 20 tags. */
  read(tagIds: readonly string[] | Choose<readonly string[]>, lane: Lane, signal: AbortSignal): Promise<ReadReply>;
  /**
   * Writes up to 20 tags. `prepare` is called when a slot is free: without writes nothing is sent, and its rejection
   * rejects. After `Retryable` or `Malformed` the write may have happened: read back, never repeat it.
   */
  write(prepare: () => Promise<readonly TagWrite[]>, signal: AbortSignal): Promise<WriteReply>;
  /** Logged series of 1 to 20 tags; `NoLog` when any of them has none. */
  history(query: HistoryQuery | Choose<HistoryQuery>, lane: Lane, signal: AbortSignal): Promise<readonly TagLog[]>;
  /** Last minus first over the range, one per tag. */
  totals(query: HistoryQuery | Choose<HistoryQuery>, lane: Lane, signal: AbortSignal): Promise<readonly TagTotal[]>;
  me(signal: AbortSignal): Promise<TokenInfo>;
  health(signal: AbortSignal): Promise<Health>;
  quota(): QuotaStatus;
  listRate(): ListRate;
  /** Our clock minus the service's; null before the first `Date` header. */
  clockSkewMs(): number | null;
  close(): Promise<void>;
}

/** First served first; `spare` takes slots that all other lanes pass. */
export const LANES = ["write", "on-demand", "live", "history", "spare"] as const;
export type Lane = (typeof LANES)[number];

/** The endpoints that share 20 requests per minute, or have 20 each (interface, Limits). */
export const QUOTA_ENDPOINTS = ["read", "write", "history"] as const;
export type QuotaEndpoint = (typeof QUOTA_ENDPOINTS)[number];

/** Chooses the content when a slot is free; must not wait. Its error rejects the request. */
export type Choose<T> = (offer: SlotOffer) => Choice<T>;
/** `passMs`: the slot goes to the next lane; the choice is repeated for the next slot, at most so much later. */
export type Choice<T> = { readonly ask: T } | { readonly passMs: number };

export interface SlotOffer {
  /** True when the slot belongs to this lane because it was passed over so often. */
  readonly own: boolean;
}

export const TAGS_PER_REQUEST = 20;

/** Commas separate ids in the query (interface, GET tags/read). */
export function isAskable(id: string): boolean {
  return id !== "" && !id.includes(",");
}

export interface SiteFilter {
  readonly search?: string;
}

export interface AlarmFilter {
  readonly siteId?: number;
  /** Always sent: the interface's own default hides resolved alarms. */
  readonly status: "active" | "resolved" | "all";
  readonly priority?: "A" | "B" | "C";
  readonly acknowledged?: boolean;
  readonly search?: string;
}

export interface TagFilter {
  readonly siteId: number;
  readonly search?: string;
  readonly systemId?: string;
}

export interface GatewayFilter {
  readonly siteId: number;
  readonly isUrgent?: boolean;
  readonly search?: string;
}

export interface HostFilter {
  readonly siteId: number;
  readonly gatewayId?: string;
  readonly search?: string;
}

export interface SystemFilter {
  readonly siteId: number;
  readonly search?: string;
}

/** Returns the stored record of an id, which replaces an equal record of a reply. Do not change the object. */
export type Known<T> = (id: string) => T | undefined;

export interface Page<T> {
  readonly items: readonly T[];
  /** 1 for the first page. */
  readonly number: number;
  readonly lastPage: number;
  /** Records over all pages by this page; null when the page does not say. */
  readonly total: number | null;
  readonly more: boolean;
  /** Records without a usable id, quoted and shortened; only for alarms. */
  readonly unreadable?: readonly string[];
}

export interface ReadReply {
  readonly readings: readonly TagReading[];
  /** Requested tags without a usable value in the reply. */
  readonly leftOut?: readonly LeftOut[];
  readonly receivedAtMs: number;
  readonly latencyMs: number;
}

export interface LeftOut {
  readonly id: string;
  /** `unreadable`: a value that the interface does not allow. `unanswered`: the reply does not list the tag. */
  readonly kind: "unreadable" | "unanswered";
  readonly reason: string;
}

export interface TagWrite {
  readonly tagId: string;
  readonly value: TagScalar;
}

export interface WriteReply {
  /** A missing tag has an unknown fate. */
  readonly written: readonly TagReading[];
  readonly receivedAtMs: number;
}

export interface HistoryQuery {
  readonly tagIds: readonly string[];
  /** ISO 8601 with trailing Z. */
  readonly from: string;
  /** ISO 8601 with trailing Z; the interface does not state whether the end is inclusive. */
  readonly to: string;
  readonly resolution: Resolution;
  /** IANA zone for the alignment of buckets. */
  readonly timeZone: string;
}

export interface ListRate {
  /** Now allowed, after refusals. */
  readonly perMinute: number;
  readonly configured: number;
}

export interface QuotaStatus {
  /** One quota for all tag endpoints, or one for each. */
  readonly buckets: readonly RateLimitStatus[];
  /** Until when every lane must wait (503), milliseconds since 1970. */
  readonly heldUntilMs: number | null;
}

export interface RateLimitStatus {
  readonly name: string;
  readonly perMinute: number;
  /** Requests that polls get now: without the reserve, and what politeness, refusals or another client take. */
  readonly pacedPerMinute: number;
  /** The same without the slow first minute after a start without a record. */
  readonly lastingPerMinute: number;
  readonly used: number;
  readonly waiting: Readonly<Record<Lane, number>>;
  readonly heldUntilMs: number | null;
  /** For a request of the lane `live`. */
  readonly nextSlotInMs: number;
  readonly throttled: number;
  readonly foreign: OtherClientUse | null;
}
