/** True when a response is an HTML page, e.g. the sign-in page of a network. No supported server responds with HTML. */
export function isHtmlPage(body: string): boolean {
  return body.trimStart().startsWith("<");
}
