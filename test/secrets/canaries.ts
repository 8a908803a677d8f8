import { randomBytes } from "node:crypto";

export const SLOTS = [
  "service",
  "influxToken",
  "influxPassword",
  "webhookSigning",
  "webhookHeader",
  "mqttPassword",
  "proxyPassword",
  "statusPassword",
] as const;
export type Slot = (typeof SLOTS)[number];
export type Canaries = Readonly<Record<Slot, string>>;

export function canaries(): Canaries {
  const random = () => randomBytes(24).toString("base64");
  return {
    service: `17|${random()}`,
    influxToken: `${random()}==`,
    influxPassword: `pass ${random()}`,
    webhookSigning: `whsec_${randomBytes(32).toString("base64")}`,
    webhookHeader: `Bearer ${random()}`,
    proxyPassword: `out-${random()}`,
    mqttPassword: `mqtt-${random()}`,
    statusPassword: `page-${random()}`,
  };
}

const LENGTH = 12;

function partsOfSecret(secret: string): ReadonlySet<string> {
  const bareSecret = secret.replace(/^(Bearer |whsec_|mqtt-|out-|page-|pass |17\|)/, "");
  const inBase64 = [0, 1, 2].map((before) => {
    const text = Buffer.from("x".repeat(before) + bareSecret).toString("base64");
    return text.slice(before === 0 ? 0 : before + 1).replace(/.?=*$/, "");
  });
  const hex = Buffer.from(bareSecret).toString("hex");
  const spellings = [bareSecret, ...inBase64, encodeURIComponent(bareSecret), hex, hex.toUpperCase()];
  return new Set(
    spellings.flatMap((text) =>
      Array.from({ length: text.length - LENGTH + 1 }, (_, at) => text.slice(at, at + LENGTH)),
    ),
  );
}

export function findLeaks(all: Canaries, textsByLocation: Readonly<Record<string, string>>): readonly string[] {
  return SLOTS.flatMap((slot) => {
    const secretParts = partsOfSecret(all[slot]);
    return Object.entries(textsByLocation).flatMap(([location, text]) => {
      for (const searchedText of [text, text.replaceAll("\\", "")]) {
        for (let at = 0; at + LENGTH <= searchedText.length; at += 1) {
          if (secretParts.has(searchedText.slice(at, at + LENGTH)))
            return [`${slot} in ${location}: …${searchedText.slice(Math.max(0, at - 80), at + 40)}…`];
        }
      }
      return [];
    });
  });
}

export const base64 = (text: string) => Buffer.from(text).toString("base64");
export const escapes = (text: string) =>
  Array.from(text, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");

const ECHOES: readonly ((header: string) => string)[] = [
  (header) => header,
  (header) => `Authorization: ${header}`,
  base64,
  (header) => base64(base64(header)),
  (header) => header.replace(/^\S+ /, ""),
  (header) => Buffer.from(header.replace(/^Basic /, ""), "base64").toString(),
  encodeURIComponent,
  (header) => encodeURIComponent(encodeURIComponent(header)),
  (header) => Buffer.from(header).toString("hex"),
  (header) => header.slice(0, 24),
  (header) => header.slice(-14),
  (header) => "x".repeat(480) + header,
  (header) => "x".repeat(3_980) + header,
  (header) => JSON.stringify({ request: { headers: { authorization: header } } }).replaceAll("/", "\\/"),
  escapes,
];

export function createEcho(): (header: string) => string {
  let echoCount = 0;
  return (header) => {
    const echo = ECHOES[echoCount % ECHOES.length];
    echoCount += 1;
    return echo?.(header) ?? header;
  };
}
