import { ConfigError, type Failure, Rejected } from "../../../src/core/errors/errors.ts";
import type { ReceiverResponse } from "../../../src/core/http/outbound/request.ts";
import type { IncidentReference } from "../../shared/receiver/receiver.ts";
import { type Deed, type Format, memberOf, pathOf, refusal } from "./format.ts";
import type { TemplateConfig, TemplateRequest } from "./template-config.ts";
import { type Fields, fieldsOf } from "./template-fields.ts";
import { asText, fieldsIn, filledIn, onlyFieldOf, stepsOf } from "./template-text.ts";

/** Statuses by which a receiver says that the thing of an update is not there, or is closed already. */
const GONE: readonly number[] = [404, 409, 410];

/** Requests of the user's own. */
export function templateFormat(template: TemplateConfig): Format {
  const statuses = template.success.status;

  return {
    opensAgain: "another",

    say(told, deed, { url, place }) {
      const request = template[deed];
      if (request === undefined) return null;
      const value = fieldsOf(told, place);
      const { method, body } = request;
      return {
        method,
        path: pathBehind(url, filledPath(request, value)),
        headers: filledHeaders(request, value),
        ...(body === undefined ? {} : { json: filledTree(body, value) }),
        allow: [...(statuses ?? []), ...(isAboutAPlace(request, deed) ? GONE : [])],
      };
    },

    judge(said, who) {
      const isYes = statuses?.includes(said.status) ?? (said.status >= 200 && said.status < 300);
      if (!isYes) return refusal(said, who);
      return failureOfBody(template, said, who);
    },

    placeOf(said) {
      return placeIn(template, said);
    },

    isGone: (said) => GONE.includes(said.status) && statuses?.includes(said.status) !== true,
  };
}

/** Only a request that names the thing can find out that it is gone; for any other a 404 is about the address. */
function isAboutAPlace({ path }: TemplateRequest, deed: Deed): boolean {
  return deed !== "open" && fieldsIn(path).some((name) => name.startsWith("place.") || name === "key");
}

/** The path of the address, then that of the request; the questions of both. */
function pathBehind(url: URL, asked: string): string {
  const at = asked.indexOf("?");
  const under = at < 0 ? asked : asked.slice(0, at);
  const query = at < 0 ? "" : asked.slice(at + 1);
  const path = pathOf(url, under);
  if (query === "") return path;
  return `${path}${url.search === "" ? "?" : "&"}${query}`;
}

function filledPath({ path }: TemplateRequest, value: Fields): string {
  return filledIn(path, (name) => {
    const text = asText(value(name)).toWellFormed();
    // Nothing else that is percent-encoded can lead to another place.
    if (/^\.{1,2}$/.test(text))
      throw new Rejected(`The value of {{${name}}} would change the path of the address.`);
    return encodeURIComponent(text);
  });
}

/** A value is written in UTF-8, which Node.js sends byte for byte when each byte is a character. */
function filledHeaders({ headers }: TemplateRequest, value: Fields): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).flatMap(([header, text]) => {
      if (typeof text !== "string") return [];
      const filled = filledIn(text, (name) => asText(value(name)));
      if (/\p{Cc}/u.test(filled))
        throw new Rejected(
          `The header ${header} would have control characters in it, which a name brought along.`,
        );
      return [[header.toLowerCase(), Buffer.from(filled).toString("latin1")] as const];
    }),
  );
}

/** A text that is one field becomes its value, so nothing in a name can break out of the JSON; keys stay as they are. */
function filledTree(tree: unknown, value: Fields): unknown {
  if (typeof tree === "string") {
    const only = onlyFieldOf(tree);
    return only === null ? filledIn(tree, (name) => asText(value(name))) : value(only);
  }
  if (Array.isArray(tree)) return tree.map((each) => filledTree(each, value));
  if (typeof tree !== "object" || tree === null) return tree;
  return Object.fromEntries(Object.entries(tree).map(([key, each]) => [key, filledTree(each, value)]));
}

function failureOfBody({ success }: TemplateConfig, said: ReceiverResponse, who: string): Failure | null {
  if (success.body === undefined) return null;
  const { path, equals } = success.body;
  return valueAt(said.json, path) === equals
    ? null
    : refusal(said, who, `Its answer should have ${JSON.stringify(equals)} at ${path}.`);
}

/** The opening was carried out when this is asked; a path that leads nowhere is for a person. */
function placeIn(template: TemplateConfig, said: ReceiverResponse): IncidentReference {
  const at = (path: string | undefined) => (path === undefined ? undefined : valueAt(said.json, path));
  const id = at(template.id);
  if (
    template.id !== undefined &&
    (typeof id === "number" || (typeof id === "string" && id !== "")) === false
  ) {
    throw new ConfigError(`The answer to the opening holds no id at ${template.id}.`, {
      field: "template.id",
      hint: "It was opened there. Set the path right; until then it would be opened once more each time.",
    });
  }
  const ticket = asText(at(template.ticket));
  const link = asText(at(template.link));
  return {
    ref: template.id === undefined ? null : { id },
    ticket: ticket === "" ? null : ticket,
    link: link.startsWith("https://") && URL.canParse(link) ? link : null,
  };
}

function valueAt(json: unknown, path: string): unknown {
  return stepsOf(path).reduce(memberOf, json);
}
