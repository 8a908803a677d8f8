import { statSync } from "node:fs";
import { realFolder } from "../../core/errors/folder-problem.ts";
import type { SecretRef } from "../../core/runtime/secret.ts";
import type { Contradiction } from "./problems.ts";

type Path = readonly (string | number)[];

interface Named {
  readonly path: Path;
  readonly ref: SecretRef;
  /** The source whose token it is; null for any other secret. */
  readonly source: string | null;
}

/**
 * Secrets that are the token of a source, named in another place: a sink, a password or a second source would send the
 * token to another server. Files are compared by where they are, so links, other spellings and hard links count.
 */
export function sharedTokens(config: object): readonly Contradiction[] {
  const all = secretsIn(config, []);
  const owners = new Map<string, string>();
  const tokensFirst = [...all.filter(isToken), ...all.filter((each) => !isToken(each))];
  return tokensFirst.flatMap(({ path, ref, source }): readonly Contradiction[] => {
    const identities = identitiesOf(ref);
    const owner = identities.map((identity) => owners.get(identity)).find((name) => name !== undefined);
    if (owner !== undefined) return [{ path, message: messageOf(ref, owner, source) }];
    if (source !== null) for (const identity of identities) owners.set(identity, source);
    return [];
  });
}

function messageOf(ref: SecretRef, owner: string, other: string | null): string {
  const place = "file" in ref ? "file" : "variable";
  const what = `This ${place} holds the token of the source ${owner}, and only that source may name it`;
  return other === null
    ? `${what}: put this secret into a ${place} of its own.`
    : `${what}: give the source ${other} a token in a ${place} of its own.`;
}

/** Names of the environment variables that hold tokens, with their sources, in a configuration as it is written. */
export function tokenVariables(content: unknown): ReadonlyMap<string, string> {
  const tokens = secretsIn(content, []).filter(isToken);
  return new Map(tokens.flatMap(({ ref, source }) => ("env" in ref ? [[ref.env, source ?? ""]] : [])));
}

function isToken({ source }: Named): boolean {
  return source !== null;
}

function secretsIn(value: unknown, path: Path): readonly Named[] {
  if (typeof value !== "object" || value === null) return [];
  const ref = refIn(value);
  if (ref !== null) return [{ path, ref, source: sourceOf(path) }];
  const entries = Array.isArray(value) ? value.map((each, n) => [n, each] as const) : Object.entries(value);
  return entries.flatMap(([key, each]) => secretsIn(each, [...path, key]));
}

/** `{file: path}` or `{env: NAME}`, and nothing else in it. */
function refIn(value: object): SecretRef | null {
  const [[key, text] = [], ...more] = Object.entries(value);
  if (more.length > 0 || typeof text !== "string") return null;
  if (key === "file") return { file: text };
  return key === "env" ? { env: text } : null;
}

/** `sources.main.token` is the token of main. */
function sourceOf([section, name, option, ...more]: Path): string | null {
  return section === "sources" && option === "token" && more.length === 0 ? String(name) : null;
}

/** Two secrets are one where they have one of these in common. */
function identitiesOf(ref: SecretRef): readonly string[] {
  // Windows does not tell upper and lower case of variables apart.
  if ("env" in ref) return [`variable ${process.platform === "win32" ? ref.env.toUpperCase() : ref.env}`];
  const path = `path ${realFolder(ref.file)}`;
  try {
    const marks = statSync(ref.file, { bigint: true, throwIfNoEntry: false });
    return marks === undefined ? [path] : [path, `file ${marks.dev} ${marks.ino}`];
  } catch {
    return [path];
  }
}
