// What to label next: a mixed queue of vertices, and suspected label errors.

import {get, mayWrite} from "./api.js";
import {askClass} from "./ask.js";
import {announce, button, byId, el, idLink, percent, value, vertexPath, visible} from "./dom.js";
import {add, answerOf, KEYS, openAnswers, remove} from "./pending.js";
import {attempt, begin} from "./shell.js";

const PAGE = 20;
const REASONS = {flagged: "flagged as unseen", uncertain: "uncertain", accepted: "accepted, drawn at random"};
const WHY = "Flagged, uncertain and randomly drawn accepted vertices are mixed, because labels of flagged vertices alone would bias the calibration.";

let tab = location.hash === "#suspects" ? "suspects" : "queue";
let items = [], next = null, now = null;
const skipped = new Set();

const suggestion = (item) => item.suggested ?? item.best;
const isOpen = (item) => !answerOf(item.id) && !skipped.has(item.id);
const current = () => items.find((item) => item.id === now);
const nodeOf = (id) => [...byId("cards").querySelectorAll("article")].find((node) => node.item.id === id);

const answer = (item, label) => {
  add({kind: "label", unit: `v${item.id}`, title: String(item.id), label, groups: [], keys: [], ids: [item.id], without: [], count: 1,
    was: item.label === undefined || item.label === null ? undefined : {[item.id]: item.label}});
  announce(`${visible(item.id)}: ${visible(label)}.`);
  advance();
};
const ACTS = {
  a: (item) => answer(item, suggestion(item)),
  b: async (item) => {
    const first = [suggestion(item), ...(item.nearest ?? []).map((one) => one.class)];
    const label = await askClass({title: `${visible(item.id)} belongs to`, first, create: "last"});
    if (label) answer(item, label);
  },
  l: (item) => { skipped.add(item.id); advance(); },
};
const act = (key, item = current()) => (item && isOpen(item) ? attempt(ACTS[key])(item) : undefined);

const reason = (item) => (tab === "suspects"
  ? ["Labelled ", value(item.label, {class: "strong"}), ", looks like ", value(item.suggested, {class: "strong"}), ` (${percent(item.probability)})`]
  : [el("span", {class: `tag ${item.reason === "flagged" ? "flag" : ""}`}, REASONS[item.reason] ?? item.reason), " ", item.best ? ["most likely ", value(item.best, {class: "strong"}), ` (${percent(item.probability)})`] : ""]);

const cardOf = (item) => {
  const given = answerOf(item.id), attributes = {"data-key": "item", tabindex: "-1", "aria-label": visible(item.id)};
  const made = given || skipped.has(item.id)
    ? el("article", {...attributes, class: "card slim"}, el("h2", {}, value(item.id)), el("p", {}, given ? ["→ ", value(given.label, {class: "strong"})] : "skipped"),
      button("Undo", () => { now = item.id; if (given) remove(given.uid); else { skipped.delete(item.id); show(); } focusCard(); }, {kind: "quiet", label: `Undo the answer on ${visible(item.id)}`}))
    : el("article", {...attributes, class: "card"}, el("header", {}, el("h2", {}, idLink(item.id)), el("span", {class: "soft"}, visible(item.time)), el("span", {class: "reason"}, reason(item))),
      el("p", {class: "text"}, el("bdi", {}, visible(item.text ?? (item.words ?? []).join(", "), true) || "This vertex has no text.")),
      mayWrite ? el("div", {class: "actions"}, suggestion(item) ? button(["Label as ", value(suggestion(item))], () => act("a", item), {key: "a", kind: "primary"}) : "",
        button("Another class…", () => act("b", item), {key: "b"}), button("Skip", () => act("l", item), {key: "l"})) : "");
  made.item = item;
  made.addEventListener("focusin", () => { now = item.id; mark(); });
  return el("li", {}, made);
};

const mark = () => {
  for (const node of byId("cards").querySelectorAll("article")) {
    node.classList.toggle("now", node.item.id === now);
    node.setAttribute("tabindex", node.item.id === now ? "0" : "-1");
  }
};
const focusCard = () => {
  mark();
  const node = nodeOf(now);
  node?.focus({preventScroll: true});
  node?.scrollIntoView({block: "nearest"});
};
const move = (step) => {
  const open = items.filter((item) => isOpen(item) || item.id === now);
  const found = open[open.findIndex((item) => item.id === now) + step];
  if (found) { now = found.id; focusCard(); } else announce(step > 0 ? "This is the last vertex." : "This is the first vertex.");
};
const advance = () => {
  const place = items.findIndex((item) => item.id === now);
  now = (items.slice(place + 1).find(isOpen) ?? items.find(isOpen) ?? items[place])?.id ?? null;
  show();
  focusCard();
};

const show = () => {
  const held = byId("cards").contains(document.activeElement);
  byId("cards").replaceChildren(...items.map(cardOf));
  if (!items.some((item) => item.id === now)) now = items.find(isOpen)?.id ?? null;
  mark();
  if (held) focusCard();
};

const EMPTY = {queue: "Nothing to label. Vertices appear here when a slice was decided and has no labels.", suspects: "No label looks wrong. Suspected errors appear here when the model is sure of another class."};

const load = async (cursor = null) => {
  if (tab === "queue") {
    const found = await get("queue", {limit: PAGE, seed: 0});
    [items, next] = [found.items, null];
    byId("summary").textContent = items.length ? found.why || WHY : EMPTY.queue;
  } else {
    const found = await get("suspects", {limit: PAGE, cursor});
    [items, next] = [cursor === null ? found.suspects : [...items, ...found.suspects], found.next];
    byId("summary").textContent = items.length ? "The model is confident that these labels are wrong (confident learning). Read the text before you correct one." : EMPTY.suspects;
  }
  byId("more").replaceChildren(next === null ? "" : button("Show more", attempt(() => load(next))));
  show();
};

const choose = attempt(async (name) => {
  tab = name;
  history.replaceState(null, "", name === "suspects" ? "#suspects" : location.pathname);
  for (const one of ["queue", "suspects"]) {
    byId(`tab-${one}`).setAttribute("aria-selected", one === name);
    byId(`tab-${one}`).setAttribute("tabindex", one === name ? "0" : "-1");
  }
  byId("panel").setAttribute("aria-labelledby", `tab-${name}`);
  items = [];
  await load();
});
for (const [name, other] of [["queue", "suspects"], ["suspects", "queue"]]) {
  byId(`tab-${name}`).addEventListener("click", () => choose(name));
  byId(`tab-${name}`).addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    choose(other);
    byId(`tab-${other}`).focus();
  });
}

let opened = false;
begin({
  refresh: async (found) => {
    if (!opened) openAnswers(found.name, () => items.length && show());
    if (!opened) await choose(tab); else if (items.length <= PAGE) await load(); // otherwise the person reads further down
    opened = true;
  },
  keys: [
    ...(mayWrite ? [["a", "label with the suggested class", () => act("a")], ["b", "another class", () => act("b")], ["l", "skip", () => act("l")]] : []),
    ["j ↓", "next vertex", () => (byId("cards").contains(document.activeElement) ? move(1) : focusCard())], ["k ↑", "previous vertex", () => move(-1)],
    ["Enter", "open the vertex", () => now !== null && location.assign(vertexPath(now))], ...KEYS,
  ],
});
