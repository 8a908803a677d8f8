import { z } from "zod";
import { Headers } from "../../../src/core/http/outbound/config.ts";
import { FIELDS, PLACE_FIELDS } from "./template-fields.ts";
import { ANSWER_PATH, fieldsIn, withoutFields } from "./template-text.ts";

/** What is sent for one deed. A text may hold fields such as `{{title}}`. */
const Request = z.strictObject({
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
      description: "Put behind the path of `url`; the values of fields are percent-encoded.",
      examples: ["/tickets/{{place.id}}"],
    }),
  headers: Headers,
  body: z.json().optional().meta({
    description: "JSON; a text that is one field and nothing else becomes the field's value.",
  }),
});

const AnswerPath = z
  .string()
  .max(200)
  .regex(ANSWER_PATH, "Write a path into the answer as $.data.id or $.items[0].id.");

const Success = z.strictObject({
  status: z
    .array(z.int().min(200).max(499))
    .min(1)
    .optional()
    .meta({ description: "Statuses that say yes; without this every 2xx does." }),
  body: z
    .strictObject({
      path: AnswerPath.meta({ description: "What of the answer is looked at.", examples: ["$.ok"] }),
      equals: z
        .union([z.string(), z.number(), z.boolean(), z.null()])
        .meta({ description: "What it has to be." }),
    })
    .optional()
    .meta({ description: "What else the answer has to say; JSON." }),
});

/** Requests of the user's own, for receivers that no format is for. */
export const TemplateConfig = z
  .strictObject({
    open: Request.meta({ description: "What opens it." }),
    update: Request.optional().meta({
      description: "What says that something is new; nothing without this.",
    }),
    close: Request.optional().meta({ description: "What says that it is over; nothing without this." }),
    success: Success.prefault({}).meta({ description: "Which answers say yes." }),
    id: AnswerPath.optional().meta({
      description: "Where the answer to `open` holds the id, which is then `{{place.id}}`.",
      examples: ["$.data.id"],
    }),
    ticket: AnswerPath.optional().meta({ description: "Where it holds what people call it." }),
    link: AnswerPath.optional().meta({ description: "Where it holds the address for people; https." }),
  })
  .superRefine((template, context) => {
    for (const deed of ["open", "update", "close"] as const) {
      const request = template[deed];
      if (request === undefined) continue;
      const known = knownIn(deed, template);
      for (const { path, text } of textsOf(request)) {
        const message = complaintAbout(text, known);
        if (message !== null) context.addIssue({ code: "custom", path: [deed, ...path], message });
      }
      if (!/^[\x21-\x7e]*$/.test(withoutFields(request.path)) || withoutFields(request.path).includes("#")) {
        const message = "Write it as it stands in an address: no spaces, no #, others percent-encoded.";
        context.addIssue({ code: "custom", path: [deed, "path"], message });
      }
    }
  });
export type TemplateConfig = z.infer<typeof TemplateConfig>;
export type TemplateRequest = z.infer<typeof Request>;

interface Known {
  readonly fields: readonly string[];
  /** Why fields of the place are not among them. */
  readonly withoutPlace: string;
}

function knownIn(deed: "open" | "update" | "close", template: Readonly<Record<string, unknown>>): Known {
  const options = PLACE_FIELDS.filter((field) => template[field.slice("place.".length)] !== undefined);
  const isOpened = deed !== "open";
  return {
    fields: FIELDS.filter(
      (name) => !name.startsWith("place.") || (isOpened && options.some((each) => each === name)),
    ),
    withoutPlace: isOpened ? "says where the answer to `open` holds it" : "",
  };
}

function complaintAbout(text: string, { fields, withoutPlace }: Known): string | null {
  const rest = withoutFields(text);
  if (rest.includes("{{") || rest.includes("}}"))
    return "A field is written as {{title}}, with both pairs of braces.";
  const unknown = fieldsIn(text).find((name) => !fields.includes(name));
  if (unknown === undefined) return null;
  if (PLACE_FIELDS.some((name) => name === unknown)) {
    const option = unknown.slice("place.".length);
    return withoutPlace === ""
      ? `{{${unknown}}} is known only after the opening, so it cannot stand in \`open\`.`
      : `{{${unknown}}} is known only where \`${option}\` ${withoutPlace}.`;
  }
  return `There is no field {{${unknown}}}; there are ${fields.join(", ")}.`;
}

interface Text {
  readonly path: readonly PropertyKey[];
  readonly text: string;
}

/** Every text of a request that may hold fields, and where it stands. */
function textsOf(request: TemplateRequest): readonly Text[] {
  const { path, headers, body } = request;
  return [{ path: ["path"], text: path }, ...leavesOf(headers, ["headers"]), ...leavesOf(body, ["body"])];
}

function leavesOf(value: unknown, path: readonly PropertyKey[]): readonly Text[] {
  if (typeof value === "string") return [{ path, text: value }];
  if (typeof value !== "object" || value === null) return [];
  if (Array.isArray(value)) return value.flatMap((each, index) => leavesOf(each, [...path, index]));
  return Object.entries(value).flatMap(([key, each]) => leavesOf(each, [...path, key]));
}
