// Estimate how pure a group is from a small random sample of yes/no answers.

import {button, counted, dialog, el, number, percent, value, vertices, visible} from "./dom.js";

const Z = 1.96; // of a 95 % interval

// Wilson's interval of a share: it is sensible for small samples, and for 0 or all.
const wilson = (yes, count) => {
  const share = yes / count, square = Z * Z / count;
  const middle = (share + square / 2) / (1 + square);
  const half = (Z / (1 + square)) * Math.sqrt(share * (1 - share) / count + square / (4 * count));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
};

// Some of all, at random but always the same (mulberry32).
export const draw = (all, size) => {
  const left = [...all];
  let state = 1;
  const random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return Array.from({length: Math.min(size, all.length)}, () => left.splice(Math.floor(random() * left.length), 1)[0]);
};

const PURE = 0.7, MIXED = 0.6;

export const shortPurity = ({yes, no, of}) => {
  const count = yes.length + no.length;
  if (count >= of) return `${number(yes.length)} of all ${number(count)} belong`;
  const [low, high] = wilson(yes.length, count);
  return `sample ${yes.length} of ${count}: purity ${percent(low)} to ${percent(high)}`;
};

const meaning = ({yes, no, of}) => {
  const count = yes.length + no.length, share = yes.length / count;
  const left = no.length ? ` The ${no.length === 1 ? "one" : number(no.length)} you answered with no will be left out.` : "";
  if (count >= of) return [`You have seen all ${vertices(of)}: ${number(yes.length)} belong to the group.${left}`, ""];
  const [low, high] = wilson(yes.length, count), rest = of - count;
  const estimate = `${yes.length} of ${count} belong: the purity is about ${percent(share)}, and between ${percent(low)} and ${percent(high)} with 95 % confidence.`;
  const wrong = `If you label the whole group, between ${number(Math.floor((1 - high) * rest))} and ${number(Math.ceil((1 - low) * rest))} of the ${number(rest)} vertices you have not seen get a wrong label.${left}`;
  const advice = low >= PURE ? "The group is pure enough to label as a whole."
    : high <= MIXED ? "The group is mixed. Split it, or label its vertices one by one."
      : "This is not certain. Read the members, or split the group.";
  return [`${estimate} ${wrong}`, advice];
};

// Ask about vertices one by one; resolves to {yes, no, of} or null.
export const askPurity = (title, terms, sample, of) => new Promise((resolve) => {
  const answers = [];
  let kept = null;
  const content = el("div", {class: "purity"});
  const split = () => {
    const ids = (wanted) => sample.slice(0, answers.length).filter((_, i) => answers[i] === wanted).map(({id}) => id);
    return {yes: ids(true), no: ids(false), of};
  };
  const finish = () => { kept = split(); made.close(); };
  const answer = (yes) => { if (answers.length < sample.length) { answers.push(yes); show(); } };
  const back = () => { answers.pop(); show(); };
  const show = () => {
    const at = answers.length, one = sample[at];
    const strip = el("ol", {class: "strip", "aria-hidden": "true"}, sample.map((_, i) =>
      el("li", {class: i === at ? "now" : answers[i] === undefined ? "" : answers[i] ? "yes" : "no"}, answers[i] === undefined ? "" : answers[i] ? "✓" : "✗")));
    const result = at ? meaning(split()) : null;
    const estimate = result && el("div", {class: "estimate", role: "status"}, el("p", {}, result[0]), result[1] && el("p", {class: "strong"}, result[1]));
    if (!one) {
      content.replaceChildren(strip, estimate, el("div", {class: "buttons"}, button("Back", back, {key: "u"}), button("Done", finish, {kind: "primary"})));
      content.querySelector(".primary").focus();
      return;
    }
    content.replaceChildren(
      el("p", {class: "soft"}, "Does this vertex belong to one class with these words? ", terms.slice(0, 6).map((term) => [value(term, {class: "term"}), " "])),
      strip,
      el("div", {class: "shown", "aria-live": "polite"}, el("p", {}, el("span", {class: "sr"}, `${at + 1} of ${sample.length}: `), value(one.id, {class: "strong"})),
        el("p", {}, el("bdi", {}, visible(one.text ?? (one.words ?? []).join(", "), true) || "This vertex has no text."))),
      el("div", {class: "buttons"},
        button("Back", back, {key: "u", disabled: !at}),
        button("Stop here", finish, {disabled: !at}),
        button("No", () => answer(false), {key: "n"}), button("Yes", () => answer(true), {key: "y", kind: "primary"})),
      at >= 3 ? estimate : "");
  };
  const made = dialog(`${title}: sample of ${counted(sample.length, "vertex", "vertices")}`, content, {kind: "wide", onclose: () => resolve(kept)});
  made.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {y: () => answer(true), n: () => answer(false), u: back}[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  show();
});
