import type { Wish } from "#src/engine/sync/plan/stretch.ts";

/** A class of so many tags, each read every so many seconds. */
export const wish = (name: string, tags: number, seconds: number, more: Partial<Wish> = {}): Wish => ({
  name,
  tags,
  everyMs: seconds * 1_000,
  firm: false,
  importance: 1,
  ...more,
});
