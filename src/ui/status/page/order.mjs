import { t } from "/language.mjs";

const ANSWER_WITHIN_MS = 5000;

/** Asks the worker to change something: its answer, or `{ message }`, a sentence that says why it was not done. */
export async function ordered(path, body) {
  try {
    const answer = await fetch(path, {
      method: "POST",
      // Another site cannot send this header without a CORS preflight request, which is never granted.
      headers: { "x-plenum": "status-page", "content-type": "application/json" },
      signal: AbortSignal.timeout(ANSWER_WITHIN_MS),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const said = await answer.json();
    return answer.ok ? { ...said, message: null } : { message: said.message };
  } catch {
    return { message: t("The worker did not respond, so it is unknown whether this was done.") };
  }
}

/** The same where only that matters: an empty text, or why it was not done. */
export async function order(path, body) {
  return (await ordered(path, body)).message ?? "";
}
