/** Needs at most pattern length × text length steps; a regular expression with several stars could take seconds. */
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
