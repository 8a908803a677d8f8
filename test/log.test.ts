import { describe, expect, test } from "vitest";
import { maskCredentials } from "#src/core/runtime/log.ts";

describe("maskCredentials", () => {
  test.each([
    "The token lacks the ability, the site or the permission; the token information tells which.",
    "The token expired yesterday.",
    "Put a new token somewhere else.",
    "The proxy wants basic authentication",
    "Its token misconfiguration cannot pass by itself.",
  ])("keeps a text without a secret: %s", (text) => {
    expect(maskCredentials(text)).toBe(text);
  });

  test.each([
    ["token 12|aBcDeFgHiJkLmNoP", "token [redacted]"],
    ["Bearer correcthorse", "Bearer [redacted]"],
    ["basic dXNlcjpwYXNzd29yZA==", "basic [redacted]"],
    ['{"authorization":"Bearer simulator-token"}', '{"authorization":"Bearer [redacted]"}'],
    ["the token s3cretword failed", "the token [redacted] failed"],
    ["the token SecretWord failed", "the token [redacted] failed"],
    ["token eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl", "token [redacted]"],
    ["mqtt://user:pw@host refused", "mqtt://[redacted]@host refused"],
  ])("replaces the secret in the text %s", (text, left) => {
    expect(maskCredentials(text)).toBe(left);
  });
});
