import { z } from "zod";
import { ConfigError, Rejected } from "../../../src/core/errors/errors.ts";
import { RequestHeaders } from "../../../src/core/http/outbound/config.ts";
import type { IncidentMessage, IncidentReference } from "../../shared/receiver/receiver-interface.ts";
import {
  buildRequestPath,
  createUnconfirmedFailure,
  formatBody,
  formatHeading,
  getJsonMember,
  type IncidentOperation,
  type ReceiverFormat,
} from "./format.ts";

const TEMPLATE_FIELD_PATTERN = /\{\{([^{}]*)\}\}/g;

const listTemplateFields = (text: string): readonly string[] =>
  [...text.matchAll(TEMPLATE_FIELD_PATTERN)].map(([, name = ""]) => name.trim());

const removeTemplateFields = (text: string): string => text.replaceAll(TEMPLATE_FIELD_PATTERN, "");

function fillFields(text: string, readField: (name: string) => string): string {
  return text.replaceAll(TEMPLATE_FIELD_PATTERN, (_, name: string) => readField(name.trim()));
}

/** Returns `site.id` for the text `{{site.id}}`; null for a text with other characters before or after the braces. */
function parseSingleField(text: string): string | null {
  const [, name] = /^\{\{([^{}]*)\}\}$/.exec(text) ?? [];
  return name?.trim() ?? null;
}

