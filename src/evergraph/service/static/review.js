// The review queue: groups of flagged vertices as cards, answered by button or key.

import {get, mayWrite, vertex} from "./api.js";
import {askClass} from "./ask.js";
import {announce, button, byId, counted, el, idLink, number, percent, toast, value, vertices, visible} from "./dom.js";
import {drawGroup} from "./drawing.js";
import {add, entries, KEYS, openAnswers, remove, staleNotice, toSend} from "./pending.js";
import {askPurity, draw, shortPurity} from "./purity.js";
import {attempt, begin, status} from "./shell.js";

const PAGE = 20, MEMBERS = 20, SAMPLE = 10;

let queue = null; // the answer of the API, with the groups of all pages so far
let units = [];
let now = null; // key of the current card
const selected = new Set();
const cards = new Map(); // by key: {node, seen}

// --- groups, and what the pending answers make of them ---

const whole = (group) => ({...group, unit: `g${group.number}`, title: `Group ${group.number}`, groups: [group], ids: [], of: [group.number]});

const part = (parent, one, i) => ({
  unit: `${parent.unit}/${i + 1}`, title: `${parent.title}, part ${i + 1}`, groups: [], ids: one.ids, of: parent.of, time: parent.time,
  size: one.size, left: one.done ? 0 : one.size, terms: one.terms, exemplars: one.exemplars, nearest: [], earlier: null,
});

const merged = (some) => {
  const counts = new Map();
  for (const {nearest} of some) for (const one of nearest) counts.set(one.class, (counts.get(one.class) ?? 0) + one.count);
  const sum = (field) => some.reduce((total, one) => total + one[field], 0);
  return {
    unit: some.map(({unit}) => unit).join("+"), title: some.map(({title}, i) => (i ? title.replace("Group ", "") : title.replace("Group ", "Groups "))).join(" + "),
    groups: some.flatMap(({groups}) => groups), ids: some.flatMap(({ids}) => ids), of: [...some].sort((a, b) => b.size - a.size).flatMap(({of}) => of),
    time: some[0].time, size: sum("size"), left: sum("left"), terms: [...new Set(some.flatMap(({terms}) => terms.slice(0, 4)))],
    exemplars: some.flatMap(({exemplars}) => exemplars.slice(0, 2)), edges: undefined, earlier: null, merged: some,
    nearest: [...counts].map(([name, count]) => ({class: name, count})).sort((a, b) => b.count - a.count),
  };
};

const arrange = () => {
  units = queue.groups.map(whole);
  const find = (key) => units.find(({unit}) => unit === key);
  const replace = (key, ...others) => units.splice(units.findIndex(({unit}) => unit === key), 1, ...others);
  for (const entry of entries()) {
    if (entry.grouping !== queue.grouping) continue;
    const unit = find(entry.unit);
    if (entry.kind === "merge") {
      const some = entry.of.map(find);
      if (some.includes(undefined)) continue;
      replace(some[0].unit, merged(some));
      units = units.filter((one) => !some.includes(one));
    } else if (!unit) continue;
    else if (entry.kind === "split") replace(entry.unit, ...entry.parts.map((one, i) => part(unit, one, i)));
    else if (entry.kind === "later") unit.later = entry;
    else if (entry.kind === "sample") unit.sample = entry;
    else if (entry.kind === "leave") {
      unit.out = new Set(unit.out);
      if (entry.out) unit.out.add(entry.id); else unit.out.delete(entry.id);
    } else unit.answer = entry;
  }
  units = [...units.filter((unit) => !unit.later), ...units.filter((unit) => unit.later)];
};

const without = (unit) => [...new Set([...(unit.sample?.no ?? []), ...(unit.out ?? [])])];
const isOpen = (unit) => !unit.answer && !unit.dismissed && unit.left > 0;
const current = () => units.find(({unit}) => unit === now);

// --- cards ---

const observer = new IntersectionObserver((seen) => {
  for (const {isIntersecting, target} of seen) if (isIntersecting) { observer.unobserve(target); target.draw(); }
}, {rootMargin: "300px"});

const drawing = (unit) => {
  const place = el("figure", {class: "drawing"}, el("p", {class: "soft small"}, "Drawing…"));
  place.draw = async () => {
    try {
      const graph = await get(`groups/${unit.of[0]}/graph`, {grouping: queue.grouping});
      place.replaceChildren(...drawGroup(graph, unit.ids.length && !unit.groups.length ? unit.ids : null).filter(Boolean));
    } catch (error) {
      place.replaceChildren(el("p", {class: "soft small"}, visible(error.message)));
    }
  };
  observer.observe(place);
  return place;
};

