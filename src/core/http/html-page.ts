/**
 * Whether an answer is a page, and so of somebody on the way who wants us to sign in, or of another server than we mean:
 * no far end of ours answers in HTML, and XML of a storage is no answer to a put.
 */
export function isPage(body: string): boolean {
  return body.trimStart().startsWith("<");
}
