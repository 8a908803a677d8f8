/** An object with these properties and no others. */
function objectSchema(required: readonly string[], properties: Readonly<Record<string, object>>) {
  return { type: "object", required, additionalProperties: false, properties };
}

/** A node of the document, such as a paragraph; its property `type` is always required. */
function nodeSchema(type: string, required: readonly string[] = [], properties: Readonly<Record<string, object>> = {}) {
  return objectSchema(["type", ...required], { type: { const: type }, ...properties });
}

const reference = (name: string) => ({ $ref: `#/$defs/${name}` });
const listOf = (...names: readonly string[]) => ({ type: "array", items: { anyOf: names.map(reference) } });
const nonEmpty = (list: object) => ({ ...list, minItems: 1 });

const plainText = nodeSchema("text", ["text"], { text: { type: "string", minLength: 1 } });
const linkTarget = objectSchema(["href"], { href: { type: "string", pattern: "^https?://" } });

/** Atlassian Document Format, as far as Plenum uses it. */
export const ADF_SCHEMA = {
  ...nodeSchema("doc", ["version", "content"], {
    version: { const: 1 },
    content: listOf("paragraph", "bulletList", "codeBlock"),
  }),
  $defs: {
    paragraph: nodeSchema("paragraph", [], { content: listOf("text", "hardBreak") }),
    codeBlock: nodeSchema("codeBlock", ["content"], { content: nonEmpty({ type: "array", items: plainText }) }),
    bulletList: nodeSchema("bulletList", ["content"], { content: nonEmpty(listOf("listItem")) }),
    listItem: nodeSchema("listItem", ["content"], { content: nonEmpty(listOf("paragraph")) }),
    hardBreak: nodeSchema("hardBreak"),
    text: nodeSchema("text", ["text"], {
      text: { type: "string", minLength: 1, pattern: "^[^\\n\\r]*$" },
      marks: listOf("strong", "link"),
    }),
    strong: nodeSchema("strong"),
    link: nodeSchema("link", ["attrs"], { attrs: linkTarget }),
  },
};
