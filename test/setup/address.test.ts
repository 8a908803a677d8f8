import { expect, test } from "vitest";
import { sentence } from "#src/core/errors/errors.ts";
import { readAddress } from "#src/ui/setup/address.ts";
import { english } from "#src/ui/setup/messages.ts";

test.each<[string, string, RegExp | null]>([
  ["https://monitoring.example.com", "https://monitoring.example.com", null],
  ["  https://monitoring.example.com/  ", "https://monitoring.example.com", null],
  ["https://example.com/bms/", "https://example.com/bms", null],
  ["https://monitoring.example.com/api/v1", "https://monitoring.example.com", /^\/api\/v1 at the end/],
  ["https://monitoring.example.com/api/v1/", "https://monitoring.example.com", /^\/api\/v1 at the end/],
  ["https://example.com/bms/api/v1/sites", "https://example.com/bms", /^\/api\/v1\/sites at the end/],
  ["https://example.com/bms/api", "https://example.com/bms", /^\/api at the end/],
  ["monitoring.example.com", "https://monitoring.example.com", /no https:\/\//],
  ["localhost:8080", "http://localhost:8080", /no http:\/\//],
  ["http://127.0.0.1:8080", "http://127.0.0.1:8080", null],
  ["http://[::1]:8080", "http://[::1]:8080", null],
  ["https://example.com/?site=1", "https://example.com", /left out/],
])("%j is read as %j", (written, baseUrl, note) => {
  const read = readAddress(written, false);
  expect(read.baseUrl).toBe(baseUrl);
  if (note === null) expect(read.notes).toEqual([]);
  else expect(read.notes.map(english).join(" ")).toMatch(note);
});

test.each([
  ["", /^This is not the address of a service: nothing\. Write it as https:/],
  ["ftp://example.com", /^This is not the address/],
  ["the service", /^This is not the address/],
  ["https://kari:secret@example.com", /^The address has a user name or a password in it\. Take it out/],
  ["http://monitoring.example.com", /^With http:\/\/ everybody on the way to monitoring\.example\.com could/],
])("%j is answered with a sentence", (written, words) => {
  const read = () => readAddress(written, false);
  expect(read).toThrow();
  try {
    read();
  } catch (error) {
    expect(sentence(error)).toMatch(words);
    expect(sentence(error)).not.toContain("secret");
  }
});

test("http:// to another machine is a choice", () => {
  expect(readAddress("http://monitoring.example.com", true).baseUrl).toBe("http://monitoring.example.com");
});