const listed = (rows) => rows.flatMap((one, i) => [i ? ", " : "", one.class === null ? "no label yet" : value(one.class), ` (${number(one.count)})`]);

const facts = (unit) => {
  const rows = [];
  if (unit.nearest?.length) {
    rows.push(["Nearest class", [value(unit.nearest[0].class, {class: "strong"}), unit.overlap === undefined ? ` (${number(unit.nearest[0].count)})` : ` for ${percent(unit.overlap)} of the vertices`]]);
    if (unit.nearest.length > 1) rows.push(["Then", listed(unit.nearest.slice(1, 4))]);
  }
  if (unit.earlier) rows.push(["Flagged before", unit.earlier.vertices
    ? [`${vertices(unit.earlier.vertices)} with the same words: `, listed(unit.earlier.classes.slice(0, 4))] : "nothing similar"]);
  if (unit.sample) rows.push(["Purity", shortPurity(unit.sample)]);
  const out = without(unit).length;
  if (out) rows.push(["Left out", vertices(out)]);
  return rows.length ? el("dl", {class: "facts"}, rows.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))) : null;
};

const textOf = (one) => visible(one.text ?? (one.words ?? []).join(", "), true);

const exemplars = (unit) => el("ul", {class: "exemplars"}, unit.exemplars.slice(0, 4).map((one) =>
  el("li", {}, idLink(one.id), " ", el("bdi", {class: "text"}, textOf(one)))));

const membersOf = (unit) => {
  const list = el("ul", {class: "members"}), more = el("div", {class: "more"});
  const sources = [...unit.groups.map(({number: which}) => ({which, cursor: null})), ...(unit.ids.length ? [{ids: [...unit.ids]}] : [])];
  const load = attempt(async () => {
    const source = sources[0];
    let found;
    if (source.ids) found = await Promise.all(source.ids.splice(0, MEMBERS).map((id) => get(vertex(id))));
    else {
      const page = await get(`groups/${source.which}/members`, {grouping: queue.grouping, cursor: source.cursor, limit: MEMBERS});
      found = page.vertices;
      source.cursor = page.next;
    }
    if (source.ids ? !source.ids.length : source.cursor === null) sources.shift();
    const out = new Set(without(unit));
    list.append(...found.map((one) => el("li", {},
      mayWrite && one.label === null ? el("label", {class: "check"}, el("input", {type: "checkbox", checked: !out.has(one.id), onchange: (event) =>
        add({kind: "leave", unit: unit.unit, title: unit.title, grouping: queue.grouping, id: one.id, out: !event.target.checked})}),
      el("span", {class: "sr"}, `${visible(one.id)} belongs to the group`)) : null,
      el("div", {}, el("p", {}, idLink(one.id), one.label !== null ? el("span", {class: "tag"}, value(one.label)) : "",
        one.best ?? one.decision?.best ? el("span", {class: "soft"}, ` nearest: `, value(one.best ?? one.decision.best), ` ${percent(one.probability ?? one.decision?.probability)}`) : ""),
      el("bdi", {class: "text"}, textOf(one))))));
    more.replaceChildren(sources.length ? button("Show more members", load) : "");
  });
  load();
  return el("div", {class: "opened"}, mayWrite ? el("p", {class: "soft small"}, "Untick a vertex to leave it out of the answer.") : "", list, more);
};

const openUnits = new Set();
const toggleMembers = (unit) => {
  if (openUnits.has(unit.unit)) openUnits.delete(unit.unit); else openUnits.add(unit.unit);
  const {node} = cards.get(unit.unit);
  showMembers(node, unit);
};
const showMembers = (node, unit) => {
  const open = openUnits.has(unit.unit), place = node.querySelector(".place");
  if (!place) return;
  node.querySelector(".opener").setAttribute("aria-expanded", open);
  if (!open) place.replaceChildren();
  else if (!place.firstChild) place.append(membersOf(unit));
};

