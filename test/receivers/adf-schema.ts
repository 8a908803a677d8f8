export const ADF_SCHEMA = {
  type: "object",
  required: ["version", "type", "content"],
  additionalProperties: false,
  properties: {
    version: { const: 1 },
    type: { const: "doc" },
    content: {
      type: "array",
      items: { anyOf: [{ $ref: "#/$defs/paragraph" }, { $ref: "#/$defs/bulletList" }, { $ref: "#/$defs/codeBlock" }] },
    },
  },
  $defs: {
    paragraph: {
      type: "object",
      required: ["type"],
      additionalProperties: false,
      properties: {
        type: { const: "paragraph" },
        content: { type: "array", items: { anyOf: [{ $ref: "#/$defs/text" }, { $ref: "#/$defs/hardBreak" }] } },
      },
    },
    codeBlock: {
      type: "object",
      required: ["type", "content"],
      additionalProperties: false,
      properties: {
        type: { const: "codeBlock" },
        content: {
          type: "array",
          minItems: 1,
          items: {
            type: "object",
            required: ["type", "text"],
            additionalProperties: false,
            properties: { type: { const: "text" }, text: { type: "string", minLength: 1 } },
          },
        },
      },
    },
    bulletList: {
      type: "object",
      required: ["type", "content"],
      additionalProperties: false,
      properties: {
        type: { const: "bulletList" },
        content: { type: "array", minItems: 1, items: { $ref: "#/$defs/listItem" } },
      },
    },
    listItem: {
      type: "object",
      required: ["type", "content"],
      additionalProperties: false,
      properties: {
        type: { const: "listItem" },
        content: { type: "array", minItems: 1, items: { $ref: "#/$defs/paragraph" } },
      },
    },
    hardBreak: {
      type: "object",
      required: ["type"],
      additionalProperties: false,
      properties: { type: { const: "hardBreak" } },
    },
    text: {
      type: "object",
      required: ["type", "text"],
      additionalProperties: false,
      properties: {
        type: { const: "text" },
        text: { type: "string", minLength: 1, pattern: "^[^\\n\\r]*$" },
        marks: { type: "array", items: { anyOf: [{ $ref: "#/$defs/strong" }, { $ref: "#/$defs/link" }] } },
      },
    },
    strong: {
      type: "object",
      required: ["type"],
      additionalProperties: false,
      properties: { type: { const: "strong" } },
    },
    link: {
      type: "object",
      required: ["type", "attrs"],
      additionalProperties: false,
      properties: {
        type: { const: "link" },
        attrs: {
          type: "object",
          required: ["href"],
          additionalProperties: false,
          properties: { href: { type: "string", pattern: "^https?://" } },
        },
      },
    },
  },
} as const;
