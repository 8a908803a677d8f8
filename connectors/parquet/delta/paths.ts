/**
 * Paths of data files. The log has them as URIs, relative to the table's folder: whatever is not allowed there is
 * percent-encoded, so a folder `site=a%2Fb` of the storage stands as `site=a%252Fb` in the log. Source: PROTOCOL.md,
 * "Add File and Remove File" ("a URI as specified by RFC 2396, which needs to be decoded to get the data file path").
 */

/** A key of the storage as the log has it. `prefix` is the table's folder, such as `value/`. */
export function pathOf(key: string, prefix: string): string {
  if (!key.startsWith(prefix)) throw new Error(`The file ${key} does not lie in ${prefix}.`);
  return key.slice(prefix.length).split("/").map(encodeURIComponent).join("/").replaceAll("%3D", "=");
}

/** One name for one file, however its path was encoded. */
export function decodedPath(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/** Null where the file lies outside of the table's folder: somebody else put it into the table by an absolute path. */
export function keyOf(path: string, prefix: string): string | null {
  const decoded = decodedPath(path);
  const isOutside = /^(?:[A-Za-z][A-Za-z0-9+.-]*:|\/)/.test(path) || decoded.split("/").includes("..");
  return isOutside ? null : `${prefix}${decoded}`;
}
