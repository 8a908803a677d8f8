/** Quotes a name for a statement. */
export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
