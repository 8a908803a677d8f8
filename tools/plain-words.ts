import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import packages from "../src/packages.json" with { type: "json" };

/**
 * Finds phrases in comments, Markdown and commit titles that break the mechanical rules of the writing style.
 *
 *   npm run words                      counts per package and page
 *   npm run words -- FILE…             findings in these files
 *   npm run words -- --write           write the current counts to test/words/allowed.json
 *   npm run words -- --titles [RANGE]  findings in commit titles, by default all after `titlesAfter` of that file
 */

const ROOT = join(import.meta.dirname, "..");
export const ALLOWED_FILE = "test/words/allowed.json";

export interface Allowed {
  /** Commit id; titles of later commits are checked. */
  readonly titlesAfter: string;
  /** Allowed number of findings by package or page. */
  readonly findings: Counts;
}

export type Counts = Readonly<Record<string, number>>;

export interface Finding {
  readonly line: number;
  readonly words: string;
  readonly advice: string;
}

/** One comment or one page. */
interface Passage {
  readonly line: number;
  readonly text: string;
}

const BANNED: readonly (readonly [pattern: string, advice: string])[] = [
  ["who(?:so)?ever", "name the actor"],
  ["nobody|no one", "name the actor"],
  ["nothing of", "say what is missing"],
  ["(?:is|are|was|were|be|been|being|get|gets) told", "sent, published, emitted, reported, logged"],
  ["(?:is|are|was|were|be|been) had", "fetched, stored, available"],
  ["(?:is|are|was|were) said|says of itself", "name who reports it"],
  ["(?:stand|stands|stood) (?:in|at)", "is in"],
  ["(?:go|goes) by", "uses, matches on"],
  ["anew", "again, re-…"],
  ["beside", "next to, in addition to"],
  ["of before", "earlier, previous"],
  ["far ends?", "server, endpoint, destination"],
  ["wish|wishes|wished", "target, requested interval"],
];

/** Matches a clause as the subject, such as "What is read is stored." */
const CLAUSE_AS_SUBJECT = /(?:^|[.!?]\s+)What\s+(?:is|are|was|were)\b/g;

const POOR_START = /^(?:What|Whether\s+it|That|Of|With\s+these|Whoever|Nobody|Where)\b/;

export function findingsIn(file: string, text: string): readonly Finding[] {
  if (file.endsWith(".md")) return findingsInPassage({ line: 1, text: proseOfPage(text) });
  return commentsIn(text).flatMap((comment) => [...startOf(comment), ...findingsInPassage(comment)]);
}

function startOf({ line, text }: Passage): readonly Finding[] {
  const start = POOR_START.exec(text.trimStart());
  return start === null ? [] : [{ line, words: start[0], advice: "start with what the thing is or does" }];
}

function findingsInPassage({ line, text }: Passage): readonly Finding[] {
  const banned = BANNED.flatMap(([pattern, advice]) => {
    const words = new RegExp(`\\b(?:${pattern.replaceAll(" ", "\\s+")})\\b`, "gi");
    return [...text.matchAll(words)].map((match) => ({ match, advice }));
  });
  const clauses = [...text.matchAll(CLAUSE_AS_SUBJECT)]
    .filter(({ index }) => index > 0)
    .map((match) => ({ match, advice: "name the subject" }));
  return [...banned, ...clauses]
    .map(({ match, advice }) => ({
      line: line + text.slice(0, match.index).split("\n").length - 1,
      words: match[0].replaceAll(/\s+/g, " "),
      advice,
    }))
    .toSorted((a, b) => a.line - b.line);
}