const actions = (unit) => el("div", {class: "actions"}, ...(mayWrite ? [
  button("New class", () => act("n", unit), {key: "n", kind: "primary"}), button("Belongs to…", () => act("b", unit), {key: "b"}),
  button(unit.merged ? "Separate" : "Split", () => act("s", unit), {key: "s"}),
  button("Not a group", () => act("x", unit), {key: "x"}), button("Later", () => act("l", unit), {key: "l"}),
  button("Sample", () => act("p", unit), {key: "p"})] : []),
button("Members", () => toggleMembers(unit), {key: "Enter", kind: "opener", "aria-expanded": "false"}));

const slim = (unit, text, undone) => el("article", {class: "card slim", "data-key": unit.unit, tabindex: "-1", "aria-labelledby": `title-${unit.unit}`},
  el("h2", {id: `title-${unit.unit}`}, unit.title), el("p", {}, text), undone ? button("Undo", undone, {kind: "quiet", label: `Undo the answer on ${unit.title}`}) : "");

const cardOf = (unit) => {
  if (unit.answer) {
    const {kind, label, count, uid} = unit.answer;
    return slim(unit, kind === "label" ? ["→ ", value(label, {class: "strong"}), ` · ${vertices(count)}`] : "not a group", () => { now = unit.unit; remove(uid); focusCard(); });
  }
  if (unit.dismissed) return slim(unit, "was marked as not a group");
  if (!unit.left) return slim(unit, `all ${vertices(unit.size)} have a label`);
  const labelled = unit.size - unit.left;
  const details = [visible(unit.time), unit.edges !== undefined && counted(unit.edges, "edge"), labelled && `${number(labelled)} labelled since`, unit.later && "later"];
  const box = el("input", {type: "checkbox", checked: selected.has(unit.unit), onchange: () => select(unit)});
  return el("article", {class: "card", "data-key": unit.unit, tabindex: "-1", "aria-labelledby": `title-${unit.unit}`},
    el("header", {}, el("h2", {id: `title-${unit.unit}`}, unit.title), el("span", {class: "size"}, vertices(unit.left)),
      el("span", {class: "soft"}, details.filter(Boolean).join(" · ")),
      mayWrite ? el("label", {class: "check select"}, box, el("span", {}, "Select", el("span", {class: "sr"}, ` ${unit.title}`))) : ""),
    el("div", {class: "body"}, el("div", {},
      el("ul", {class: "terms", "aria-label": "Characteristic words"}, unit.terms.map((term) => el("li", {}, value(term)))), exemplars(unit), facts(unit)),
    drawing(unit), actions(unit)), el("div", {class: "place"}));
};

const signature = (unit) => JSON.stringify([unit.title, unit.left, unit.answer?.uid, unit.later?.uid, unit.sample?.uid, without(unit).length, unit.dismissed, unit.ids.length]);

const show = () => {
  const at = cards.get(now)?.node.getBoundingClientRect().top;
  const held = document.activeElement?.closest?.("[data-key]")?.dataset.key;
  const kept = new Set(units.map(({unit}) => unit));
  for (const key of cards.keys()) if (!kept.has(key)) cards.delete(key);
  for (const key of selected) if (!kept.has(key)) selected.delete(key);
  const items = units.map((unit) => {
    const seen = signature(unit), before = cards.get(unit.unit);
    if (before?.seen !== seen) {
      const node = cardOf(unit);
      const opened = before?.node.querySelector(".opened");
      if (opened && node.querySelector(".place")) node.querySelector(".place").append(opened); // members keep their place
      cards.set(unit.unit, {node, seen, item: before?.item ?? el("li")});
      cards.get(unit.unit).item.replaceChildren(node);
      showMembers(node, unit);
    }
    return cards.get(unit.unit).item;
  });
  const list = byId("cards");
  items.forEach((item, i) => { if (list.children[i] !== item) list.insertBefore(item, list.children[i] ?? null); });
  while (list.children.length > items.length) list.lastChild.remove();
  if (!kept.has(now)) now = (units.find(isOpen) ?? units[0])?.unit ?? null;
  mark();
  const after = cards.get(now)?.node.getBoundingClientRect().top;
  if (at !== undefined && after !== undefined && at > 0) scrollBy({top: after - at, behavior: "instant"});
  if (held && !document.activeElement?.closest?.("[data-key]") && !document.querySelector("dialog[open]")) focusCard();
  showSelection();
};

