/** Matches `*` and `?` without a regular expression, which could take seconds for a pattern with several stars. */
export function globMatches(pattern: string, text: string): boolean {
  const patternChars = [...pattern.toLowerCase()];
  const textChars = [...text.toLowerCase()];
  let patternIndex = 0;
  let textIndex = 0;
  let lastStarIndex = -1;
  let lastStarMatchEnd = 0;
  while (textIndex < textChars.length) {
    if (patternChars[patternIndex] === "*") {
      lastStarIndex = patternIndex++;
      lastStarMatchEnd = textIndex;
    } else if (
      patternIndex < patternChars.length &&
      (patternChars[patternIndex] === "?" || patternChars[patternIndex] === textChars[textIndex])
    ) {
      patternIndex++;
      textIndex++;
    } else if (lastStarIndex >= 0) {
      patternIndex = lastStarIndex + 1;
      textIndex = ++lastStarMatchEnd;
    } else {
      return false;
    }
  }
  while (patternChars[patternIndex] === "*") patternIndex++;
  return patternIndex === patternChars.length;
}