/** Returns block comments, line comments (consecutive lines are one comment) and comments behind code. */
function commentsIn(program: string): readonly Passage[] {
  const found: { line: number; end: number; text: string }[] = [];
  const lines = program.split("\n");
  for (let at = 0; at < lines.length; at++) {
    const text = lines[at] ?? "";
    if (/^\s*\/\*/.test(text)) {
      const begin = at;
      while (at < lines.length - 1 && !(lines[at] ?? "").includes("*/")) at++;
      const block = lines.slice(begin, at + 1).map((one) => one.replace(/^\s*\/?\*+\/?|\*\/.*$/g, ""));
      const first = block.findIndex((one) => one.trim() !== "");
      if (first >= 0) found.push({ line: begin + first + 1, end: at, text: block.slice(first).join("\n") });
      continue;
    }
    const own = /^\s*\/\/(.*)/.exec(text)?.[1];
    const previous = found.at(-1);
    const goesOn = previous?.end === at - 1 && /^\s*\/\//.test(lines[at - 1] ?? "");
    if (own !== undefined && previous !== undefined && goesOn) {
      previous.text += `\n${own}`;
      previous.end = at;
      continue;
    }
    const behindCode = /[;,{}()[\]]\s+\/\/ (.*)/.exec(text)?.[1];
    const comment = own ?? behindCode;
    if (comment !== undefined) found.push({ line: at + 1, end: at, text: comment });
  }
  return found;
}

/** Blanks out code, comments and link targets of a page; line numbers stay the same. */
function proseOfPage(page: string): string {
  const blank = (part: string) => part.replaceAll(/[^\n]/g, " ");
  return page
    .replaceAll(/^ *(```|~~~)[\s\S]*?^ *\1/gm, blank)
    .replaceAll(/<!--[\s\S]*?-->/g, blank)
    .replaceAll(/`[^`]*`/g, blank)
    .replaceAll(/\]\([^)\n]*\)/g, blank);
}

/** Returns the name under which findings of a file are counted: package of `src/packages.json`, `tools`, or page. */
export function entryOf(file: string): string {
  if (file.endsWith(".md")) return file;
  const owners = packages.filter(({ package: path }) => file === path || file.startsWith(`${path}/`));
  const longest = owners.toSorted((a, b) => b.package.length - a.package.length)[0];
  return longest?.package ?? file.split("/")[0] ?? file;
}

export function checkedFiles(): readonly string[] {
  const listed = execFileSync("git", ["ls-files", "-co", "--exclude-standard"], {
    cwd: ROOT,
    encoding: "utf8",
  });
  const isProgram = (file: string) => /^(?:src|connectors|tools)\/.*\.(?:ts|mjs|cjs)$/.test(file);
  // Licence texts must not be changed.
  const isPage = (file: string) => file.endsWith(".md") && !/(?:LICENCES|THIRD-PARTY-NOTICES)\.md$/.test(file);
  return listed.split("\n").filter((file) => isProgram(file) || isPage(file));
}

export function allFindings(): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, string[]>();
  for (const file of checkedFiles()) {
    const lines = findingsOf(file);
    if (lines.length === 0) continue;
    const entry = entryOf(file);
    found.set(entry, [...(found.get(entry) ?? []), ...lines]);
  }
  return found;
}

function findingsOf(file: string): readonly string[] {
  let text: string;
  try {
    text = readFileSync(join(ROOT, file), "utf8");
  } catch {
    // Git lists a deleted file until the deletion is committed.
    return [];
  }
  return findingsIn(file, text).map(({ line, words, advice }) => `${file}:${line} “${words}”: ${advice}`);
}

/** Returns a message for each package or page whose number of findings differs from the allowed number. */
export function differences(found: ReadonlyMap<string, readonly string[]>, allowed: Counts): readonly string[] {
  const entries = new Set([...found.keys(), ...Object.keys(allowed)]);
  return [...entries].toSorted().flatMap((entry) => {
    const findings = found.get(entry) ?? [];
    const permitted = allowed[entry] ?? 0;
    if (findings.length === permitted) return [];
    if (findings.length < permitted)
      return [
        `${entry} has ${findings.length} findings, ${ALLOWED_FILE} allows ${permitted}: lower the number (npm run words -- --write).`,
      ];
    return [
      `${entry} has ${findings.length} findings, ${ALLOWED_FILE} allows ${permitted}: reword these passages.\n${findings.join("\n")}`,
    ];
  });
}

