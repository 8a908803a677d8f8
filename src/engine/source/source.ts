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
 * A monitored service as the rest of Plenum sees it: one method per endpoint, domain values out, and failures
 * as the classes of src/core/errors/errors.ts. Quota, deadlines, paging, decoding and the token are inside.
 *
 * Lists come page by page, because only the caller can say what an interrupted listing means to it. A caller who holds
 * what a list showed last time says so (`held`), and is shown again what it holds wherever the service says the same.
 */
export interface Source {
  readonly name: string;
  sites(filter: SiteFilter, signal: AbortSignal, held?: Known<Site>): AsyncIterable<Page<Site>>;
  alarms(filter: AlarmFilter, signal: AbortSignal, held?: Known<Alarm>): AsyncIterable<Page<Alarm>>;
  tags(filter: TagFilter, signal: AbortSignal, held?: Known<Tag>): AsyncIterable<Page<Tag>>;
  gateways(filter: GatewayFilter, signal: AbortSignal, held?: Known<Gateway>): AsyncIterable<Page<Gateway>>;
  hosts(filter: HostFilter, signal: AbortSignal, held?: Known<Host>): AsyncIterable<Page<Host>>;
  systems(filter: SystemFilter, signal: AbortSignal, held?: Known<System>): AsyncIterable<Page<System>>;
  /** Current values of 1 to 20 tags: of these, or of those that are chosen when a slot is free. */
  read(tagIds: readonly string[] | Choose<readonly string[]>, lane: Lane, signal: AbortSignal): Promise<ReadReply>;
  /**
   * Writes up to 20 tags in one request. `prepare` is called when a slot of the quota is free, right before the
   * request leaves: it says what to write at that moment, after it has made its record durable. When it returns
   * nothing, nothing is sent; when it rejects, nothing is sent and `write` rejects with the same error.
   *
   * A `Retryable` or `Malformed` means that the write may have happened: never repeat it, read back.
   */
  write(prepare: () => Promise<readonly TagWrite[]>, signal: AbortSignal): Promise<WriteReply>;
  /** Logged series of 1 to 20 tags; `NoLog` when any of them has none. */
  history(query: HistoryQuery | Choose<HistoryQuery>, lane: Lane, signal: AbortSignal): Promise<readonly TagLog[]>;
  /** Last minus first over the range, one per tag. */
  totals(query: HistoryQuery | Choose<HistoryQuery>, lane: Lane, signal: AbortSignal): Promise<readonly TagTotal[]>;
  me(signal: AbortSignal): Promise<TokenInfo>;
  health(signal: AbortSignal): Promise<Health>;
  quota(): QuotaStatus;
  /** Current rate of list requests. */
  listRate(): ListRate;
  /** Our clock minus the service's by the last replies' Date headers, milliseconds; null while none said. */
  clockSkewMs(): number | null;
  close(): Promise<void>;
}

/** Priority classes of the shared quota, first served first; `spare` takes what all the others let pass. */
export const LANES = ["write", "on-demand", "live", "history", "spare"] as const;
export type Lane = (typeof LANES)[number];

/** The endpoints that share 20 requests per minute, or have 20 each (interface, Limits). */
export const QUOTA_ENDPOINTS = ["read", "write", "history"] as const;
export type QuotaEndpoint = (typeof QUOTA_ENDPOINTS)[number];

/**
 * Decides what to ask for at the moment a slot of the quota is free, so that nothing is decided for a later moment.
 * Called for every free slot that no lane before has taken, until it takes one; it must not wait for anything. What
 * it throws, the request rejects with.
 */
export type Choose<T> = (offer: SlotOffer) => Choice<T>;
/** `pass`: the slot goes to the next lane; asked again at the next slot, after so many milliseconds at the latest. */
export type Choice<T> = { readonly ask: T } | { readonly passMs: number };

export interface SlotOffer {
  /** True when the lane was passed over so often that this slot is its own, whatever the lanes before it want. */
  readonly own: boolean;
}

/** Tags in one read, write or history request (interface, Limits). */
export const TAGS_PER_REQUEST = 20;

/** Returns true if a tag can be requested: commas separate ids in the query (interface, GET tags/read). */
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
  /** Read before other lists. */
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

/**
 * Returns the stored record of an id. An equal record of a reply is replaced by that object: it is in memory once, and
 * a comparison by reference succeeds. Do not change it.
 */
export type Known<T> = (id: string) => T | undefined;

export interface Page<T> {
  readonly items: readonly T[];
  /** 1 for the first page. */
  readonly number: number;
  readonly lastPage: number;
  /** Records over all pages, as this page states it; it may change while paging. Null when the page does not say. */
  readonly total: number | null;
  /** True when another page follows. */
  readonly more: boolean;
  /** Records without a usable id, quoted and shortened. Any other page than one of alarms is rejected for them. */
  readonly unreadable?: readonly string[];
}

export interface ReadReply {
  readonly readings: readonly TagReading[];
  /** Tags that were asked for and of which the reply says nothing that is a value. */
  readonly leftOut?: readonly LeftOut[];
  /** Wall time, milliseconds since 1970, at which the reply was complete. */
  readonly receivedAtMs: number;
  readonly latencyMs: number;
}

export interface LeftOut {
  readonly id: string;
  /** `unreadable`: the reply has a value that the interface does not allow. `unanswered`: the reply does not list the tag. */
  readonly kind: "unreadable" | "unanswered";
  /** One sentence. */
  readonly reason: string;
}

export interface TagWrite {
  readonly tagId: string;
  readonly value: TagScalar;
}

export interface WriteReply {
  /** The tags that the reply lists; one that is missing has an unknown fate. */
  readonly written: readonly TagReading[];
  readonly receivedAtMs: number;
}

export interface HistoryQuery {
  readonly tagIds: readonly string[];
  /** Start of the range, ISO 8601 with trailing Z. */
  readonly from: string;
  /** End of the range, ISO 8601 with trailing Z. Whether it is inclusive is not stated by the interface. */
  readonly to: string;
  readonly resolution: Resolution;
  /** IANA zone for the alignment of buckets. */
  readonly timeZone: string;
}

/** Requests per minute to lists and the token information. */
export interface ListRate {
  /** As allowed now, after refusals. */
  readonly perMinute: number;
  readonly configured: number;
}

export interface QuotaStatus {
  /** Remaining requests per quota: one quota for all tag endpoints, or one for each. */
  readonly buckets: readonly RateLimitStatus[];
  /** Until when the service told every lane to wait (503), milliseconds since 1970; null when it did not. */
  readonly heldUntilMs: number | null;
}

export interface RateLimitStatus {
  readonly name: string;
  readonly perMinute: number;
  /** Requests per minute that polls get of it now: without the reserve, the polite share's rest, and what refusals or a foreign client take. */
  readonly pacedPerMinute: number;
  /** The same without the care of the first minute after a start that found no record: what a plan counts with. */
  readonly lastingPerMinute: number;
  /** Slots that count now. */
  readonly used: number;
  readonly waiting: Readonly<Record<Lane, number>>;
  readonly heldUntilMs: number | null;
  /** Milliseconds until a request of this lane could leave if it came now. */
  readonly nextSlotInMs: number;
  readonly throttled: number;
  /** Evidence of another client that uses the same quota; null if there is none. */
  readonly foreign: OtherClientUse | null;
}
