// Elements, texts and numbers. Values reach the page as text only: nothing here or elsewhere parses HTML.

const HARMLESS = new Set("\u00a0\u2009\u202f\u3000\u200c\u200d");
const NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"};
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}\p{Zs}]/gu;

// Escape control characters and changes of direction, as evergraph.presentation.text.visible does.
export const visible = (text, lines = false) => String(text).replace(HIDDEN, (letter) => {
  if (letter === " " || HARMLESS.has(letter) || (lines && letter === "\n")) return letter;
  const code = letter.codePointAt(0);
  if (NAMED[letter]) return NAMED[letter];
  const [mark, length] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(length, "0")}`;
});

const fill = (made, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
};

export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// A value of the data: isolated from the direction of the sentence around it.
export const value = (text, attributes = {}) => el("bdi", attributes, visible(text));
export const idLink = (id) => el("a", {class: "id", href: vertexPath(id)}, value(id));
export const vertexPath = (id) => `/vertex?id=${encodeURIComponent(id)}`;

export const byId = (id) => document.getElementById(id);
export const number = (count) => Number(count).toLocaleString("en");
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
export const vertices = (count) => counted(count, "vertex", "vertices");
export const percent = (share, digits = 0) =>
  share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}\u00a0%`;
export const when = (moment) => {
  if (!moment) return "–";
  const date = new Date(moment);
  return el("time", {datetime: date.toISOString()}, date.toLocaleString("en-GB", {dateStyle: "medium", timeStyle: "short"}));
};

// A button with its key, e.g. button("New class", act, {key: "n"}).
export const button = (text, act, {key, kind, label, ...more} = {}) =>
  el("button", {type: "button", class: kind, onclick: act, "aria-label": label, "aria-keyshortcuts": key, ...more},
    el("span", {}, text), key && el("kbd", {"aria-hidden": "true"}, key));

// Columns in `words` may wrap; with `cards`, each row is a card on a narrow screen.
export const table = (caption, heads, rows, words = [], {cards = false} = {}) =>
  el("div", {class: "box", tabindex: "0", role: "region", "aria-label": caption},
    el("table", {class: cards && "as-cards"}, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", {scope: "col", class: words.includes(i) && "word"}, head)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) =>
        i === 0 ? el("th", {scope: "row", class: words.includes(0) && "word"}, cell)
          : el("td", {class: words.includes(i) && "word", "data-head": heads[i]}, cell)))))));

// Say something to a screen reader.
export const announce = (text) => { byId("live").textContent = text; };

// A message at the edge of the window; it stays until it is closed if it has an action or is an error.
export const toast = (text, {action, act, error = false} = {}) => {
  const close = () => made.remove();
  const made = el("div", {class: error ? "toast error" : "toast"}, el("span", {}, visible(text, true)),
    action && button(action, () => { close(); act(); }),
    button("×", close, {kind: "quiet", label: "Close this message"}));
  byId("toasts").append(made);
  while (byId("toasts").children.length > 3) byId("toasts").firstChild.remove();
  if (!action && !error) setTimeout(close, 8000);
  return close;
};

// A dialog that is removed when it closes; the focus returns to where it was.
export const dialog = (title, content, {kind = "", onclose} = {}) => {
  const back = document.activeElement;
  const heading = el("h2", {id: "dialog-title"}, title);
  const made = el("dialog", {class: kind, "aria-labelledby": "dialog-title"}, heading, content);
  made.addEventListener("close", () => {
    made.remove();
    if (back?.isConnected) back.focus({preventScroll: true});
    onclose?.();
  });
  document.body.append(made);
  made.showModal();
  return made;
};
