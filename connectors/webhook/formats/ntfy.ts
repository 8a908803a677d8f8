import { ConfigError } from "../../../src/core/errors/errors.ts";
import { inHeader } from "../../../src/core/http/outbound/headers.ts";
import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import { cutBytes } from "../../shared/receiver/text.ts";
import { byPriority, type Deed, type Format, memberOf, refusal } from "./format.ts";
import { bodyOf, headingOf, textOf } from "./shown.ts";

/** A message of more than 4,096 bytes becomes a file; the request may have 8,192, and a quote takes two of them. */
const MOST_MESSAGE_BYTES = 3_000;
const MOST_TITLE_BYTES = 400;

/** ntfy: one notification for each sequence id, from 2.16 on; an older server shows a new one each time. */
export const ntfy: Format = {
  opensAgain: "same",
  // 60 requests at once, then one in five seconds: https://docs.ntfy.sh/publish/#limitations.
  rates: [{ count: 60, inMs: 300_000 }],

  say(told, deed, { url, key }) {
    const look = lookOf(told, deed);
    if (look === null) return null;
    const text = textOf(told);
    const { server, topic } = partsOf(url);
    return {
      method: "POST",
      path: server,
      headers: {
        "x-sequence-id": told.key,
        ...(key === "" ? {} : { authorization: `Bearer ${inHeader(key, "Authorization")}` }),
      },
      json: {
        topic,
        title: cutBytes(headingOf(text), MOST_TITLE_BYTES),
        message: cutBytes(bodyOf(text), MOST_MESSAGE_BYTES),
        ...look,
        ...(told.link === null ? {} : { click: told.link }),
      },
    };
  },

  judge(said, who) {
    return typeof memberOf(said.json, "id") === "string" ? null : refusal(said, who);
  },
};

/** How loud it is (1 to 5; 2 and less make no sound), and its emoji. */
function lookOf(
  told: IncidentMessage,
  deed: Deed,
): { readonly priority: number; readonly tags: readonly string[] } | null {
  if (deed === "open" || told.change === "retriggered")
    return { priority: Number(byPriority(told.priority, ["5", "4", "3"])), tags: ["rotating_light"] };
  if (deed === "close") return { priority: 3, tags: ["white_check_mark"] };
  if (told.change === "vanished" || told.change === "out-of-scope")
    return { priority: 2, tags: ["grey_question"] };
  return null;
}

/** `https://ntfy.example.com/heating`: JSON goes to the server, and names the topic. */
function partsOf(url: URL): { readonly server: string; readonly topic: string } {
  const [, server, topic] = /^(.*\/)([A-Za-z0-9_-]{1,64})$/.exec(url.pathname) ?? [];
  if (server === undefined || topic === undefined) {
    throw new ConfigError("The address of ntfy has to end with the topic.", {
      field: "url",
      hint: "Write it as https://ntfy.example.com/topic.",
    });
  }
  return { server, topic };
}
