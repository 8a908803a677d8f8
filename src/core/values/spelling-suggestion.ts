export function findClosestWord(word: string, words: readonly string[]): string | undefined {
  let bestWord: string | undefined;
  let bestDistance = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidateWord of words) {
    const candidateDistance = editDistance(word.toLowerCase(), candidateWord.toLowerCase());
    if (candidateDistance < bestDistance && candidateDistance <= candidateWord.length / 2) {
      bestWord = candidateWord;
      bestDistance = candidateDistance;
    }
  }
  return bestWord;
}

/** Hint for an unknown word, with a leading space, e.g. ` Did you mean tags?`; empty without a suggestion. */
export function formatWordSuggestion(word: string, words: readonly string[]): string {
  const suggestedWord = findClosestWord(word, words);
  if (suggestedWord !== undefined) return ` Did you mean ${suggestedWord}?`;
  return words.length > 0 && words.length <= 25 ? ` Known are: ${words.join(", ")}.` : "";
}

/** Longer words are not compared, because they are no typing mistakes. */
const MAX_COMPARED_WORD_LENGTH = 100;

function editDistance(a: string, b: string): number {
  if (a.length > MAX_COMPARED_WORD_LENGTH || b.length > MAX_COMPARED_WORD_LENGTH) return MAX_COMPARED_WORD_LENGTH;
  let distanceRow = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i += 1) {
    const nextDistanceRow = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const substitutionCost = (distanceRow[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      nextDistanceRow.push(Math.min(substitutionCost, (distanceRow[j] ?? 0) + 1, (nextDistanceRow[j - 1] ?? 0) + 1));
    }
    distanceRow = nextDistanceRow;
  }
  return distanceRow[b.length] ?? 0;
}
