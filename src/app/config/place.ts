import { isAlias, isMap, isNode, isPair, isScalar, type Node } from "yaml";

/**
 * Offset of a path in the text: its value, or its key when the key is wrong; for a missing path, the nearest parent.
 */
export function offsetOf(root: Node | null, path: readonly PropertyKey[], wantKey: boolean): number {
  let node: Node | null = root;
  let offset = startOf(root) ?? 0;
  for (const [depth, step] of path.entries()) {
    if (isMap(node)) {
      const pair = node.items.find(
        (item) => isPair(item) && isScalar(item.key) && String(item.key.value) === String(step),
      );
      if (pair === undefined) return offset;
      const atKey = (depth === path.length - 1 && wantKey) || !isNode(pair.value) || isEmpty(pair.value);
      // A section begins at its own name, not at its first entry.
      const place = atKey || isMap(pair.value) ? pair.key : pair.value;
      offset = startOf(place) ?? offset;
      node = isNode(pair.value) ? pair.value : null;
    } else if (isNode(node) && !isAlias(node) && "items" in node && typeof step === "number") {
      const item: unknown = (node.items as unknown[])[step];
      if (!isNode(item)) return offset;
      node = item;
      offset = startOf(item) ?? offset;
    } else {
      return offset;
    }
  }
  return offset;
}

function startOf(place: unknown): number | undefined {
  return isNode(place) ? place.range?.[0] : undefined;
}

/** `key:` with nothing behind it: a place in the text, but not one to point at. */
function isEmpty(node: Node): boolean {
  return isScalar(node) && node.value === null && node.source === "";
}
