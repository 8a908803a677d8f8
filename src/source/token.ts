import { readFile, stat } from "node:fs/promises";
import { ConfigError } from "../errors.ts";
import { Secret } from "../log.ts";
import type { TokenFrom } from "./config.ts";

/** The access token, read when it is needed, so that a new one works without a restart. */
export interface Token {
  /** The token as it is now. Throws `ConfigError` with what to do when there is none that may be used. */
  current(): Promise<Secret>;
  /** The service refused the token: look again before the next request, whatever the file's time says. */
  refused(): void;
}

export type Environment = Readonly<Record<string, string | undefined>>;

export function createToken(
  from: TokenFrom,
  environment: Environment = process.env,
  platform: NodeJS.Platform = process.platform,
): Token {
  return "file" in from ? fromFile(from.file, platform) : fromEnvironment(from.env, environment);
}

function fromEnvironment(name: string, environment: Environment): Token {
  return {
    async current() {
      return checked(environment[name] ?? "", `the environment variable ${name}`);
    },
    refused() {},
  };
}

function fromFile(path: string, platform: NodeJS.Platform): Token {
  let known: { readonly token: Secret; readonly stamp: string } | null = null;

  return {
    async current() {
      const facts = await look(path);
      // Windows has no such mode bits; the access list of the folder protects the file there.
      if (platform !== "win32" && (facts.mode & 0o077) !== 0) {
        throw new ConfigError(`The token file ${path} can be read by other users.`, {
          hint: `Run: chmod 600 ${path}`,
        });
      }
      const stamp = `${facts.mtimeMs} ${facts.size} ${facts.ino}`;
      if (known?.stamp !== stamp) {
        known = { token: checked(await readFile(path, "utf8"), `the file ${path}`), stamp };
      }
      return known.token;
    },
    refused() {
      known = null;
    },
  };
}

async function look(path: string) {
  try {
    return await stat(path);
  } catch (cause) {
    throw new ConfigError(`The token file ${path} cannot be read.`, {
      hint: "Create it with the access token from your profile in the service, and run chmod 600 on it.",
      cause,
    });
  }
}

/** A token ends up in a header, so it may hold visible ASCII only; the message never repeats what was found. */
function checked(text: string, place: string): Secret {
  const token = text.replace(/^\uFEFF/, "").trim();
  if (token === "") throw new ConfigError(`There is no access token in ${place}.`, { hint: "Put it there." });
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new ConfigError(`What is in ${place} is not an access token.`, {
      hint: "Put the token there and nothing else: one line, no spaces, no quotes.",
    });
  }
  return new Secret(token);
}
