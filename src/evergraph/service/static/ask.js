// Ask for a class: a dialog with a list that is filtered as you type.

import {get} from "./api.js";
import {button, dialog, el, number, value, visible} from "./dom.js";
import {entries} from "./pending.js";

const MOST = 60; // classes in the list at a time

const plain = (name) => name.normalize("NFKC").toLowerCase().replace(/[\s_-]+/g, " ").trim();

const known = async () => {
  const {classes} = await get("classes");
  const found = classes.filter((one) => !one.retired).sort((a, b) => b.support - a.support);
  const names = new Set(found.map((one) => one.name));
  const fresh = entries().filter((one) => one.kind === "label" && !names.has(one.label)).map((one) => one.label);
  return [...[...new Set(fresh)].map((name) => ({name, pending: true})), ...found];
};

// Return the name of a class, or null. `create` allows new names: "first" offers them first, "last" last.
export const askClass = async ({title, first = [], create = null}) => {
  const all = await known();
  const rank = new Map(first.map((name, i) => [name, i]));
  all.sort((a, b) => (rank.get(a.name) ?? 1e9) - (rank.get(b.name) ?? 1e9));
  return new Promise((resolve) => {
    let chosen = null, options = [], active = 0;
    const input = el("input", {id: "class-name", type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "class-list",
      "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", maxlength: "500"});
    const list = el("ul", {id: "class-list", role: "listbox", "aria-label": "Classes"});
    const note = el("p", {class: "soft small", "aria-live": "polite"});
    const choose = (name) => { chosen = name; made.close(); };

    const activate = (i) => {
      active = Math.max(0, Math.min(options.length - 1, i));
      [...list.children].forEach((item, at) => item.setAttribute("aria-selected", at === active));
      if (options.length) input.setAttribute("aria-activedescendant", `option-${active}`);
      else input.removeAttribute("aria-activedescendant");
      list.children[active]?.scrollIntoView({block: "nearest"});
    };
    const filter = () => {
      const typed = input.value.trim(), sought = plain(typed);
      const found = all.filter(({name}) => plain(name).includes(sought));
      const exact = all.some(({name}) => name === typed);
      const alike = all.find(({name}) => name !== typed && plain(name) === sought);
      const fresh = create && typed && !exact ? [{name: typed, fresh: true}] : [];
      const shown = found.slice(0, MOST);
      options = create === "first" ? [...fresh, ...shown] : [...shown, ...fresh];
      list.replaceChildren(...options.map((one, i) => el("li", {id: `option-${i}`, role: "option", onclick: () => choose(one.name)},
        one.fresh ? "New class " : "", value(one.name), el("span", {class: "soft"},
          one.fresh ? "" : one.pending ? "new, pending" : number(one.support)))));
      list.hidden = !options.length;
      note.replaceChildren(alike ? "A class with almost this name exists: " : "", alike ? value(alike.name) : "",
        found.length > MOST ? ` ${number(found.length - MOST)} more classes: type to filter.` : "",
        options.length || create ? "" : "No class matches.");
      activate(0);
    };
    input.addEventListener("input", filter);
    input.addEventListener("keydown", (event) => {
      const step = {ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8}[event.key];
      if (step) { event.preventDefault(); activate(active + step); }
      if (event.key === "Enter") { event.preventDefault(); if (options[active]) choose(options[active].name); }
    });
    const accept = () => { if (options[active]) choose(options[active].name); };
    const made = dialog(title, [
        el("label", {for: "class-name"}, create === "first" ? "Name of the class" : "Class"), input, list, note,
      el("div", {class: "buttons"}, button("Cancel", () => made.close()), button("Choose", accept, {kind: "primary"}))],
    {kind: "ask", onclose: () => resolve(chosen === null ? null : chosen)});
    filter();
    input.focus();
  });
};

export const confirm = (title, text, yes) => new Promise((resolve) => {
  let answer = false;
  const made = dialog(title, [el("p", {}, visible(text)), el("div", {class: "buttons"},
    button("Cancel", () => made.close()), button(yes, () => { answer = true; made.close(); }, {kind: "primary"}))],
  {onclose: () => resolve(answer)});
});
