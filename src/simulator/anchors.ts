import { WEEK_MS } from "./timeline.ts";

// Where in its recording each site stands at the epoch.

export interface AnchorSite {
  readonly id: number;
  /** Start of the recording, milliseconds since 1970. */
  readonly firstMs: number;
  readonly lengthMs: number;
  /** Positions of the recorded alarms that were resolved. */
  readonly episodes: readonly { readonly raised: number; readonly resolved: number }[];
}

export interface AnchorSetting {
  readonly epochMs: number;
  readonly speed: number;
  readonly anchor: "weeks" | "start" | "next-alarm";
}

/** With `next-alarm`: the first alarm comes this long after the epoch ... */
const FIRST_ALARM_S = 12;
/** ... lasts about this long ... */
const EPISODE_S = 33;
/** ... and another site follows after each such pause. */
const NEXT_SITE_S = 25;
/** Share of a pass that lies behind at the epoch, so that there is history to fetch and alarms to come. */
const SHARE_BEHIND = 0.6;
/** An alarm is chosen from beyond this share, if possible, for the same reason. */
const LEAST_SHARE_BEHIND = 0.25;

/** Positions within the first pass, by site id. */
export function chooseAnchors(sites: readonly AnchorSite[], setting: AnchorSetting): Map<number, number> {
  if (setting.anchor === "start") return new Map(sites.map((site) => [site.id, 0]));
  const anchors = new Map(sites.map((site) => [site.id, wholeWeeks(site, setting)]));
  if (setting.anchor === "weeks") return anchors;

  const choices = sites
    .flatMap((site) => {
      const episode = bestEpisode(site, setting.speed);
      return episode === undefined ? [] : [{ site, episode }];
    })
    .sort(
      (a, b) => misfit(a.episode, setting.speed) - misfit(b.episode, setting.speed) || a.site.id - b.site.id,
    );
  choices.forEach(({ site, episode }, index) => {
    const leadMs = (FIRST_ALARM_S + NEXT_SITE_S * index) * 1000 * setting.speed;
    anchors.set(site.id, Math.max(0, episode.raised - leadMs));
  });
  return anchors;
}

function wholeWeeks(site: AnchorSite, { epochMs, speed }: AnchorSetting): number {
  const target = site.lengthMs * SHARE_BEHIND;
  if (speed !== 1) return target;
  const sinceWeekBegan = (((epochMs - site.firstMs) % WEEK_MS) + WEEK_MS) % WEEK_MS;
  return Math.floor(target / WEEK_MS) * WEEK_MS + sinceWeekBegan;
}

type Episode = AnchorSite["episodes"][number];

function misfit(episode: Episode, speed: number): number {
  return Math.abs((episode.resolved - episode.raised) / speed / 1000 - EPISODE_S);
}

function bestEpisode(site: AnchorSite, speed: number): Episode | undefined {
  const late = site.episodes.filter((episode) => episode.raised >= site.lengthMs * LEAST_SHARE_BEHIND);
  const candidates = late.length > 0 ? late : site.episodes;
  return candidates.toSorted((a, b) => misfit(a, speed) - misfit(b, speed) || a.raised - b.raised)[0];
}
