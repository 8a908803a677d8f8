import type { Body, Format } from "./body.ts";

/** A node of Atlassian's document format (ADF), version 1. */
interface Node {
  readonly type: string;
  readonly content?: readonly Node[];
  readonly text?: string;
  readonly marks?: readonly Mark[];
}

interface Mark {
  readonly type: string;
  readonly attrs?: Readonly<Record<string, string>>;
}

/** Jira Cloud: nothing in a text node is a mention, a link or a format, whatever it says. */
export const ADF: Format = {
  render({ status, fields, list, curves, link }) {
    const parts = [
      paragraph([text(status, { type: "strong" })]),
      bullets(fields.map(({ label, lines }) => [text(label, { type: "strong" }), ...textOf(lines)])),
      bullets(list.map((line) => [text(line)])),
      curves.length === 0 ? null : { type: "codeBlock", content: [text(curves.join("\n"))] },
      link === null ? null : paragraph([text(link.text, { type: "link", attrs: { href: link.href } })]),
    ];
    return documentOf(parts.filter((part) => part !== null));
  },
  sentence: (sentence) => documentOf([paragraph([text(sentence)])]),
};

function documentOf(content: readonly Node[]) {
  return { version: 1, type: "doc", content };
}

function paragraph(content: readonly Node[]): Node {
  return { type: "paragraph", content };
}

/** An empty list is not allowed. */
function bullets(items: readonly (readonly Node[])[]): Node | null {
  if (items.length === 0) return null;
  return {
    type: "bulletList",
    content: items.map((item) => ({ type: "listItem", content: [paragraph(item)] })),
  };
}

function text(text: string, ...marks: readonly Mark[]): Node {
  return { type: "text", text, ...(marks.length === 0 ? {} : { marks }) };
}

/** `: first`, and each further line behind a break. An empty text is not allowed. */
function textOf(lines: Body["fields"][number]["lines"]): readonly Node[] {
  return lines.flatMap((line, index) =>
    index === 0 ? [text(`: ${line}`)] : [{ type: "hardBreak" }, text(line)],
  );
}
