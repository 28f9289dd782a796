// Pending answers: a log in localStorage, from which one save makes one version of the workspace.
//
// An entry is {uid, kind, ...}. "label" and "dismiss" are sent; "split", "merge", "later", "sample" and "leave" only
// change how groups are shown. Whole groups are named by number, for the grouping of the entry; parts by their ids.

import {get, mayWrite, post, uniqueKey, user} from "./api.js";
import {confirm} from "./ask.js";
import {announce, button, byId, counted, dialog, el, number, table, toast, value, vertices} from "./dom.js";
import {attempt, renew} from "./shell.js";

let place = null; // in localStorage
let changed = () => {};

const read = () => {
  try { return JSON.parse(localStorage.getItem(place)) ?? {log: [], key: null}; } catch { return {log: [], key: null}; }
};
const write = (log, key = null) => {
  try { localStorage.setItem(place, JSON.stringify({log, key})); } catch {
    toast("The browser has no room for more pending answers. Save them first.", {error: true});
  }
  show();
  changed();
};

export const entries = () => (place ? read().log : []);
const sent = (entry) => entry.kind === "label" || (entry.kind === "dismiss" && entry.groups.length > 0);
export const toSend = () => entries().filter(sent);
export const answerOf = (id) => entries().findLast((entry) => entry.kind === "label" && entry.ids.includes(id));

// A second label for a vertex replaces the first.
const again = (entry) => ({kind, unit}) => entry.kind === "label" && kind === "label" && unit === entry.unit;
export const add = (entry) => write([...entries().filter((one) => !again(entry)(one)), {uid: uniqueKey(), ...entry}]);
export const remove = (uid) => write(entries().filter((entry) => entry.uid !== uid));

const WHAT = {label: "the answer", dismiss: "“not a group”", later: "“later”", split: "the split", merge: "the merge", sample: "the sample", leave: "the choice of members"};
const undo = () => {
  const log = entries(), last = log.at(-1);
  if (!last) { announce("There is no pending answer to take back."); return; }
  write(log.slice(0, -1));
  announce(`Took back ${WHAT[last.kind]} on ${last.title}.`);
};

// --- what is sent ---

// An answer on a vertex comes before that on its group, and a later one before an earlier one.
const bodyOf = (log, conflicts = "refuse", without = []) => {
  const given = log.filter(({kind}) => kind === "label"), gone = new Set(without), labels = new Map();
  const single = new Map(given.flatMap(({ids, label}) => ids.map((id) => [id, label])).filter(([id]) => !gone.has(id)));
  for (const entry of given) {
    const one = labels.get(entry.label) ?? {label: entry.label, groups: [], ids: [], without: []};
    one.groups.push(...entry.groups);
    if (entry.groups.length) one.without.push(...entry.without.filter((id) => single.get(id) !== entry.label));
    labels.set(entry.label, one);
  }
  for (const [id, label] of single) {
    labels.get(label).ids.push(id);
    for (const one of labels.values()) if (one.label !== label && one.groups.length) one.without.push(id);
  }
  const dismiss = log.filter(({kind}) => kind === "dismiss").flatMap(({groups}) => groups);
  const grouping = log.find(({groups}) => groups.length)?.grouping ?? null;
  return {grouping, answers: [...labels.values()], dismiss, conflicts};
};

// Labels that the person has seen and means to correct.
const corrections = (log) => new Map(log.flatMap(({was}) => Object.entries(was ?? {})));

const stale = async (log) => {
  if (!log.some(({groups}) => groups.length)) return [];
  const {grouping} = await get("groups", {limit: 1});
  return log.filter((entry) => entry.groups.length && entry.grouping !== grouping);
};

