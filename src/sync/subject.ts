/**
 * The subjects of events: what an event is about. Together with the source it is the key that keeps its order,
 * so every room that tells of a thing must spell it alike.
 */
export type Noun = "site" | "gateway" | "host" | "system" | "tag" | "alarm";

/** `site/1` for a site, `site/1/tag/4711` for everything inside one. */
export function subjectOf(noun: Noun, siteId: number | null, id: string): string {
  if (noun === "site") return `site/${id}`;
  return siteId === null ? `${noun}/${id}` : `site/${siteId}/${noun}/${id}`;
}

/** The monitored service as a whole. */
export const SERVICE_SUBJECT = "service";

/** One feature of the service (the work of one job), where only that one is refused. */
export function featureSubject(job: string): string {
  return `feature/${job}`;
}
