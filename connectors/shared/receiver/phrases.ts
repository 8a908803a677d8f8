import { z } from "zod";

/** English phrases of a message; `{…}` is a placeholder. */
const ENGLISH = {
  active: "Active",
  acknowledged: "Acknowledged",
  recovering: "Recovering",
  unknown: "State unknown",
  resolved: "Resolved",
  test: "Test",
  site: "Site",
  priority: "Priority",
  since: "Since",
  ended: "Ended",
  lasted: "Lasted",
  description: "Description",
  acknowledgedBy: "Acknowledged by",
  message: "Message",
  gateway: "Gateway offline",
  value: "Value",
  valuesUntil: "Values until {time}",
  last: "last {value}",
  gatewayOffline: "Gateway {gateway} is offline: {active} of {total} alarms active",
  storm: "{total} alarms at {site}, {active} active",
  severalSites: "several sites",
  more: "and {count} more",
  vanished: "The service does not show the alarm any more and does not say that it is over.",
  outOfScope: "The site is out of sight, so nobody knows whether the alarm is over.",
  openPage: "Open in Plenum",
  testTitle: "Test alarm from Plenum; no building is concerned",
};

export type PhraseName = keyof typeof ENGLISH;
export type Vocabulary = Readonly<Record<PhraseName, string>>;

const NORWEGIAN: Vocabulary = {
  active: "Aktiv",
  acknowledged: "Kvittert",
  recovering: "Normaliseres",
  unknown: "Tilstand ukjent",
  resolved: "Løst",
  test: "Test",
  site: "Bygg",
  priority: "Prioritet",
  since: "Siden",
  ended: "Slutt",
  lasted: "Varighet",
  description: "Beskrivelse",
  acknowledgedBy: "Kvittert av",
  message: "Melding",
  gateway: "Gateway frakoblet",
  value: "Verdi",
  valuesUntil: "Verdier til {time}",
  last: "sist {value}",
  gatewayOffline: "Gateway {gateway} er frakoblet: {active} av {total} alarmer aktive",
  storm: "{total} alarmer i {site}, {active} aktive",
  severalSites: "flere bygg",
  more: "og {count} til",
  vanished: "Tjenesten viser ikke alarmen lenger og sier ikke at den er over.",
  outOfScope: "Bygget er ikke synlig, så ingen vet om alarmen er over.",
  openPage: "Åpne i Plenum",
  testTitle: "Testalarm fra Plenum; ingen bygg er berørt",
};

export const LANGUAGES = ["en", "no"] as const;
export type Language = (typeof LANGUAGES)[number];

const BY_LANGUAGE: Readonly<Record<Language, Vocabulary>> = { en: ENGLISH, no: NORWEGIAN };

const NAMES = Object.keys(ENGLISH) as [PhraseName, ...PhraseName[]];

/** Phrases that the user replaces, by name. */
export const Phrases = z.partialRecord(z.enum(NAMES), z.string().min(1).max(200)).superRefine((words, context) => {
  for (const [name, text] of Object.entries(words)) {
    const known = placeholdersOf(ENGLISH[name as PhraseName]);
    const wrong = placeholdersOf(text).find((placeholder) => !known.includes(placeholder));
    if (wrong === undefined) continue;
    const hint = known.length === 0 ? "it has none" : `it has ${known.map((each) => `{${each}}`).join(", ")}`;
    context.addIssue({
      code: "custom",
      path: [name],
      message: `There is no {${wrong}} in this text; ${hint}.`,
    });
  }
});

export function vocabulary(language: Language, own: Readonly<Partial<Record<PhraseName, string>>>): Vocabulary {
  return { ...BY_LANGUAGE[language], ...own };
}

/** Fills in placeholders. */
export function filled(text: string, values: Readonly<Record<string, string | number>>): string {
  return text.replaceAll(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

function placeholdersOf(text: string): readonly string[] {
  return [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? "");
}
