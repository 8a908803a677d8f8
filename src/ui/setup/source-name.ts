import type { SeenBuilding } from "./seen.ts";

/** A name for the source, as topics and metrics carry it: that of the only site, otherwise `buildings`. */
export function sourceName({ sites }: Pick<SeenBuilding, "sites">): string {
  const [only, ...others] = sites;
  if (only === undefined || others.length > 0) return "buildings";
  const name = only.displayName
    .replaceAll(/[øØ]/g, "o")
    .replaceAll(/[æÆ]/g, "ae")
    .normalize("NFKD")
    .replaceAll(/\p{M}/gu, "")
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "_")
    .slice(0, 32)
    .replaceAll(/^_+|_+$/g, "");
  return name === "" ? "building" : name;
}
