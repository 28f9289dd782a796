// State of the workspace, slices over time, what to do next.

import {get, mayWrite} from "./api.js";
import {button, byId, counted, el, number, percent, value, vertices, visible} from "./dom.js";
import {lineChart} from "./drawing.js";
import {KEYS, openAnswers} from "./pending.js";
import {attempt, begin, run} from "./shell.js";

const steps = (found) => {
  const all = {
    predict: {open: found.undecided > 0, text: `Decide ${vertices(found.undecided)}`, act: () => run("predictions"), job: true},
    review: {open: found.to_review > 0, text: `Review ${vertices(found.to_review)}`, act: () => location.assign("/review")},
    update: {open: found.fresh_labels > 0 || found.next_action === "update", text: found.fresh_labels ? `Update the model with ${counted(found.fresh_labels, "new label")}` : "Update the model", act: () => run("updates"), job: true},
    label: {open: true, text: "Label vertices", act: () => location.assign("/label")},
  };
  const order = [found.next_action, ...Object.keys(all).filter((name) => name !== found.next_action)];
  return order.filter((name) => all[name]?.open).map((name, i) =>
    button(all[name].text, all[name].act, {kind: i === 0 && name === found.next_action ? "primary" : "", "data-job": all[name].job}));
};

const HEADS = {predict: "New vertices have no decision yet", update: "New labels wait for an update", review: "Flagged vertices wait for review", label: "Labels are missing", add: "Everything is up to date"};

let shown = "";
const showNext = (found) => {
  const place = byId("next"), busy = Boolean(found.job);
  const {next_action, next_why, undecided, to_review, fresh_labels, warnings} = found;
  const seen = JSON.stringify([next_action, next_why, undecided, to_review, fresh_labels, warnings]);
  if (seen !== shown) renderNext(found, place); // a button that is being pressed stays where it is
  shown = seen;
  for (const one of place.querySelectorAll("[data-job]")) one.disabled = busy;
};
const renderNext = (found, place) => {
  place.removeAttribute("aria-busy");
  place.replaceChildren(el("div", {}, el("h2", {}, HEADS[found.next_action] ?? "What to do next"),
    el("p", {class: "soft"}, value(found.next_why.charAt(0).toUpperCase() + found.next_why.slice(1)), /[.!?]$/.test(found.next_why) ? "" : ".",
      found.next_action === "add" ? " New slices arrive over the API (POST /api/v1/slices) or by evergraph ws add." : "")),
  mayWrite ? el("div", {class: "buttons"}, steps(found)) : "");
  byId("warnings").replaceChildren(...found.warnings.map((text) => el("p", {class: "notice"}, value(text.charAt(0).toUpperCase() + text.slice(1)))));
};

const showState = (found) => {
  const lag = found.label_lag ? `, ${counted(found.label_lag, "period")} before the newest` : "";
  const rows = [
    ["Vertices", number(found.vertices), `${counted(found.edges, "edge")}, ${visible(found.first_time)} to ${visible(found.last_time)}`],
    ["Flagged", number(found.to_review), "without a label: to review"],
    ["Undecided", number(found.undecided), "without a label or a decision"],
    ["Labelled", percent(found.vertices ? found.labelled / found.vertices : null), `${number(found.labelled)} labels${found.last_labelled === null ? "" : `, the last in ${visible(found.last_labelled)}${lag}`}`],
    ["Classes", number(found.classes), found.retired.length ? `known to the model, ${number(found.retired.length)} retired` : "known to the model"],
    ["Model", `no. ${number(found.model)}`, `${counted(found.fresh_labels, "new label")} since; history: ${found.history === null ? "all" : counted(found.history, "period")}`],
  ];
  byId("state").replaceChildren(...rows.map(([name, figure, more]) =>
    el("div", {}, el("dt", {}, name), el("dd", {class: "value"}, figure), el("dd", {class: "soft small"}, more))));
};

let scored = 0; // version of the charts
const showCharts = ({scores, version}, {drift}) => {
  scored = version;
  const place = byId("charts");
  if (!scores.length && !drift.length) {
    place.replaceChildren(el("p", {class: "empty"}, "No slice has been decided yet. Scores appear here when labels of decided vertices arrive."));
    return;
  }
  const of = (field) => scores.map((row) => [row.time, row[field]]);
  const charts = scores.length ? [
    lineChart("Accuracy", "Share of the labelled vertices with the right class; dashed: of known classes only", [{name: "accuracy", kind: "blue", points: of("accuracy")}, {name: "known classes only", kind: "blue dashed", points: of("id_accuracy")}]),
    lineChart("Flagged", "Share of all decided vertices that is flagged, and of the labelled ones that is truly unseen", [{name: "flagged", kind: "orange", points: of("flagged")}, {name: "truly unseen", kind: "green dashed", points: of("unseen")}]),
  ] : [];
  if (drift.length) charts.push(lineChart("Drift", "Change of the class distribution since the period before", [{name: "drift", kind: "green", points: drift.map((row) => [row.time, row.drift])}]));
  place.replaceChildren(...charts);
};

const showReport = async () => {
  const {jobs} = await get("jobs");
  const last = jobs.find((job) => job.kind === "report" && job.state === "done");
  byId("report").replaceChildren(el("p", {class: "soft"}, "One HTML file with all scores, groups and settings, to keep or to send."),
    el("div", {class: "buttons"}, last ? el("a", {class: "button", href: "/api/v1/report", target: "_blank", rel: "noopener"}, "Open the last report") : "",
      button(last ? "Render it again" : "Render a report", () => run("reports"))));
};

const charts = attempt(async () => showCharts(await get("scores"), await get("drift")));

let opened = false;
begin({
  check: async (found) => { if (scored !== found.version) await charts(); },
  refresh: async (found, before) => {
    if (!opened) openAnswers(found.name);
    opened = true;
    showNext(found);
    showState(found);
    if (!before || before.version !== found.version) await charts();
    await attempt(showReport)();
  },
  ended: attempt(showReport),
  keys: KEYS,
});
