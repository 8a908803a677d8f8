import { z } from "zod";
import { Retryable } from "../../src/errors.ts";
import { type SlackApi, TOO_LONG } from "./api.ts";

/** What is looked for: metadata that we gave to a message of ours. */
export interface Mark {
  readonly event_type: string;
  readonly event_payload: Readonly<Record<string, string>>;
}

export interface Found {
  readonly ts: string | null;
  /** False where there are more messages than are looked at, so that it may be among them. */
  readonly isSure: boolean;
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

/** The oldest message with such a mark, by `conversations.history` or `conversations.replies`. */
export async function messageWith(
  api: SlackApi,
  method: "conversations.history" | "conversations.replies",
  query: Readonly<Record<string, string>>,
  mark: Mark,
  signal: AbortSignal,
  understood: readonly string[] = [],
): Promise<Found> {
  let cursor = "";
  let sizes: readonly string[] = PAGE_SIZES;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const [limit = "1", ...smaller] = sizes;
    const asked = { ...query, include_all_metadata: "true", limit, ...(cursor === "" ? {} : { cursor }) };
    const known = smaller.length === 0 ? understood : [...understood, TOO_LONG];
    const answer = await api.get(method, asked, signal, known);
    if (answer.error === TOO_LONG) {
      sizes = smaller;
      continue;
    }
    if (answer.error !== null) return { ts: null, isSure: true, error: answer.error };
    const listing = Listing.safeParse(answer.json);
    if (!listing.success) throw new Retryable(`Slack answered ${method} without messages.`);
    const { messages, has_more, response_metadata } = listing.data;
    const ts = messages.flatMap((message) => tsOf(message, mark)).toSorted()[0];
    if (ts !== undefined) return { ts, isSure: true, error: null };
    cursor = response_metadata.next_cursor;
    if (cursor === "") {
      if (has_more) throw new Retryable(`Slack answered ${method} with a part and no word of the rest.`);
      return { ts: null, isSure: true, error: null };
    }
  }
  return { ts: null, isSure: false, error: null };
}

function tsOf(message: unknown, mark: Mark): string[] {
  const told = Message.safeParse(message);
  if (!told.success || told.data.metadata.event_type !== mark.event_type) return [];
  const payload = told.data.metadata.event_payload;
  const isIt = Object.entries(mark.event_payload).every(([name, value]) => payload[name] === value);
  return isIt ? [told.data.ts] : [];
}