// Find the groups of old answers again by their keys; return how many answers could not be applied.
const reapply = async () => {
  const numbers = new Map();
  let cursor = null, grouping = null;
  do {
    const page = await get("groups", {limit: 100, cursor});
    if (grouping !== null && grouping !== page.grouping) { numbers.clear(); cursor = null; grouping = null; continue; }
    grouping = page.grouping;
    for (const group of page.groups) numbers.set(group.key, group.number);
    cursor = page.next;
  } while (cursor !== null);
  let missing = 0;
  const kept = entries().filter((entry) => sent(entry) || entry.grouping === grouping); // cards of earlier groups are gone
  write(kept.map((entry) => {
    if (!sent(entry) || !entry.groups.length || entry.grouping === grouping) return entry;
    const groups = entry.keys.map((key) => numbers.get(key));
    if (groups.includes(undefined)) { missing += 1; return entry; }
    const one = groups.length === 1 && !entry.ids.length ? {unit: `g${groups[0]}`, title: `Group ${groups[0]}`} : {};
    return {...entry, groups, grouping, ...one};
  }));
  return missing;
};
const drop = (some) => { const gone = new Set(some.map(({uid}) => uid)); write(entries().filter(({uid}) => !gone.has(uid))); };

// Answers that refer to an earlier grouping, explained, with what can be done.
export const staleNotice = (old, then) => el("div", {class: "notice", role: "alert"},
  el("p", {}, el("strong", {}, `${counted(old.length, "pending answer")} ${old.length === 1 ? "refers" : "refer"} to earlier groups.`),
    " The groups were computed again, because vertices were decided or classes changed. Answers on single vertices and on parts of a split group still hold."),
  el("ul", {}, old.map((entry) => el("li", {}, described(entry)))),
  el("div", {class: "buttons"},
    button("Find these groups again", attempt(async () => {
      const missing = await reapply();
      toast(missing ? `${counted(missing, "answer")} could not be applied: the group does not exist any more. Drop it, or answer the new groups.` : "The answers apply to the new groups.");
      then();
    }), {kind: "primary"}),
    button("Drop these answers", () => { drop(old); then(); })));

const described = (entry) => [value(entry.title, {class: "strong"}),
  entry.kind === "dismiss" ? " is not a group" : [" → ", value(entry.label)], el("span", {class: "soft"}, ` · ${vertices(entry.count)}`)];

// --- preview and save ---

let open = null;

const preview = attempt(async () => {
  if (!toSend().length) { announce("There is no pending answer."); return; }
  open?.close();
  const content = el("div", {}, el("p", {class: "soft"}, "Checking the answers…"));
  const made = dialog("Preview", content, {kind: "wide", onclose: () => { open = null; }});
  open = made;
  try { await fill(content); } catch (error) {
    made.close();
    throw error;
  }
});

const fill = async (content) => {
  const log = toSend();
  const close = () => open?.close();
  if (!log.length) { close(); return; }
  const again = () => attempt(fill)(content);
  const old = await stale(log);
  if (old.length) {
    content.replaceChildren(staleNotice(old, again), el("div", {class: "buttons"}, button("Close", close)));
    return;
  }
  const {version} = await get("status");
  const seen = {...await post("answers/preview", bodyOf(log)), version};
  const meant = corrections(log);
  const clashes = seen.conflicts.filter(({id, label}) => meant.get(String(id)) !== label);
  let choice = "keep";
  const radio = (key, text) => el("label", {class: "check"}, el("input", {type: "radio", name: "conflicts", value: key, checked: key === choice,
    onchange: () => { choice = key; }}), text);
  const fresh = new Set(seen.new_classes);
  const saving = button("Save as one version", () => save(content, log, seen, clashes, choice, saving), {kind: "primary"});
  content.replaceChildren(...[
    el("ul", {class: "answers"}, log.map((entry) => el("li", {}, el("span", {}, described(entry)),
      button("Remove", () => { remove(entry.uid); again(); }, {kind: "quiet", label: `Remove the answer on ${entry.title}`})))),
    seen.per_class.length ? table("Labels by class", ["class", "vertices"], seen.per_class.map((row) =>
      [el("span", {}, value(row.class), " ", fresh.has(row.class) ? el("span", {class: "tag"}, "new class") : ""), number(row.count)]), [0])
      : el("p", {}, "No label changes: the groups are only marked as looked at."),
    el("p", {}, `Saving labels ${vertices(seen.labels)}. `, el("span", {class: "soft"}, "You can take it back afterwards. The model learns the labels with the next update.")),
    ...seen.warnings.map((text) => el("p", {class: "notice"}, value(text))),
    clashes.length ? el("fieldset", {class: "notice"}, el("legend", {}, `${vertices(clashes.length)} got another label meanwhile`),
      table("Conflicts", ["vertex", "their label", "your answer"], clashes.map((one) =>
        [value(one.id), value(one.label), value(one.answer)]), [0, 1, 2]),
      radio("keep", "Keep their labels, save the rest of my answers"), radio("overwrite", "Overwrite their labels with mine")) : null,
    el("div", {class: "buttons"}, button("Cancel", close), saving)].filter(Boolean));
  saving.focus();
};

