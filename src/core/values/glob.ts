/** Needs at most pattern length × text length steps; a regular expression with several stars could take seconds. */
export function globMatches(pattern: string, text: string): boolean {
  const patternChars = [...pattern.toLowerCase()];
  const textChars = [...text.toLowerCase()];
  let w = 0;
  let g = 0;
  let star = -1;
  let starEnd = 0;
  while (g < textChars.length) {
    if (patternChars[w] === "*") {
      star = w++;
      starEnd = g;
    } else if (w < patternChars.length && (patternChars[w] === "?" || patternChars[w] === textChars[g])) {
      w++;
      g++;
    } else if (star >= 0) {
      w = star + 1;
      g = ++starEnd;
    } else {
      return false;
    }
  }
  while (patternChars[w] === "*") w++;
  return w === patternChars.length;
}
