/** The demo's inbox: one card per message. Texts become text nodes only, so they cannot inject HTML. */

const REFRESH_INTERVAL_MS = 1000;
const RESPONSE_TIMEOUT_MS = 5000;

const cardList = document.querySelector("ol");
const connectionWarning = document.querySelector(".gone");
const emptyInboxText = document.querySelector(".empty");
/** By message id: the message's card on the page, and the number of edits that the card shows. */
const cardsById = new Map();

function buildElement(name, className, ...content) {
  const newElement = document.createElement(name);
  newElement.className = className;
  newElement.append(...content);
  return newElement;
}

/** Splits `Site: Kvarnholmen 4` into label and text; shows a line without a label unchanged. */
function buildMessageLine(line) {
  const [, label, text] = /^([^:]{1,40}): (.*)$/.exec(line) ?? [];
  return label === undefined
    ? buildElement("p", "", line)
    : buildElement("p", "", buildElement("span", "label", label), buildElement("span", "", text));
}

function drawMessage(card, message) {
  const { edits, isClosed, priority, status, statusText, text, title } = message;
  card.className = isClosed ? "closed" : "open";
  const editCountText = edits === 0 ? "" : `edited ${edits === 1 ? "once" : `${edits} times`}`;
  card.replaceChildren(
    buildElement(
      "h2",
      "",
      buildElement("span", "status", statusText),
      buildElement("span", "priority", priority),
      buildElement("b", "", title),
      buildElement("span", "edits", editCountText),
    ),
    ...text
      .split("\n")
      .filter((line) => line !== "")
      .map(buildMessageLine),
  );
  card.dataset.status = status;
}

/** Adds new cards at the top and redraws edited ones in place. */
function showMessages(messages) {
  const ids = new Set(messages.map(({ id }) => id));
  for (const [id, { card }] of cardsById) {
    if (ids.has(id)) continue;
    card.remove();
    cardsById.delete(id);
  }
  for (const message of messages.toReversed()) {
    const drawnCard = cardsById.get(message.id);
    if (drawnCard?.edits === message.edits) continue;
    const card = drawnCard?.card ?? document.createElement("li");
    drawMessage(card, message);
    if (drawnCard === undefined) cardList.prepend(card);
    cardsById.set(message.id, { card, edits: message.edits });
  }
  emptyInboxText.hidden = messages.length > 0;
}

async function refreshMessages() {
  try {
    const response = await fetch("/messages", { cache: "no-store", signal: AbortSignal.timeout(RESPONSE_TIMEOUT_MS) });
    showMessages(await response.json());
    connectionWarning.hidden = true;
  } catch {
    connectionWarning.hidden = false;
  }
  setTimeout(() => void refreshMessages(), REFRESH_INTERVAL_MS);
}

void refreshMessages();
