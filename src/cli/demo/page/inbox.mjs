/** The demo's inbox: one card for each message, edited where it stands. Texts only ever go into text nodes. */

const EVERY_MS = 1000;
/** The demo answers in milliseconds. */
const ANSWER_WITHIN_MS = 5000;

const list = document.querySelector("ol");
const gone = document.querySelector(".gone");
const empty = document.querySelector(".empty");
/** What is drawn, by the message's id: the card, and how often the message had been edited then. */
const cards = new Map();

function element(name, className, ...content) {
  const made = document.createElement(name);
  made.className = className;
  made.append(...content);
  return made;
}

/** `Site: Kvarnholmen 4` has a label; a line without one is shown as it is. */
function lineOf(line) {
  const [, label, text] = /^([^:]{1,40}): (.*)$/.exec(line) ?? [];
  return label === undefined
    ? element("p", "", line)
    : element("p", "", element("span", "label", label), element("span", "", text));
}

function draw(card, message) {
  const { edits, isClosed, priority, status, statusText, text, title } = message;
  card.className = isClosed ? "closed" : "open";
  const times = edits === 0 ? "" : `edited ${edits === 1 ? "once" : `${edits} times`}`;
  card.replaceChildren(
    element(
      "h2",
      "",
      element("span", "status", statusText),
      element("span", "priority", priority),
      element("b", "", title),
      element("span", "edits", times),
    ),
    ...text
      .split("\n")
      .filter((line) => line !== "")
      .map(lineOf),
  );
  card.dataset.status = status;
}

/** The newest stands first; what is there already keeps its place. */
function show(messages) {
  const ids = new Set(messages.map(({ id }) => id));
  for (const [id, { card }] of cards) {
    if (ids.has(id)) continue;
    card.remove();
    cards.delete(id);
  }
  for (const message of messages.toReversed()) {
    const drawn = cards.get(message.id);
    if (drawn?.edits === message.edits) continue;
    const card = drawn?.card ?? document.createElement("li");
    draw(card, message);
    if (drawn === undefined) list.prepend(card);
    cards.set(message.id, { card, edits: message.edits });
  }
  empty.hidden = messages.length > 0;
}

async function look() {
  try {
    const answer = await fetch("/messages", {
      cache: "no-store",
      signal: AbortSignal.timeout(ANSWER_WITHIN_MS),
    });
    show(await answer.json());
    gone.hidden = true;
  } catch {
    gone.hidden = false;
  }
  setTimeout(() => void look(), EVERY_MS);
}

void look();
