import { cutText, shortenUntilFits } from "../shared/receiver/message-texts.ts";
import type { IncidentMessage, IncidentText } from "../shared/receiver/receiver-interface.ts";

const MAX_ISSUE_SUMMARY_LENGTH = 255;
const MAX_ISSUE_BODY_LENGTH = 32_000;
const MAX_INCIDENT_TEXT_LENGTH = 4_000;

type IssueDescriptionContent = Pick<IncidentText, "status" | "fields" | "list" | "timeSeriesLines" | "linkText"> & {
  readonly href: string | null;
};

interface TextFormat {
  render(body: IssueDescriptionContent): unknown;
  renderParagraph(text: string): unknown;
}

export const formatSummary = ({ text }: IncidentMessage): string => cutText(text.title, MAX_ISSUE_SUMMARY_LENGTH);

export function renderDescription({ text, link }: Pick<IncidentMessage, "text" | "link">, format: TextFormat): unknown {
  const href = link === null ? null : new URL(link).href;
  const measureIssueBody = (body: unknown) => (typeof body === "string" ? body : JSON.stringify(body)).length;
  return shortenUntilFits(
    text,
    MAX_INCIDENT_TEXT_LENGTH,
    (shortContent) => format.render({ ...shortContent, href }),
    (body) => measureIssueBody(body) <= MAX_ISSUE_BODY_LENGTH,
  );
}

export function renderComment({ text }: IncidentMessage, fieldLabels: readonly string[], format: TextFormat): unknown {
  const fields = text.fields.filter(({ label }) => fieldLabels.includes(label));
  return renderDescription({ text: { ...text, fields, list: [], timeSeriesLines: [] }, link: null }, format);
}

interface AdfNode {
  readonly type: string;
  readonly content?: readonly AdfNode[];
  readonly text?: string;
  readonly marks?: readonly AdfMark[];
}

interface AdfMark {
  readonly type: string;
  readonly attrs?: Readonly<Record<string, string>>;
}

/** Atlassian Document Format of Jira Cloud, whose text nodes cannot contain mentions, links or markup. */
export const ADF_FORMAT: TextFormat = {
  render({ status, fields, list, timeSeriesLines, linkText, href }) {
    const adfBlockNodes = [
      buildParagraph([buildAdfTextNode(status, { type: "strong" })]),
      buildAdfBulletList(
        fields.map((field) => [buildAdfTextNode(field.label, { type: "strong" }), ...buildAdfLineNodes(field.text)]),
      ),
      buildAdfBulletList(list.map((line) => [buildAdfTextNode(line)])),
      timeSeriesLines.length === 0
        ? null
        : { type: "codeBlock", content: [buildAdfTextNode(timeSeriesLines.join("\n"))] },
      href === null ? null : buildParagraph([buildAdfTextNode(linkText, { type: "link", attrs: { href } })]),
    ];
    return buildAdfDocument(adfBlockNodes.filter((node) => node !== null));
  },
  renderParagraph: (text) => buildAdfDocument([buildParagraph([buildAdfTextNode(text)])]),
};

const buildAdfDocument = (content: readonly AdfNode[]) => ({ version: 1, type: "doc", content });

const buildParagraph = (content: readonly AdfNode[]): AdfNode => ({ type: "paragraph", content });

function buildAdfBulletList(items: readonly (readonly AdfNode[])[]): AdfNode | null {
  if (items.length === 0) return null;
  return { type: "bulletList", content: items.map((item) => ({ type: "listItem", content: [buildParagraph(item)] })) };
}

function buildAdfTextNode(text: string, ...marks: readonly AdfMark[]): AdfNode {
  return { type: "text", text, ...(marks.length === 0 ? {} : { marks }) };
}

function buildAdfLineNodes(multilineText: string): readonly AdfNode[] {
  const [firstLine = "", ...otherLines] = multilineText.split("\n");
  return [
    buildAdfTextNode(`: ${firstLine}`),
    ...otherLines.flatMap((line) => [{ type: "hardBreak" }, buildAdfTextNode(line)]),
  ];
}

/** Wiki text of Jira Data Center. Characters that could be markup are written as numeric entities. */
export const WIKI_FORMAT: TextFormat = {
  render({ status, fields, list, timeSeriesLines, linkText, href }) {
    return [
      `*${escapeWikiMarkup(status)}*`,
      ...fields.map(
        ({ label, text }) => `* *${escapeWikiMarkup(label)}*: ${text.split("\n").map(escapeWikiMarkup).join("\\\\")}`,
      ),
      ...(list.length === 0 ? [] : ["", ...list.map((line) => `* ${escapeWikiMarkup(line)}`)]),
      ...(timeSeriesLines.length === 0
        ? []
        : ["", "{noformat}", ...timeSeriesLines.map(disableNoformatMarkup), "{noformat}"]),
      ...(href === null ? [] : ["", `[${escapeWikiMarkup(linkText)}|${encodeLinkAddress(href)}]`]),
    ].join("\n");
  },
  renderParagraph: escapeWikiMarkup,
};

/** Escapes wiki markup: `[~ola]` becomes `&#91;&#126;ola&#93;`. Keeps `-` and `_` in words such as VS1-GT11. */
function escapeWikiMarkup(text: string): string {
  return text.replaceAll(
    /[!-+:-@[-^`{-~]|(?<![0-9A-Za-z])[-_]|[-_](?![0-9A-Za-z])/g,
    (character) => `&#${character.charCodeAt(0)};`,
  );
}

const disableNoformatMarkup = (text: string): string => text.replaceAll(/[{[]/g, "$& ");

function encodeLinkAddress(href: string): string {
  return href.replaceAll(/[^\w:/?#&=%.~+-]/g, (character) =>
    encodeURIComponent(character).replace(/^[^%]$/, percentEncodeSign),
  );
}

const percentEncodeSign = (character: string): string => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
