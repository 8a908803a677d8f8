import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import { ConfigError } from "../../../core/errors/errors.ts";

const SIGNATURE_KEY_TYPE = "ed25519";

/** Parses the base64 line of a public key in PEM; returns null for anything else. */
export function parsePublicKey(text: string): KeyObject | null {
  try {
    const key = createPublicKey({ key: Buffer.from(text, "base64"), format: "der", type: "spki" });
    // Reject other spellings of the key (spaces, no padding), so that one person cannot count as two approvers.
    const canonicalKeyText = key.export({ format: "der", type: "spki" }).toString("base64");
    return key.asymmetricKeyType === SIGNATURE_KEY_TYPE && canonicalKeyText === text ? key : null;
  } catch {
    return null;
  }
}

export function derivePublicKeyText(privateKey: KeyObject): string {
  return createPublicKey(privateKey).export({ format: "der", type: "spki" }).toString("base64");
}

export function parsePrivateKey(pem: string, keyFile: string): KeyObject {
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === SIGNATURE_KEY_TYPE) return key;
  } catch {}
  throw new ConfigError(`${keyFile} holds no Ed25519 private key in PEM without a passphrase.`, {
    hint: "Make one with `openssl genpkey -algorithm ed25519`.",
  });
}

export function signText(text: string, key: KeyObject): string {
  return sign(null, Buffer.from(text), key).toString("base64");
}

export function isSignedBy(text: string, signature: string | undefined, publicKey: string): boolean {
  const key = parsePublicKey(publicKey);
  return (
    key !== null && signature !== undefined && verify(null, Buffer.from(text), key, Buffer.from(signature, "base64"))
  );
}
