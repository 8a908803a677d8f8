import { createHmac } from "node:crypto";
import { ConfigError } from "../../src/core/errors/errors.ts";
import type { Secret } from "../../src/core/runtime/log.ts";

/** 24 to 64 bytes of key: Standard Webhooks, Signature scheme. */
const MIN_BYTES = 24;
const MAX_BYTES = 64;

/** The bytes of a `whsec_` secret. */
export function keyOf(secret: Secret): Buffer {
  const [, text] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(secret.reveal().trim()) ?? [];
  const key = Buffer.from(text ?? "", "base64");
  if (text === undefined || key.length < MIN_BYTES || key.length > MAX_BYTES) {
    throw new ConfigError("A signing secret has to be whsec_ and 24 to 64 bytes in base64.", {
      field: "secrets",
      hint: "Make one with: echo whsec_$(openssl rand -base64 32)",
    });
  }
  return key;
}

/** Value of `webhook-signature`: one signature a key, so that receivers with the old or the new key verify. */
export function signature(
  keys: readonly Buffer[],
  id: string,
  timestampSeconds: number,
  body: Buffer,
): string {
  return keys
    .map((key) => {
      const hmac = createHmac("sha256", key).update(`${id}.${timestampSeconds}.`).update(body);
      return `v1,${hmac.digest("base64")}`;
    })
    .join(" ");
}
