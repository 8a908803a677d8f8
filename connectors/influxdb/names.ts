import type { System } from "../../src/building.ts";
import type { ConnectorContext, Picture } from "../../src/connector.ts";
import { type AnyEvent, type Event, sourceName } from "../../src/event.ts";
import { historyText } from "../../src/history-event.ts";

/** What can be written beside the ids, as tags of a point. */
export const NAME_TAGS = ["name", "site_name", "system"] as const;
export type NameTag = (typeof NAME_TAGS)[number];

/** Names are believed for so long, in milliseconds: to look one up takes some 30 µs, which is more than its point does. */
const BELIEVED_MS = 60_000;
/** Names that are kept in memory, of some 100 bytes each; then all are looked up anew. */
const MOST_KEPT = 100_000;

export interface Names {
  /** Looks up what `of` will answer for these events. */
  prepare(batch: readonly Event[]): Promise<void>;
  of(event: Event): Readonly<Partial<Record<NameTag, string>>>;
}

/**
 * Names for who cannot join: InfluxQL has no join, and VictoriaMetrics keeps no texts but these. The name of a tag is what
 * the event itself says, so that an old event keeps its old name; that of its site and systems is the one known now.
 */
export function createNames(
  wanted: readonly NameTag[],
  { clock, picture }: Pick<ConnectorContext, "clock" | "picture">,
): Names {
  const kept = new Map<string, string | null>();
  let sinceMs = clock.monotonic();

  async function keep(key: string, find: () => Promise<string | null>): Promise<void> {
    if (!kept.has(key)) kept.set(key, await find());
  }

  function forget(): void {
    const nowMs = clock.monotonic();
    if (nowMs - sinceMs < BELIEVED_MS && kept.size < MOST_KEPT) return;
    kept.clear();
    sinceMs = nowMs;
  }

  return {
    async prepare(batch) {
      if (wanted.length === 0) return;
      forget();
      for (const event of batch) {
        const about = aboutOf(event);
        if (about === null) continue;
        const { source, site, tag } = about;
        if (site !== null && wanted.includes("site_name")) {
          await keep(siteKey(source, site), () => siteName(picture, source, site));
        }
        if (tag === null) continue;
        if (tag.name === null && wanted.includes("name")) {
          await keep(nameKey(source, tag.id), () => tagName(picture, source, tag.id));
        }
        if (wanted.includes("system")) {
          await keep(systemKey(source, tag.id), async () => codesOf(await picture.systemsOf(source, tag.id)));
        }
      }
    },

    of(event) {
      const about = wanted.length === 0 ? null : aboutOf(event);
      if (about === null) return {};
      const { source, site, tag } = about;
      const known: Record<NameTag, string | null | undefined> = {
        name: tag === null ? null : (tag.name ?? kept.get(nameKey(source, tag.id))),
        site_name: site === null ? null : kept.get(siteKey(source, site)),
        system: tag === null ? null : kept.get(systemKey(source, tag.id)),
      };
      return Object.fromEntries(
        wanted.flatMap((name) => {
          const text = known[name];
          return text === null || text === undefined ? [] : [[name, text]];
        }),
      );
    },
  };
}

interface About {
  readonly source: string;
  readonly site: string | null;
  /** The name is null where the event does not say it. */
  readonly tag: { readonly id: string; readonly name: string | null } | null;
}

/** What an event is about; null for the worker's own. */
function aboutOf(event: Event): About | null {
  const source = sourceName(event);
  return source === null ? null : { source, site: event.siteid ?? null, tag: tagOf(event as AnyEvent) };
}

function tagOf(event: AnyEvent): About["tag"] {
  switch (event.type) {
    case "tag-value":
    case "tag-total":
      return { id: event.data.tag.id, name: event.data.tag.displayName };
    case "tag-history": {
      const { tag } = historyText(event).fact;
      return { id: tag.id, name: tag.displayName };
    }
    case "command-accepted":
    case "command-result":
    case "command-not-restored":
      return event.data.tagId === null ? null : { id: event.data.tagId, name: null };
    default:
      return null;
  }
}

async function siteName(picture: Picture, source: string, id: string): Promise<string | null> {
  return (await picture.one("site", source, id))?.displayName ?? null;
}

async function tagName(picture: Picture, source: string, id: string): Promise<string | null> {
  return (await picture.one("tag", source, id))?.displayName ?? null;
}

/** A tag that several systems list is in all of them: `320.001+360.001`. */
function codesOf(systems: readonly System[]): string | null {
  if (systems.length === 0) return null;
  return systems
    .map(({ code, displayName }) => (code === "" ? displayName : code))
    .toSorted()
    .join("+");
}

const siteKey = (source: string, id: string) => `site ${source} ${id}`;
const nameKey = (source: string, id: string) => `name ${source} ${id}`;
const systemKey = (source: string, id: string) => `system ${source} ${id}`;
