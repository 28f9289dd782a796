// What all pages have: the state of the workspace in the header, news from elsewhere, the running job, and keys.

import {cancelJob, events, get, mayWrite, post} from "./api.js";
import {announce, button, byId, dialog, el, number, percent, toast, value, visible} from "./dom.js";

const EVERY = 10_000; // milliseconds between looks for a new version
const SOON = 2_000; // and until the look after a new version
const KINDS = {predict: "Deciding new vertices", update: "Updating the model", report: "Rendering the report"};
const ENDS = {done: "Done", failed: "Failed", cancelled: "Cancelled", interrupted: "Interrupted"};

let page = {refresh: async () => {}, keys: []};
let current = null;
let watched = null;
let lost = false;

export const status = () => current;

// Show an error as a message, in the words of the service.
const complain = (error) => {
  if (error.status === undefined) throw error; // a mistake of this page
  if (error.status === 401) toast(error.message, {error: true, action: "Sign in", act: () => location.assign("/signin")});
  else toast(error.message, {error: true});
};
export const attempt = (work) => async (...given) => {
  try { return await work(...given); } catch (error) { return complain(error); }
};

const look = async () => {
  let found;
  try {
    found = await get("status");
  } catch (error) {
    if (!lost) complain(error);
    lost = true;
    return;
  }
  if (lost) toast("The service can be reached again.");
  lost = false;
  const before = current;
  current = found;
  byId("workspace").replaceChildren(visible(found.name));
  byId("version").textContent = `version ${number(found.version)}`;
  const badge = byId("to-review");
  badge.hidden = !found.to_review;
  badge.replaceChildren(number(found.to_review), el("span", {class: "sr"}, " flagged vertices"));
  if (found.job && isOpen(found.job)) watch(found.job);
  if (before && before.version === found.version && before.job?.state === found.job?.state) {
    await page.check?.(found);
    return;
  }
  try {
    await page.refresh(found, before);
    setTimeout(renew, SOON); // what takes long to compute may still be of the version before
  } catch (error) {
    current = before; // try again with the next look
    throw error;
  }
  if (before && before.version !== found.version) announce(`Version ${found.version} of the workspace is shown.`);
};

// Look for a new version now, and show it; one look at a time.
let last = Promise.resolve();
export const renew = () => { last = last.then(attempt(look)); return last; };

// --- the running job ---

const isOpen = (job) => job.state === "queued" || job.state === "running";

const showJob = (job) => {
  const place = byId("job"), running = isOpen(job);
  place.hidden = !running;
  if (!running) { place.replaceChildren(); return; }
  if (place.dataset.id !== String(job.id) || !place.firstChild) {
    place.dataset.id = job.id;
    place.replaceChildren(
      el("strong", {}, KINDS[job.kind] ?? job.kind),
      el("progress", {max: 1, "aria-label": KINDS[job.kind] ?? job.kind}),
      el("span", {class: "said"}),
      ...(mayWrite ? [button("Cancel", attempt(() => cancelJob(job.id)))] : []));
  }
  const bar = place.querySelector("progress");
  if (job.progress === null || job.progress === undefined) bar.removeAttribute("value");
  else bar.value = job.progress;
  const share = job.progress === null || job.progress === undefined ? "" : `${percent(job.progress)} · `;
  place.querySelector(".said").textContent = job.state === "queued" ? "waiting" : share + visible(job.message ?? "");
};

const finish = (job) => {
  const what = job.result?.what ?? job.message ?? "";
  if (job.state === "failed") toast(`${KINDS[job.kind]} failed: ${job.error?.detail ?? "see the log of the service"}`, {error: true});
  else toast([`${ENDS[job.state] ?? job.state}: ${KINDS[job.kind]?.toLowerCase() ?? job.kind}`, what].filter(Boolean).join(". "));
};

const watch = (job) => {
  if (watched === job.id) return;
  watched = job.id;
  showJob(job);
  const source = events(job.id);
  source.onmessage = (event) => {
    const found = JSON.parse(event.data);
    showJob(found);
    if (isOpen(found)) return;
    source.close();
    finish(found);
    page.ended?.(found);
    renew();
  };
  source.onerror = () => { // it ends with the job, or with the connection: ask again with the next look
    source.close();
    watched = null;
    byId("job").hidden = true;
  };
};

// Start a job, e.g. run("updates").
export const run = attempt(async (what) => {
  const job = await post(what, {});
  if (job.id) watch(job); else toast(job.what ?? "Nothing to do.");
});

// --- keys ---

const SWITCH = "evergraph:keys";
const keysAreOn = () => localStorage.getItem(SWITCH) !== "off";

const showKeys = () => {
  const rows = [...page.keys, ["?", "show these keys"]].map(([key, meaning]) =>
    el("tr", {}, el("th", {scope: "row"}, key.split(" ").flatMap((one, i) => [i ? " or " : "", el("kbd", {}, one)])), el("td", {}, meaning)));
  const box = el("input", {type: "checkbox", id: "keys-on", checked: keysAreOn(),
    onchange: () => localStorage.setItem(SWITCH, box.checked ? "on" : "off")});
  const made = dialog("Keys of this page", [
    el("table", {class: "keys"}, el("tbody", {}, rows)),
    el("label", {for: "keys-on", class: "check"}, box, "React to single keys"),
    el("div", {class: "buttons"}, button("Close", () => made.close()))]);
};

const NAMES = {ArrowDown: "↓", ArrowUp: "↑"};

const onKey = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  const at = event.target;
  if (at.matches("input:not([type=checkbox]), textarea, select, [role=combobox]")) return;
  if ((event.key === "Enter" || event.key === " ") && at.closest("button, a, summary, input")) return;
  if (!keysAreOn()) return;
  if (event.key === "?") { event.preventDefault(); showKeys(); return; }
  const key = NAMES[event.key] ?? (event.key === " " ? "Space" : event.key);
  const found = page.keys.find(([keys]) => keys.split(" ").includes(key));
  if (!found?.[2]) return;
  event.preventDefault();
  found[2]();
};

// Begin: a page gives its keys as [key, meaning, act], and what to do when there is news.
export const begin = async (given) => {
  page = {...page, ...given};
  document.addEventListener("keydown", onKey);
  byId("show-keys").addEventListener("click", showKeys);
  await renew();
  setInterval(() => { if (!document.hidden) renew(); }, EVERY);
  addEventListener("focus", renew);
  document.documentElement.dataset.ready = "yes";
};