function toText(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function parseResponsePath(path: string): readonly string[] {
  return [...path.matchAll(/\.([A-Za-z_][\w-]*)|\[(\d+)\]/g)].map(([, name, index]) => name ?? index ?? "");
}

const RESPONSE_PATH_PATTERN = /^\$(\.[A-Za-z_][\w-]*|\[\d{1,4}\])*$/;

const INCIDENT_REFERENCE_FIELDS = ["place.id", "place.ticket", "place.link"] as const;

export const TEMPLATE_FIELDS: readonly string[] = [
  ...["title", "heading", "text", "statusText", "list", "curves"],
  ...["key", "kind", "status", "change", "changeId", "source", "priority", "startedAt", "endedAt", "link"],
  ...["site", "site.id", "site.displayName"],
  ...["gateway", "gateway.id", "gateway.displayName"],
  ...["members", "members.total", "members.active", "members.shown"],
  ...["alarm", "alarm.id", "alarm.status", "alarm.source", "alarm.description"],
  ...["alarm.site", "alarm.site.id", "alarm.site.displayName"],
  ...["alarm.triggeredAt", "alarm.resolvedAt", "alarm.recoveringUntil"],
  ...["alarm.acknowledged", "alarm.acknowledgedBy", "alarm.acknowledgedMessage", "alarm.acknowledgedAt"],
  ...["alarm.trigger", "alarm.trigger.id", "alarm.trigger.displayName", "alarm.trigger.description"],
  ...["alarm.trigger.priority", "alarm.trigger.enabled"],
  ...["alarm.lastActiveEvent", "alarm.lastActiveEvent.source", "alarm.lastActiveEvent.type"],
  ...["alarm.lastActiveEvent.triggeredOn", "alarm.lastActiveEvent.triggeredAt"],
  ...["alarm.lastActiveEvent.value", "alarm.lastActiveEvent.textlistValue"],
  ...INCIDENT_REFERENCE_FIELDS,
];

type FieldReader = (name: string) => unknown;

export function createTemplateFieldReader(incident: IncidentMessage, reference: IncidentReference | null): FieldReader {
  const { text } = incident;
  const { title, list, timeSeriesLines, status: statusText } = text;
  const place = reference && { id: getJsonMember(reference.ref, "id"), ticket: reference.ticket, link: reference.link };
  const texts = {
    title,
    heading: formatHeading(text),
    text: formatBody(text),
    statusText,
    list,
    curves: timeSeriesLines,
  };
  const fieldTree = { ...incident, ...texts, place };
  return (name) => name.split(".").reduce<unknown>(getJsonMember, fieldTree) ?? null;
}

const TemplateRequest = z.strictObject({
  method: z
    .enum(["POST", "PUT", "PATCH", "DELETE", "GET"])
    .default("POST")
    .meta({ description: "Method of the request." }),
  path: z
    .string()
    .max(2_000)
    .regex(/^([/?].*)?$/s, "Begin it with / or ?; it is put behind the path of `url`.")
    .default("")
    .meta({
      description: "Appended to the path of `url`; values of fields are percent-encoded.",
      examples: ["/tickets/{{place.id}}"],
    }),
  headers: RequestHeaders,
  body: z.json().optional().meta({
    description: "JSON; a text that is exactly one field becomes the field's value.",
  }),
});

const ResponseJsonPath = z
  .string()
  .max(200)
  .regex(RESPONSE_PATH_PATTERN, "Write a path into the answer as $.data.id or $.items[0].id.");

const ResponseSuccessConditions = z.strictObject({
  status: z
    .array(z.int().min(200).max(499))
    .min(1)
    .optional()
    .meta({ description: "Success statuses; every 2xx by default." }),
  body: z
    .strictObject({
      path: ResponseJsonPath.meta({ description: "Path of the value in the response.", examples: ["$.ok"] }),
      equals: z.union([z.string(), z.number(), z.boolean(), z.null()]).meta({ description: "Required value." }),
    })
    .optional()
    .meta({ description: "Required content of the JSON response." }),
});

export const TemplateConfig = z
  .strictObject({
    open: TemplateRequest.meta({ description: "Request that opens an incident." }),
    update: TemplateRequest.optional().meta({ description: "Request for a change; none without it." }),
    close: TemplateRequest.optional().meta({ description: "Request for the end; none without it." }),
    success: ResponseSuccessConditions.prefault({}).meta({ description: "Responses that count as success." }),
    id: ResponseJsonPath.optional().meta({
      description: "Path of the id in the response to `open`, which is then `{{place.id}}`.",
      examples: ["$.data.id"],
    }),
    ticket: ResponseJsonPath.optional().meta({ description: "Path of the number or key that people use." }),
    link: ResponseJsonPath.optional().meta({ description: "Path of the address for people; https." }),
  })
  .superRefine((template, context) => {
    for (const operation of ["open", "update", "close"] as const) {
      const request = template[operation];
      if (request === undefined) continue;
      for (const { path, text } of collectJsonTexts(request, [])) {
        const message = findTemplateFieldError(text, operation, template);
        if (message !== null) context.addIssue({ code: "custom", path: [operation, ...path], message });
      }
      if (!/^[\x21\x22\x24-\x7e]*$/.test(removeTemplateFields(request.path))) {
        const message = "Write it as it stands in an address: no spaces, no #, others percent-encoded.";
        context.addIssue({ code: "custom", path: [operation, "path"], message });
      }
    }
  });
export type TemplateConfig = z.infer<typeof TemplateConfig>;
type TemplateRequest = z.infer<typeof TemplateRequest>;

function findTemplateFieldError(
  text: string,
  operation: IncidentOperation,
  template: Readonly<Record<string, unknown>>,
): string | null {
  const textWithoutFields = removeTemplateFields(text);
  if (textWithoutFields.includes("{{") || textWithoutFields.includes("}}"))
    return "A field is written as {{title}}, with both pairs of braces.";
  const getReferenceOptionName = (field: string) => field.slice("place.".length);
  const isKnownField = (field: string) =>
    TEMPLATE_FIELDS.includes(field) &&
    (!field.startsWith("place.") || (operation !== "open" && template[getReferenceOptionName(field)] !== undefined));
  const unknownField = listTemplateFields(text).find((name) => !isKnownField(name));
  if (unknownField === undefined) return null;
  if (!INCIDENT_REFERENCE_FIELDS.some((name) => name === unknownField))
    return `There is no field {{${unknownField}}}; there are ${TEMPLATE_FIELDS.filter(isKnownField).join(", ")}.`;
  return operation === "open"
    ? `{{${unknownField}}} is known only after the opening, so it cannot stand in \`open\`.`
    : `{{${unknownField}}} is known only where \`${getReferenceOptionName(unknownField)}\` says where the answer to \`open\` holds it.`;
}

function collectJsonTexts(
  value: unknown,
  path: readonly PropertyKey[],
): readonly { readonly path: readonly PropertyKey[]; readonly text: string }[] {
  if (typeof value === "string") return [{ path, text: value }];
  if (typeof value !== "object" || value === null) return [];
  if (Array.isArray(value)) return value.flatMap((item, index) => collectJsonTexts(item, [...path, index]));
  return Object.entries(value).flatMap(([key, member]) => collectJsonTexts(member, [...path, key]));
}

const GONE_HTTP_STATUSES: readonly number[] = [404, 409, 410];

export function createTemplateFormat(template: TemplateConfig): ReceiverFormat {
  const { body: expectedBody, status: statuses } = template.success;

  return {
    repeatedOpenEffect: "another",

    buildRequest(incident, operation, { url, reference }) {
      const request = template[operation];
      if (request === undefined) return null;
      const readFieldValue = createTemplateFieldReader(incident, reference);
      return {
        method: request.method,
        path: appendRequestPath(url, fillRequestPath(request, readFieldValue)),
        headers: fillRequestHeaders(request, readFieldValue),
        json: request.body === undefined ? undefined : fillJsonBody(request.body, readFieldValue),
        allow: [...(statuses ?? []), ...(pathContainsIncidentId(request, operation) ? GONE_HTTP_STATUSES : [])],
      };
    },

    findFailure(response, receiverName) {
      const { json, status } = response;
      if (!(statuses?.includes(status) ?? (status >= 200 && status < 300)))
        return createUnconfirmedFailure(response, receiverName);
      if (expectedBody === undefined || readResponseValue(json, expectedBody.path) === expectedBody.equals) return null;
      const hint = `Its answer should have ${JSON.stringify(expectedBody.equals)} at ${expectedBody.path}.`;
      return createUnconfirmedFailure(response, receiverName, hint);
    },

    parseReference: ({ json }) => parseIncidentReference(template, json),

    isGone: ({ status }) => GONE_HTTP_STATUSES.includes(status) && statuses?.includes(status) !== true,
  };
}

/** Returns true if the request path contains the incident's id or key. Without them, a 404 means a wrong address. */
function pathContainsIncidentId({ path }: TemplateRequest, operation: IncidentOperation): boolean {
  return operation !== "open" && listTemplateFields(path).some((name) => name.startsWith("place.") || name === "key");
}

function appendRequestPath(url: URL, requestPath: string): string {
  const [, pathSuffix, query = ""] = /^([^?]*)\??(.*)$/s.exec(requestPath) ?? [];
  const path = buildRequestPath(url, pathSuffix);
  return query === "" ? path : `${path}${url.search === "" ? "?" : "&"}${query}`;
}

function fillRequestPath({ path }: TemplateRequest, readField: FieldReader): string {
  return fillFields(path, (name) => {
    const fieldText = toText(readField(name)).toWellFormed();
    // The value is percent-encoded, so only the values `.` and `..` can still change the path.
    if (/^\.{1,2}$/.test(fieldText))
      throw new Rejected(`The value of {{${name}}} would change the path of the address.`);
    return encodeURIComponent(fieldText);
  });
}

/** Fills fields in headers. Node.js sends each character as one byte, so UTF-8 bytes are passed as latin1. */
function fillRequestHeaders({ headers }: TemplateRequest, readField: FieldReader): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).flatMap(([header, text]) => {
      if (typeof text !== "string") return [];
      const filledHeaderText = fillFields(text, (name) => toText(readField(name)));
      if (/\p{Cc}/u.test(filledHeaderText))
        throw new Rejected(`The header ${header} would have control characters in it, which a name brought along.`);
      return [[header.toLowerCase(), Buffer.from(filledHeaderText).toString("latin1")] as const];
    }),
  );
}

