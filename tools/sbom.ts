import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Embedded, type ShippedPackage, shippedPackages } from "./shipped.ts";

/** `npm run sbom` writes the list of shipped packages (CycloneDX 1.6). It has no time, so it depends on the lock file only. */

export const SBOM = "sbom.cdx.json";

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  readonly dependencies: Readonly<Record<string, string>>;
}

export function sbomText(root: string): string {
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as Manifest;
  return sbomOf(manifest, shippedPackages(root));
}

function sbomOf({ name, version, description, dependencies }: Manifest, packages: readonly ShippedPackage[]): string {
  const own = `${name}@${version}`;
  const direct = Object.entries(dependencies).map(([needed, exact]) => `${needed}@${exact}`);
  const bom = {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { component: { type: "application", "bom-ref": own, name, version, description } },
    components: packages.map(componentOf),
    dependencies: [
      { ref: own, dependsOn: direct.toSorted() },
      ...packages.map((one) => ({ ref: `${one.name}@${one.version}`, dependsOn: one.needs })),
    ],
  };
  return `${JSON.stringify(bom, null, 2)}\n`;
}

function componentOf({ name, version, licence, integrity, embedded }: ShippedPackage) {
  const [, group, short] = /^(@[^/]+)\/(.+)$/.exec(name) ?? [];
  const [algorithm = "", hash = ""] = integrity.split("-", 2);
  return {
    type: "library",
    "bom-ref": `${name}@${version}`,
    ...(group === undefined ? {} : { group }),
    name: short ?? name,
    version,
    scope: "required",
    // CycloneDX writes SHA-512 where npm writes sha512.
    hashes: [
      {
        alg: algorithm.toUpperCase().replace(/^SHA/, "SHA-"),
        content: Buffer.from(hash, "base64").toString("hex"),
      },
    ],
    licenses: licencesOf(licence),
    purl: `pkg:npm/${name.replace("@", "%40")}@${version}`,
    ...(embedded.length === 0 ? {} : { components: embedded.map(embeddedOf) }),
  };
}

/** The version of embedded code is unknown. */
function embeddedOf({ name, licence }: Embedded) {
  return { type: "library", name, licenses: licencesOf(licence), purl: `pkg:npm/${name}` };
}

function licencesOf(licence: string) {
  return /\s/.test(licence) ? [{ expression: licence }] : [{ license: { id: licence } }];
}

if (import.meta.main) {
  const root = join(import.meta.dirname, "..");
  writeFileSync(join(root, SBOM), sbomText(root));
}
