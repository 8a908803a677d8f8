/** Matches `*` and `?` without a regular expression, which could take seconds for a pattern with several stars. */
export function globMatches(pattern: string, text: string): boolean {
  const patternChars = [...pattern.toLowerCase()];
  const textChars = [...text.toLowerCase()];
  let p = 0;
  let t = 0;
  let lastStarIndex = -1;
  let lastStarMatchEnd = 0;
  while (t < textChars.length) {
    if (patternChars[p] === "*") {
      lastStarIndex = p++;
      lastStarMatchEnd = t;
    } else if (p < patternChars.length && (patternChars[p] === "?" || patternChars[p] === textChars[t])) {
      p++;
      t++;
    } else if (lastStarIndex >= 0) {
      p = lastStarIndex + 1;
      t = ++lastStarMatchEnd;
    } else {
      return false;
    }
  }
  while (patternChars[p] === "*") p++;
  return p === patternChars.length;
}
