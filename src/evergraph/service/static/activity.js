// Who did what, and when: versions and jobs.

import {get} from "./api.js";
import {button, byId, el, number, percent, table, value, visible, when} from "./dom.js";
import {KEYS, openAnswers} from "./pending.js";
import {attempt, begin} from "./shell.js";

const PAGE = 50;
let versions = [], next = null;

const showVersions = () => {
  byId("versions").replaceChildren(versions.length ? table("Versions", ["version", "when", "command", "what", "who"], versions.map((row) => [
    el("span", {}, number(row.version), (row.tags ?? []).map((tag) => el("span", {class: "tag"}, value(tag)))), when(row.when), visible(row.command), value(row.what), value(row.who ?? "–")]), [1, 2, 3, 4], {cards: true})
    : el("p", {class: "empty"}, "There is no version yet."));
  byId("more").replaceChildren(next === null ? "" : button("Show earlier versions", more));
};
const more = attempt(async () => {
  const found = await get("versions", {limit: PAGE, before: next});
  [versions, next] = [[...versions, ...found.versions], found.next];
  showVersions();
});

const outcome = (job) => {
  if (job.error) return value(job.error.detail ?? job.error.title);
  if (job.state === "running") return `${percent(job.progress ?? null)} ${visible(job.message ?? "")}`;
  return value(job.result?.what ?? job.message ?? "");
};
const showJobs = async () => {
  const {jobs} = await get("jobs");
  byId("jobs").replaceChildren(jobs.length ? table("Jobs", ["job", "state", "started", "ended", "result", "who"], jobs.map((job) => [
    visible(job.kind), el("span", {class: `tag ${job.state}`}, job.state), when(job.started ?? job.made), when(job.ended), outcome(job), value(job.who ?? "–")]), [0, 1, 2, 3, 4, 5], {cards: true})
    : el("p", {class: "empty"}, "No job has run yet. Predictions, updates and reports run as jobs."));
};

let opened = false;
begin({
  refresh: async (found) => {
    if (!opened) openAnswers(found.name);
    opened = true;
    const first = await get("versions", {limit: PAGE});
    if (versions.length <= PAGE) [versions, next] = [first.versions, first.next];
    else { // keep the earlier ones that are shown
      const last = versions[0].version;
      versions = [...first.versions.filter(({version}) => version > last), ...versions];
    }
    showVersions();
    await showJobs();
  },
  ended: attempt(showJobs),
  keys: KEYS,
});