const save = attempt(async (content, log, seen, clashes, choice, pressed) => {
  pressed.disabled = true;
  const corrects = seen.conflicts.length > clashes.length;
  let mode = clashes.length ? choice : "refuse", without = [];
  if (corrects && mode === "keep") without = clashes.map(({id}) => id);
  if (corrects) mode = "overwrite";
  const body = bodyOf(log, mode, without);
  const uids = new Set(log.map(({uid}) => uid));
  // The key stays the same until the answers change, so that a repeated request cannot save twice.
  const {log: all, key: used} = read();
  const text = JSON.stringify(body);
  const key = used?.text === text ? used.key : uniqueKey();
  localStorage.setItem(place, JSON.stringify({log: all, key: {key, text}}));
  let done;
  try {
    // To overwrite is safe only what the person has seen.
    done = await post("answers", body, {"Idempotency-Key": key, ...(mode === "overwrite" ? {"If-Match": `"${seen.version}"`} : {})});
  } catch (error) {
    pressed.disabled = false;
    if (error.status === 409) { // somebody was faster: show what is different now
      toast(error.message, {error: true});
      await fill(content);
      return;
    }
    throw error;
  }
  open?.close();
  const before = entries(), units = new Set(log.map(({unit}) => unit));
  write(before.filter((entry) => !uids.has(entry.uid) && !units.has(entry.unit)).map((entry) => answered(entry, units)));
  if (done.warnings?.length) done.warnings.forEach((one) => toast(one, {error: true}));
  toast(`Saved as version ${number(done.version)}.`, {action: "Undo", act: () => takeBack(done.version, before)});
  await renew();
});

// The parts of a split group that were answered are done.
const answered = (entry, units) => (entry.kind !== "split" ? entry
  : {...entry, parts: entry.parts.map((part, i) => (units.has(`${entry.unit}/${i + 1}`) ? {...part, done: true} : part))});

const takeBack = attempt(async (version, before) => {
  const done = await post("undo", {version}, {"Idempotency-Key": uniqueKey()});
  const old = new Set(before.map(({uid}) => uid));
  write([...before, ...entries().filter(({uid}) => !old.has(uid))]);
  toast(`Version ${number(version)} was taken back (version ${number(done.version)}). Your answers are pending again.`);
  await renew();
});

// --- the tray ---

const show = () => {
  const tray = byId("tray"), log = toSend();
  tray.hidden = !log.length;
  document.body.classList.toggle("with-tray", log.length > 0);
  if (!log.length) { tray.replaceChildren(); return; }
  const labelled = log.filter(({kind}) => kind === "label");
  const size = labelled.reduce((sum, {count}) => sum + count, 0);
  tray.replaceChildren(el("p", {}, el("strong", {}, counted(log.length, "pending answer")),
    el("span", {class: "soft"}, labelled.length ? ` · ${vertices(size)}, ${counted(new Set(labelled.map(({label}) => label)).size, "class", "classes")}` : "")),
  el("div", {class: "buttons"},
    button("Discard", async () => {
      if (await confirm("Discard all pending answers?", "They are not in the workspace yet, and cannot be brought back.", "Discard")) write([]);
    }, {kind: "quiet"}),
    button("Undo last", undo, {key: "u"}),
    button("Preview and save", preview, {key: "v", kind: "primary"})));
};

// Begin with the answers of this workspace; `onchange` is called after each change, in other tabs too.
export const openAnswers = (workspace, onchange = () => {}) => {
  if (!mayWrite) return;
  place = `evergraph:${workspace}:${user}:answers`;
  changed = onchange;
  addEventListener("storage", (event) => { if (event.key === place) { show(); changed(); } });
  show();
};

export const KEYS = mayWrite ? [["u", "take back the last pending answer", undo], ["v", "preview and save the pending answers", () => preview()]] : [];
