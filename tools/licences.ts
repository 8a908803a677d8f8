import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ShippedPackage, shippedPackages } from "./shipped.ts";

/** `npm run licences` writes the licences of all shipped packages. The release and the container image do so too. */

export const NOTICES = "THIRD-PARTY-NOTICES.md";

/** These licences require their text in every copy and nothing else. */
const ALLOWED: ReadonlySet<string> = new Set([
  "0BSD",
  "Apache-2.0",
  "BlueOak-1.0.0",
  "BSD-2-Clause",
  "BSD-3-Clause",
  "ISC",
  "MIT",
  "MIT-0",
]);

/** One sentence for each package that may not be shipped. */
export function objections(packages: readonly ShippedPackage[]): readonly string[] {
  return packages.flatMap(({ name, version, licence, texts, embedded }) => {
    const forbidden = [licence, ...embedded.map((one) => one.licence)].find((one) => !isAllowed(one));
    if (forbidden !== undefined) {
      return [
        `${name} ${version} comes with ${forbidden}, which is not among the licences that may be shipped (ALLOWED in tools/licences.ts): take another package, or let whoever answers for licences decide.`,
      ];
    }
    if (texts.length > 0) return [];
    return [
      `${name} ${version} comes without the text of its licence, which has to be shipped: take another version, or ask its authors.`,
    ];
  });
}

/** `MIT`, `(MIT OR GPL-3.0-only)`, `MIT AND ISC`: one of the parts joined by OR is enough. */
function isAllowed(expression: string): boolean {
  const parts = expression.replaceAll(/[()]/g, " ").split(/\s+OR\s+/);
  // Parentheses around an OR inside an AND would need a parser.
  if (/\bAND\b/.test(expression) && parts.length > 1) return false;
  return parts.some((part) => part.split(/\s+AND\s+/).every((one) => ALLOWED.has(one.trim())));
}

/** Throws when a package may not be shipped. */
export function noticesText(root: string): string {
  const packages = shippedPackages(root);
  const problems = objections(packages);
  if (problems.length > 0) throw new Error(problems.join("\n"));
  return noticesOf(packages);
}

function noticesOf(packages: readonly ShippedPackage[]): string {
  const sections = packages.flatMap(({ name, version, licence, texts, embedded }) => [
    `## ${name} ${version}\n\nLicence: ${licence}`,
    ...texts.map(({ file, text }) => `\`${file}\`:\n\n${fenced(text)}`),
    ...embedded.map((one) => `Inside it is ${one.name}. Licence: ${one.licence}\n\n${fenced(one.text)}`),
  ]);
  return `${[INTRODUCTION, ...sections].join("\n\n")}\n`;
}

const INTRODUCTION = `# Third-party notices

What Plenum ships of others, with the licences that have to stay with every copy. Written by \`npm run licences\`; what
is needed only to develop and test it is not shipped. The same as a software bill of materials is \`sbom.cdx.json\`.

The simulator's readings of buildings have licences and attributions of their own, in
[src/simulator/data/LICENCES.md](src/simulator/data/LICENCES.md). A container also has Node.js and its operating system
in it, whose licences are those of the image that it is built on.`;

function fenced(text: string): string {
  return `~~~text\n${text}\n~~~`;
}

if (import.meta.main) {
  const root = join(import.meta.dirname, "..");
  try {
    writeFileSync(join(root, NOTICES), noticesText(root));
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  }
}