const mark = () => {
  for (const [key, {node}] of cards) {
    node.classList.toggle("now", key === now);
    node.setAttribute("tabindex", key === now ? "0" : "-1");
  }
};
const focusCard = () => {
  const node = cards.get(now)?.node;
  if (!node) return;
  mark();
  node.focus({preventScroll: true});
  node.scrollIntoView({block: "nearest"});
};
const move = (step) => {
  const open = units.filter((unit) => isOpen(unit) || unit.unit === now);
  const next = open[open.findIndex(({unit}) => unit === now) + step];
  if (!next) { announce(step > 0 ? "This is the last group." : "This is the first group."); if (step > 0 && queue.next) more(); return; }
  now = next.unit;
  focusCard();
};
// After an answer: the next open card below, or the first one.
const advance = () => {
  const place = units.findIndex(({unit}) => unit === now);
  const next = units.slice(place + 1).find(isOpen) ?? units.find(isOpen);
  if (next) now = next.unit;
  focusCard();
};

// --- several groups ---

const select = (unit) => {
  if (selected.has(unit.unit)) selected.delete(unit.unit); else selected.add(unit.unit);
  const box = cards.get(unit.unit).node.querySelector(".select input");
  if (box) box.checked = selected.has(unit.unit);
  announce(`${unit.title} ${selected.has(unit.unit) ? "selected" : "not selected"}.`);
  showSelection();
};
const showSelection = () => {
  const place = byId("selection"), some = units.filter(({unit}) => selected.has(unit));
  place.hidden = !some.length;
  place.replaceChildren();
  if (some.length) place.append(el("p", {}, el("strong", {}, `${counted(some.length, "group")} selected`), el("span", {class: "soft"}, ` · ${vertices(some.reduce((sum, {left}) => sum + left, 0))}`)),
    el("div", {class: "buttons"}, button("Clear", () => { for (const unit of some) select(unit); }, {kind: "quiet"}),
      button("Merge", merge, {key: "m", kind: "primary", disabled: some.length < 2})));
};
const merge = () => {
  const some = units.filter((unit) => selected.has(unit.unit) && isOpen(unit));
  if (some.length < 2) {
    if (current() && isOpen(current())) select(current());
    toast("Select another group with Space, then press m to merge them.");
    return;
  }
  selected.clear();
  const unit = merged(some);
  now = unit.unit;
  add({kind: "merge", unit: unit.unit, of: some.map((one) => one.unit), title: unit.title, grouping: queue.grouping});
  announce(`${unit.title} are merged: ${vertices(unit.left)}.`);
  focusCard();
};

// --- answers ---

const answer = (unit, more) => {
  const out = without(unit);
  const ids = unit.ids.filter((id) => !out.includes(id));
  add({unit: unit.unit, title: unit.title, grouping: queue.grouping, groups: unit.groups.map((one) => one.number), keys: unit.groups.map((one) => one.key),
    ids, without: out, count: unit.left - out.length, ...more});
  advance();
};

const sampleOf = async (unit) => {
  const some = unit.merged ?? [unit];
  const found = await Promise.all(some.map(async (one) => {
    const size = Math.max(1, Math.round(SAMPLE * one.left / unit.left));
    if (one.groups.length) return (await get(`groups/${one.groups[0].number}/sample`, {grouping: queue.grouping, size, seed: 0})).vertices;
    return Promise.all(draw(one.ids, size).map((id) => get(vertex(id))));
  }));
  return found.flat();
};

const ACTS = {
  async n(unit) {
    const label = await askClass({title: `${unit.title}: new class for ${vertices(unit.left - without(unit).length)}`, create: "first"});
    if (label) answer(unit, {kind: "label", label});
  },
  async b(unit) {
    const label = await askClass({title: `${unit.title} belongs to`, first: (unit.nearest ?? []).map((one) => one.class)});
    if (label) answer(unit, {kind: "label", label});
  },
  async s(unit) {
    if (unit.merged) {
      remove(entries().findLast((entry) => entry.kind === "merge" && entry.unit === unit.unit).uid);
      now = unit.merged[0].unit;
      focusCard();
      return;
    }
    if (!unit.groups.length) { toast("A part cannot be split again. Open its members and untick what does not belong."); return; }
    const {parts} = await get(`groups/${unit.groups[0].number}/split`, {grouping: queue.grouping});
    now = `${unit.unit}/1`;
    add({kind: "split", unit: unit.unit, title: unit.title, grouping: queue.grouping, parts});
    announce(`${unit.title} is split into ${parts.length} parts.`);
    focusCard();
  },
  x(unit) { answer(unit, {kind: "dismiss"}); announce(`${unit.title} is not a group.`); },
  l(unit) {
    const place = units.findIndex((one) => one.unit === unit.unit);
    const next = units.slice(place + 1).find(isOpen);
    add({kind: "later", unit: unit.unit, title: unit.title, grouping: queue.grouping});
    announce(`${unit.title} is moved to the end.`);
    if (next) now = next.unit;
    focusCard();
  },
  async p(unit) {
    const found = await askPurity(unit.title, unit.terms, await sampleOf(unit), unit.left);
    if (found) add({kind: "sample", unit: unit.unit, title: unit.title, grouping: queue.grouping, ...found});
    focusCard();
  },
};
const act = (key, unit = current()) => {
  if (!unit || !isOpen(unit)) return undefined;
  now = unit.unit;
  mark();
  return attempt(ACTS[key])(unit);
};

