import { z } from "zod";
import { Retryable } from "../../src/core/errors/errors.ts";
import { type SlackApi, TOO_LONG } from "./api.ts";

/** What we give to a message of ours beside its text; nobody sees it, and apps can read it. */
export interface Mark {
  readonly event_type: "plenum_incident" | "plenum_reply";
  readonly event_payload: Readonly<Record<string, string>>;
}

export interface Marked {
  readonly ts: string;
  readonly payload: Readonly<Record<string, unknown>>;
}

export interface Listed {
  /** The oldest first. */
  readonly marked: readonly Marked[];
  /** False where there are more messages than are looked at. */
  readonly isWhole: boolean;
  /** One of the words that are `understood`; null where Slack said yes. */
  readonly error: string | null;
}

/** Messages asked for at a time; fewer where the answer is too long to be read (a full message takes up to 40 kB). */
const PAGE_SIZES = ["100", "20", "5", "1"] as const;

/** At most so many answers are read for one search, so that a busy channel ends it. */
const MOST_PAGES = 20;

const Listing = z.looseObject({
  messages: z.array(z.unknown()),
  has_more: z.boolean().catch(false),
  response_metadata: z.looseObject({ next_cursor: z.string().catch("") }).catch({ next_cursor: "" }),
});

const Message = z.looseObject({
  ts: z.string(),
  metadata: z.looseObject({
    event_type: z.string(),
    event_payload: z.record(z.string(), z.unknown()),
  }),
});

/**
 * The messages that have such a mark, of a channel or of a thread; more in their payload does no harm. Of a channel those
 * of the first page that has any.
 */
export async function listMarked(
  api: SlackApi,
  method: "conversations.history" | "conversations.replies",
  query: Readonly<Record<string, string>>,
  mark: Mark,
  signal: AbortSignal,
  understood: readonly string[] = [],
): Promise<Listed> {
  let marked: readonly Marked[] = [];
  let cursor = "";
  let sizes: readonly string[] = PAGE_SIZES;
  const listed = (isWhole: boolean, error: string | null = null) => ({ marked, isWhole, error });
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const [limit = "1", ...smaller] = sizes;
    const asked = { ...query, include_all_metadata: "true", limit, ...(cursor === "" ? {} : { cursor }) };
    const known = smaller.length === 0 ? understood : [...understood, TOO_LONG];
    const answer = await api.get(method, asked, signal, known);
    if (answer.error === TOO_LONG) {
      sizes = smaller;
      continue;
    }
    if (answer.error !== null) return listed(true, answer.error);
    const listing = Listing.safeParse(answer.json);
    if (!listing.success) throw new Retryable(`Slack answered ${method} without messages.`);
    const { messages, has_more, response_metadata } = listing.data;
    marked = [...marked, ...messages.flatMap((message) => markedWith(message, mark))].toSorted((a, b) =>
      a.ts < b.ts ? -1 : 1,
    );
    cursor = response_metadata.next_cursor;
    if (cursor === "" && has_more) {
      throw new Retryable(`Slack answered ${method} with a part and no word of the rest.`);
    }
    if (cursor === "" || (method === "conversations.history" && marked.length > 0)) return listed(true);
  }
  return listed(false);
}

function markedWith(message: unknown, { event_type, event_payload }: Mark): Marked[] {
  const told = Message.safeParse(message);
  if (!told.success || told.data.metadata.event_type !== event_type) return [];
  const payload = told.data.metadata.event_payload;
  const fits = Object.entries(event_payload).every(([name, value]) => payload[name] === value);
  return fits ? [{ ts: told.data.ts, payload }] : [];
}
