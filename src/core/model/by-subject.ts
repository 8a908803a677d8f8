/**
 * What was worked out for the subjects of each source (see event.ts), for whoever needs the same again for each of their
 * values. When a source has more than `most`, all of its are forgotten and worked out anew: 3,000 tags find theirs, of
 * 50,000 that are read in turn nobody would.
 */
export interface BySubject<T> {
  get(source: string, subject: string): T | undefined;
  set(source: string, subject: string, worked: T): void;
}

export function createBySubject<T>(most: number): BySubject<T> {
  // By source first: a key made of both would be a new text for each look.
  const sources = new Map<string, Map<string, T>>();
  return {
    get: (source, subject) => sources.get(source)?.get(subject),
    set(source, subject, worked) {
      const known = sources.get(source) ?? new Map<string, T>();
      if (known.size >= most) known.clear();
      known.set(subject, worked);
      sources.set(source, known);
    },
  };
}
