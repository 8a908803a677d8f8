import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import { createLog, maskCredentials, Secret } from "#src/core/runtime/log.ts";
import { maskSecrets, recordSecretLocation, secretsVersion } from "#src/core/values/secret-masking.ts";
import { base64, escapes } from "./secrets/canaries.ts";

const TOKEN = `17|${randomBytes(24).toString("base64url")}/+Zq=`;
const token = new Secret(TOKEN);
const PASSPHRASE = "correct horse bättery staple";
const passphrase = new Secret(PASSPHRASE);

/** Encodings in which a server may echo a secret. */
const ECHOES: Readonly<Record<string, (secret: string) => string>> = {
  plain: (secret) => secret,
  capitals: (secret) => secret.toUpperCase(),
  "in JSON": (secret) => JSON.stringify(secret),
  "in JSON, slashes escaped": (secret) => JSON.stringify(secret).replaceAll("/", "\\/"),
  "in JSON inside JSON": (secret) => JSON.stringify(JSON.stringify(secret).replaceAll("/", "\\/")),
  "as escapes": escapes,
  "in an address": encodeURIComponent,
  "in an address, twice": (secret) => encodeURIComponent(encodeURIComponent(secret)),
  base64,
  "base64 of the header": (secret) => base64(`Bearer ${secret}`),
  "base64 of user and password": (secret) => base64(`plenum:${secret}`),
  "base64 of all of it": (secret) => base64(`Authorization: Basic ${base64(`me:${secret}`)}`),
  base64url: (secret) => Buffer.from(`x${secret}`).toString("base64url"),
  "base64 in lines": (secret) => base64(`Bearer ${secret}`).replaceAll(/.{10}/g, "$&\r\n"),
  "base64 in an address": (secret) => encodeURIComponent(base64(secret)),
  hex: (secret) => Buffer.from(secret).toString("hex"),
  "its beginning": (secret) => secret.slice(0, 12),
  "its end": (secret) => secret.slice(-12),
  "the middle of base64": (secret) => base64(secret).slice(7, 19),
};

test.each(Object.entries(ECHOES))(
  "a secret echoed in this form is masked, and the text around the echo is not: %s",
  (_, echo) => {
    for (const secret of [token, passphrase]) {
      const text = `401, bad: ${echo(secret.reveal())} (line 3)`;
      const masked = maskSecrets(text);
      expect(masked).toMatch(/^401, bad: .{0,40}\[redacted\].{0,12} \(line 3\)$/s);
      for (let at = 0; at + 12 <= secret.reveal().length; at += 1) {
        expect(masked).not.toContain(secret.reveal().slice(at, at + 12));
      }
    }
  },
);

test("text without secrets is unchanged, including its escapes", () => {
  for (const text of [
    "",
    "the token information tells which",
    '{"path":"C:\\\\temp","name":"R\\u00f8yken 100 %2F\\n"}',
    TOKEN.slice(0, 11),
    "İstanbul",
  ])
    expect(maskSecrets(text)).toBe(text);
});

test("a short secret is masked only if complete, and a secret below eight characters is not masked", () => {
  new Secret("abcd1234");
  new Secret("plan");
  expect(maskSecrets("abcd1234 abcd123 plan")).toBe("[redacted] abcd123 plan");
});