// --- loading ---

const load = async (wanted) => {
  let found = await get("groups", {limit: PAGE});
  const groups = [...found.groups];
  while (groups.length < wanted && found.next !== null) {
    found = await get("groups", {limit: PAGE, cursor: found.next});
    groups.push(...found.groups);
  }
  queue = {...found, groups};
};
const more = attempt(async () => {
  const page = await get("groups", {limit: PAGE, cursor: queue.next});
  if (page.grouping !== queue.grouping) { await refresh(); return; }
  queue = {...page, groups: [...queue.groups, ...page.groups]};
  render();
  announce(`${number(queue.groups.length)} of ${counted(queue.total, "group")} are shown.`);
});

const describe = () => {
  const {flagged, total, alone} = queue;
  if (!flagged) return ["No vertex is flagged. ", status().undecided ? el("a", {href: "/"}, `${vertices(status().undecided)} without a decision: decide them first.`) : "New groups appear here after the next slice was decided."];
  return `${vertices(flagged)} ${flagged === 1 ? "is" : "are"} flagged as unseen. ${total ? `They form ${counted(total, "group")}` : "They form no groups"}${alone && total ? `; ${number(alone)} ${alone === 1 ? "is" : "are"} in no group` : ""}.${total ? " Decide for each group: a new class, a known class, or no group." : ""}`;
};
const render = () => {
  arrange();
  byId("summary").replaceChildren(...[describe()].flat());
  const old = toSend().filter((entry) => entry.groups.length && entry.grouping !== queue.grouping);
  byId("stale").replaceChildren(...(old.length ? [staleNotice(old, attempt(refresh))] : []));
  show();
  const rest = queue.total - queue.groups.length;
  byId("more").replaceChildren(queue.next !== null ? button(`Show more groups (${number(rest)} left)`, more) : "",
    queue.flagged && queue.next === null && queue.alone ? el("p", {class: "soft"}, `${vertices(queue.alone)} in no group: see `, el("a", {href: "/label"}, "what to label next"), ".") : "");
};
const refresh = async () => {
  const before = queue?.grouping;
  await load(queue?.groups.length ?? PAGE);
  if (before !== undefined && before !== queue.grouping) { cards.clear(); selected.clear(); }
  render();
};

byId("cards").addEventListener("focusin", (event) => {
  const key = event.target.closest("[data-key]")?.dataset.key;
  if (key && key !== now) { now = key; mark(); }
});

let started = false;
begin({
  check: async () => {
    const {grouping} = await get("groups", {limit: 1});
    if (grouping !== queue.grouping) await refresh();
  },
  refresh: async (found) => {
    if (!started) openAnswers(found.name, () => { if (queue) render(); });
    await refresh();
    if (!started) { started = true; mark(); }
  },
  keys: [
    ...(mayWrite ? [["n", "new class", () => act("n")], ["b", "belongs to a known class", () => act("b")], ["s", "split, or separate merged groups", () => act("s")],
      ["Space", "select for a merge", () => { if (current() && isOpen(current())) select(current()); }], ["m", "merge the selected groups", merge],
      ["x", "not a group", () => act("x")], ["l", "later", () => act("l")], ["p", "purity: sample about ten vertices", () => act("p")]] : []),
    ["j ↓", "next group", () => (document.activeElement?.closest("[data-key]") ? move(1) : focusCard())], ["k ↑", "previous group", () => move(-1)],
    ["Enter", "open or close the members", () => { if (current() && isOpen(current())) toggleMembers(current()); }],
    ...KEYS,
  ],
});
