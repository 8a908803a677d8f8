import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { anchor } from "../../tools/reference/markdown.ts";

const ROOT = join(import.meta.dirname, "../..");

/** Folders with generated files or files of others. */
const EXCLUDED_FOLDERS = ["node_modules", ".git", ".cache", "plenum-demo", "state"];

/** Returns the project's own files that match the pattern, with `/` as separator. */
export function files(pattern: string): readonly string[] {
  const foundFiles = globSync(pattern, { cwd: ROOT, exclude: EXCLUDED_FOLDERS.map((name) => `**/${name}/**`) });
  return foundFiles.map((file) => file.replaceAll("\\", "/")).toSorted();
}

export interface Page {
  readonly file: string;
  readonly text: string;
}

/** Every document but the licences of others. */
export const pages: readonly Page[] = files("**/*.md")
  .filter((file) => file !== "THIRD-PARTY-NOTICES.md")
  .map((file) => ({ file, text: readFileSync(join(ROOT, file), "utf8") }));

export interface Block {
  readonly file: string;
  readonly language: string;
  readonly text: string;
  /** The HTML comment before the block, or an empty text. */
  readonly mark: string;
}

const FENCE = /(?:<!--\s*([^>]*?)\s*-->\s*\n)?^( *)```(\w*)[^\n]*\n([\s\S]*?)^\2```/gm;

export function blocksIn({ file, text }: Page): readonly Block[] {
  return [...text.matchAll(FENCE)].map(([, mark = "", indent = "", language = "", body = ""]) => ({
    ...{ file, language, mark },
    text: body.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
  }));
}

/** Text between single backticks, outside of blocks. */
export function inlineCodeIn({ text }: Page): readonly string[] {
  return [...withoutBlocks(text).matchAll(/(?<!`)`([^`\n]+)`(?!`)/g)].map(([, code = ""]) => code);
}

/** Returns the link targets of a page. */
export function linksIn({ text }: Page): readonly string[] {
  const plainText = withoutBlocks(text).replaceAll(/(?<!`)`[^`\n]+`(?!`)/g, "code");
  return [...plainText.matchAll(/\]\(([^()\s]+(?:\([^()]*\))?[^()\s]*)\)/g)].map(([, target = ""]) => target);
}

/** Returns the anchors of a page that links may use. */
export function anchorsIn({ text }: Page): ReadonlySet<string> {
  const plainText = withoutBlocks(text);
  const anchorCounts = new Map<string, number>();
  const headings = [...plainText.matchAll(/^#{1,6} +(.+?) *#*$/gm)].map(([, heading = ""]) => {
    const name = anchor(heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1").replaceAll("`", ""));
    const earlierCount = anchorCounts.get(name) ?? 0;
    anchorCounts.set(name, earlierCount + 1);
    return earlierCount === 0 ? name : `${name}-${earlierCount}`;
  });
  const explicit = [...plainText.matchAll(/<a (?:id|name)="([^"]+)">/g)].map(([, name = ""]) => name);
  return new Set([...headings, ...explicit]);
}

function withoutBlocks(text: string): string {
  return text.replaceAll(FENCE, "");
}
