/** Returns the part of CHANGELOG.md about one version. */
export function changesOf(changelog: string, version: string): string {
  const parts = changelog.split(/^(?=## )/m);
  const part = parts.find((one) => one.split(/\s/)[1] === version);
  if (part === undefined) throw new Error(`CHANGELOG.md has no part “## ${version}”: write what is new in it.`);
  return `${part.trimEnd()}\n`;
}
