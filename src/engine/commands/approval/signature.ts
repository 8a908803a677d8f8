import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import { ConfigError } from "../../../core/errors/errors.ts";

const SIGNATURE_KEY_TYPE = "ed25519";

/** Parses the base64 of a SubjectPublicKeyInfo, the middle line of a PEM; null for anything else. */
export function parsePublicKey(text: string): KeyObject | null {
  try {
    const key = createPublicKey({ key: Buffer.from(text, "base64"), format: "der", type: "spki" });
    // With another spelling of the key (spaces, no padding) one person would count as two.
    const canonicalText = key.export({ format: "der", type: "spki" }).toString("base64");
    return key.asymmetricKeyType === SIGNATURE_KEY_TYPE && canonicalText === text ? key : null;
  } catch {
    return null;
  }
}

export function publicKeyText(privateKey: KeyObject): string {
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
