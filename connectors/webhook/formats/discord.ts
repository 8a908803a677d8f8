import { ConfigError } from "../../../src/core/errors/errors.ts";
import type { IncidentMessage, IncidentReference } from "../../shared/receiver/receiver.ts";
import type { IncidentText } from "../../shared/receiver/text.ts";
import { type Format, memberOf, NOWHERE, pathOf, refusal } from "./format.ts";
import { fitting, headingOf, markdown, textOf } from "./shown.ts";

/** Sizes of an embed, in characters; the last of all its texts together. */
const MOST_TITLE = 256;
const MOST_DESCRIPTION = 4_096;
const MOST_NAME = 256;
const MOST_VALUE = 1_024;
const MOST_TOGETHER = 6_000;

/** Code of Discord for a message that is not there (any more). */
const UNKNOWN_MESSAGE = 10_008;

/** Discord, webhook of a channel: one message, edited in place. An edit calls nobody. */
export const discord: Format = {
  opensAgain: "another",
  // Five requests in two seconds and webhook, as its X-RateLimit headers say; its documentation names no fixed number.
  rates: [{ count: 5, inMs: 2_000 }],

  say(told, deed, { url, place }) {
    const embed = fitting(textOf(told), (text) => embedOf(told, text), fits);
    const json = { embeds: [embed], allowed_mentions: { parse: [] } };
    if (deed === "open") return { method: "POST", path: pathOf(url, "", { wait: "true" }), json };
    const id = idIn(place);
    // It was told to no message that we could edit.
    if (id === null) return null;
    return { method: "PATCH", path: pathOf(url, `/messages/${id}`), json, allow: [404] };
  },

  judge(said, who) {
    if (said.status === 404) {
      return new ConfigError(`${who} answered 404: there is no such webhook.`, {
        field: "url",
        hint: "Make a new webhook for the channel and put its address into the secret.",
      });
    }
    return isId(memberOf(said.json, "id")) ? null : refusal(said, who);
  },

  placeOf(said) {
    const id = memberOf(said.json, "id");
    return { ...NOWHERE, ref: { id } };
  },

  isGone: (said) => said.status === 404 && memberOf(said.json, "code") === UNKNOWN_MESSAGE,

  probe: ({ url }) => ({ method: "GET", path: pathOf(url), allow: [404] }),
};

interface Embed {
  readonly title: string;
  readonly description?: string;
  readonly fields: readonly { readonly name: string; readonly value: string }[];
  readonly [option: string]: unknown;
}

function embedOf(told: IncidentMessage, text: IncidentText): Embed {
  const lines = [...text.list, ...text.curves];
  return {
    title: markdown(headingOf(text)),
    color: colourOf(told),
    fields: text.fields.map(({ label, text }) => ({ name: markdown(label), value: markdown(text) })),
    ...(lines.length === 0 ? {} : { description: lines.map(markdown).join("\n") }),
    ...(told.link === null ? {} : { url: told.link }),
  };
}

function fits({ title, description = "", fields }: Embed): boolean {
  const together = fields.reduce(
    (sum, { name, value }) => sum + name.length + value.length,
    title.length + description.length,
  );
  return (
    together <= MOST_TOGETHER &&
    title.length <= MOST_TITLE &&
    description.length <= MOST_DESCRIPTION &&
    fields.every(({ name, value }) => name.length <= MOST_NAME && value.length <= MOST_VALUE)
  );
}

function colourOf(told: IncidentMessage): number {
  if (told.status === "resolved") return 0x2e_a0_43;
  return told.status === "unknown" ? 0x80_80_80 : 0xd7_3a_49;
}

function idIn(place: IncidentReference | null): string | null {
  const id = memberOf(place?.ref, "id");
  return isId(id) ? id : null;
}

function isId(id: unknown): id is string {
  return typeof id === "string" && /^\d{1,20}$/.test(id);
}