describe("the registry of many secrets", () => {
  const registerAt = (place: string, secret: string) => {
    new Secret(secret);
    recordSecretLocation(place, secret);
  };
  const tokenOf = (n: number) => `${n}|${"abcdefghijklmnopqrstuvwxyz".slice(n % 13)}-${n * 7919}`;

  test("masks the tokens of 200 sources and registers a token only once", () => {
    const tokens = Array.from({ length: 200 }, (_, n) => tokenOf(n));
    for (const [n, one] of tokens.entries()) registerAt(`source ${n}`, one);
    const versionBefore = secretsVersion();
    for (const [n, one] of tokens.entries()) registerAt(`source ${n}`, one);
    expect(secretsVersion()).toBe(versionBefore);
    expect(tokens.filter((one) => maskSecrets(`no ${one}!`).includes(one.slice(-8)))).toEqual([]);
  });

  test("masks secrets in use and the latest replaced secrets while another secret is replaced repeatedly", () => {
    registerAt("password", "what-nobody-ever-exchanges");
    for (let hour = 0; hour < 300; hour += 1) registerAt("token", `the-token-of-hour-${hour}-of-all`);
    expect(maskSecrets("what-nobody-ever-exchanges")).toBe("[redacted]");
    for (const hour of [299, 298, 240]) expect(maskSecrets(`the-token-of-hour-${hour}-of-all`)).toBe("[redacted]");
  });

  test("forgets a secret long after its replacement, but masks the parts it shares with secrets in use", () => {
    registerAt("door", "yesterdays-word-is-common");
    registerAt("gate", "todays-word-is-common");
    for (let n = 0; n < 70; n += 1) registerAt("door", `door-${n}-opens-with-this`);
    expect(maskSecrets("yesterdays-word")).toBe("yesterdays-word");
    expect(maskSecrets("-word-is-common")).toBe("[redacted]");
  });

  test("masks a secret that is replaced in one option and still used in another", () => {
    registerAt("here", "the-same-word-at-two-places");
    registerAt("there", "the-same-word-at-two-places");
    registerAt("here", "now-another-one-here");
    registerAt("there", "the-same-word-at-two-places");
    for (let n = 0; n < 70; n += 1) registerAt("here", `changed-again-${n}-here`);
    expect(maskSecrets("the-same-word-at-two-places")).toBe("[redacted]");
  });
});

describe("masking of output", () => {
  test("masks the message and hint of an error", () => {
    const { message, hint } = new Retryable(`no ${TOKEN}`, { hint: `not ${base64(TOKEN)}` });
    expect([message, hint]).toEqual(["no [redacted]", expect.stringMatching(/^not \[redacted\].{0,3}$/)]);
  });

  test("masks credentials in addresses", () => {
    expect(maskCredentials(`https://a:b@host ${TOKEN}`)).toBe("https://[redacted]@host [redacted]");
  });

  test("masks a secret in every field of a log line, which stays valid JSON", () => {
    const lines: string[] = [];
    const log = createLog({ level: "trace", destination: { write: (line: string) => void lines.push(line) } });
    log.warn({ [`key ${TOKEN}`]: { deep: [TOKEN, Buffer.from(TOKEN).toString("hex")] } }, `said ${TOKEN}`);
    log.child({ bound: TOKEN }).error(new Error(`"${TOKEN}" in\n"quotes"`), "trouble");
    for (const line of lines) {
      expect(line).not.toContain(TOKEN.slice(3, 15));
      JSON.parse(line);
    }
    expect(lines.length).toBe(2);
  });
});

test("masks a secret address except its server name", () => {
  const secret = new Secret(`https://hooks.masking.example/services/${randomBytes(24).toString("base64url")}`);
  const { pathname } = new URL(secret.reveal());
  expect(maskSecrets("https://hooks.masking.example answered 403.")).toBe(
    "https://hooks.masking.example answered 403.",
  );
  for (const echo of [secret.reveal(), pathname, encodeURIComponent(secret.reveal()), base64(secret.reveal())]) {
    const masked = maskSecrets(`no such hook: ${echo}`);
    expect(masked).toContain("[redacted]");
    for (let at = 0; at + 12 <= pathname.length; at += 1) {
      expect(masked).not.toContain(pathname.slice(at, at + 12));
      expect(masked).not.toContain(base64(pathname).slice(3, 15));
    }
  }
  const withUser = new Secret(`https://masking:${randomBytes(12).toString("hex")}@masking.example/`);
  expect(maskSecrets(withUser.reveal())).toBe("https:[redacted]masking.example/");
  expect(maskSecrets("ada@masking.example")).toBe("ada@masking.example");
  expect(maskSecrets(new Secret("https://m:p@masking.example/").reveal())).toBe("[redacted]masking.example/");
});