const TITLE_LENGTH = 72;
const NO_VERB =
  /^(?:A|An|The|This|That|These|Those|It|Its|We|Our|What|Who|Where|When|If|In|On|At|Of|For|With|No|Not|Nobody|Now)$/;
/** Imperatives that end with -ed, -ing or -s. */
const IMPERATIVE =
  /^(?:.*(?:eed|ss|us)|Embed|Shed|Wed|Bed|Bring|String|Ring|Ping|Sing|Swing|Spring|Alias|Canvas|Bias)$/;

/** Returns what is wrong with a commit title: its length, a banned phrase, or no imperative at the start. */
export function titleFindings(title: string): readonly string[] {
  const first = /^\S+/.exec(title)?.[0] ?? "";
  const isInflected = /(?:ed|ing|s)$/.test(first) && !IMPERATIVE.test(first);
  return [
    ...(title.length > TITLE_LENGTH ? [`has ${title.length} characters, the maximum is ${TITLE_LENGTH}`] : []),
    ...(!/^[A-Z][a-z]+$/.test(first) || NO_VERB.test(first) || isInflected
      ? [`starts with “${first}”: start with a verb in the imperative`]
      : []),
    ...findingsInPassage({ line: 1, text: title }).map(({ words, advice }) => `“${words}”: ${advice}`),
  ];
}

function readAllowed(): Allowed {
  return JSON.parse(readFileSync(join(ROOT, ALLOWED_FILE), "utf8"));
}

/** Returns the range of commits to check; only the last commit if a shallow clone lacks `titlesAfter`. */
function newCommits(): string {
  const { titlesAfter } = readAllowed();
  try {
    execFileSync("git", ["merge-base", "--is-ancestor", titlesAfter, "HEAD"], { cwd: ROOT, stdio: "ignore" });
    return `${titlesAfter}..HEAD`;
  } catch {
    return "-1";
  }
}

function badTitles(range: string): readonly string[] {
  const log = execFileSync("git", ["log", "--no-merges", "--format=%h %s", range], {
    cwd: ROOT,
    encoding: "utf8",
  });
  return log.split("\n").flatMap((line) => {
    const [, commit, title = ""] = /^(\S+) (.*)/.exec(line) ?? [];
    return commit === undefined ? [] : titleFindings(title).map((finding) => `${commit} ${title}\n  ${finding}`);
  });
}

function writeAllowedCounts(): void {
  const counts = [...allFindings()].map(([entry, lines]) => [entry, lines.length] as const);
  const sorted = counts.toSorted(([a], [b]) => (a < b ? -1 : 1));
  const allowed: Allowed = { titlesAfter: readAllowed().titlesAfter, findings: Object.fromEntries(sorted) };
  writeFileSync(join(ROOT, ALLOWED_FILE), `${JSON.stringify(allowed, null, 2)}\n`);
}

function formatCounts(): readonly string[] {
  const counts = [...allFindings()].map(([entry, { length }]) => `${String(length).padStart(5)} ${entry}`);
  return counts.toSorted((a, b) => (a < b ? 1 : -1));
}

if (import.meta.main) {
  const { values, positionals } = parseArgs({
    options: { write: { type: "boolean" }, titles: { type: "boolean" } },
    allowPositionals: true,
  });
  const print = (lines: readonly string[]) => process.stdout.write(lines.map((line) => `${line}\n`).join(""));
  if (values.write === true) writeAllowedCounts();
  else if (values.titles === true) {
    const found = badTitles(positionals[0] ?? newCommits());
    print(found);
    if (found.length > 0) process.exitCode = 1;
  } else if (positionals.length > 0) print(positionals.flatMap(findingsOf));
  else print(formatCounts());
}
