import { expect, test } from "vitest";
import { parseServiceAddress } from "#src/ui/setup/service-address.ts";
import { thrownText } from "./buildings.ts";

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
])("readAddress reads %j as %j", (written, baseUrl, note) => {
  const parsedAddress = parseServiceAddress(written, false);
  expect(parsedAddress.baseUrl).toBe(baseUrl);
  if (note === null) expect(parsedAddress.notes).toEqual([]);
  else expect(parsedAddress.notes.join(" ")).toMatch(note);
});

test.each([
  ["", /^This is not the address of a service: nothing\. Write it as https:/],
  ["ftp://example.com", /^This is not the address/],
  ["the service", /^This is not the address/],
  ["https://kari:secret@example.com", /^The address has a user name or a password in it\. Remove it/],
  ["http://monitoring.example.com", /^With http:\/\/ everybody on the way to monitoring\.example\.com could/],
])("readAddress rejects %j with an explanation", (written, words) => {
  const errorMessage = thrownText(() => parseServiceAddress(written, false));
  expect(errorMessage).toMatch(words);
  expect(errorMessage).not.toContain("secret");
});

test("readAddress accepts http:// to another machine when the user allows plain HTTP", () => {
  expect(parseServiceAddress("http://monitoring.example.com", true).baseUrl).toBe("http://monitoring.example.com");
});