/** Fills fields in JSON values. A text with only a field, e.g. `{{site.id}}`, becomes its value, such as a number. */
function fillJsonBody(json: unknown, readField: FieldReader): unknown {
  if (typeof json === "string") {
    const singleField = parseSingleField(json);
    return singleField === null ? fillFields(json, (name) => toText(readField(name))) : readField(singleField);
  }
  if (Array.isArray(json)) return json.map((item) => fillJsonBody(item, readField));
  if (typeof json !== "object" || json === null) return json;
  return Object.fromEntries(Object.entries(json).map(([key, member]) => [key, fillJsonBody(member, readField)]));
}

/** Reads id, ticket and link from the response to the request that opened the incident. Throws without an id. */
function parseIncidentReference(template: TemplateConfig, json: unknown): IncidentReference {
  const readValueAt = (path: string | undefined) => (path === undefined ? undefined : readResponseValue(json, path));
  const id = readValueAt(template.id);
  if (template.id !== undefined && typeof id !== "number" && (typeof id !== "string" || id === "")) {
    const hint = "It was opened there. Set the path right; until then it would be opened once more each time.";
    throw new ConfigError(`The response to \`open\` has no id at ${template.id}.`, { field: "template.id", hint });
  }
  const ticket = toText(readValueAt(template.ticket));
  const link = toText(readValueAt(template.link));
  return {
    ref: template.id === undefined ? null : { id },
    ticket: ticket === "" ? null : ticket,
    link: link.startsWith("https://") && URL.canParse(link) ? link : null,
  };
}

const readResponseValue = (json: unknown, path: string): unknown => parseResponsePath(path).reduce(getJsonMember, json);
