const ANSWER_WITHIN_MS = 5000;

/** Asks the worker to change something; answers an empty text, or a sentence that says why it was not done. */
export async function order(path, body) {
  try {
    const answer = await fetch(path, {
      method: "POST",
      // No other site's page can send the first without asking, and nobody answers its question.
      headers: { "x-plenum": "status-page", "content-type": "application/json" },
      signal: AbortSignal.timeout(ANSWER_WITHIN_MS),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return answer.ok ? "" : (await answer.json()).message;
  } catch {
    return "The worker did not answer, so nobody knows whether it was done.";
  }
}
