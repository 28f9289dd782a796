// One vertex: text, neighbours, probabilities, why it was flagged, past decisions; a label for it.

import {get, mayWrite, vertex} from "./api.js";
import {askClass} from "./ask.js";
import {button, byId, counted, el, number, percent, table, value, visible} from "./dom.js";
import {exploreGraph} from "./drawing.js";
import {add, answerOf, KEYS, openAnswers, remove} from "./pending.js";
import {attempt, begin} from "./shell.js";

const id = new URLSearchParams(location.search).get("id") ?? "";
let found = null;

const section = (title, ...content) => el("section", {"aria-labelledby": `t-${title.replaceAll(" ", "-")}`}, el("h2", {id: `t-${title.replaceAll(" ", "-")}`}, title), content);

const bars = (rows) => el("ul", {class: "bars"}, rows.map(([name, share]) => {
  const fill = el("span", {class: "fill"});
  fill.style.width = `${Math.max(0.5, 100 * share)}%`;
  return el("li", {}, el("span", {class: "name"}, value(name)), el("span", {class: "bar", "aria-hidden": "true"}, fill), el("span", {class: "number"}, percent(share, 1)));
}));

const verdict = ({decision, label}) => {
  if (label !== null) return el("p", {}, "Label: ", value(label, {class: "strong"}));
  if (!decision) return el("p", {}, "It has no label and no decision yet.");
  return el("p", {}, decision.class === "unseen"
    ? [el("span", {class: "tag flag"}, "flagged"), " Probably a class that the model does not know."] : ["Predicted as ", value(decision.class, {class: "strong"})]);
};

const assign = async () => {
  const nearest = found.decision?.nearest?.map((one) => one.class) ?? [];
  const label = await askClass({title: "Label this vertex", first: nearest, create: "last"});
  if (!label) return;
  add({kind: "label", unit: `v${found.id}`, title: String(found.id), label, groups: [], keys: [], ids: [found.id], without: [], count: 1, was: found.label === null ? undefined : {[found.id]: found.label}});
};

const showAnswer = () => {
  const place = byId("answer");
  if (!place || !mayWrite) return;
  const given = answerOf(found.id);
  place.replaceChildren(given ? el("p", {}, "Your pending answer: ", value(given.label, {class: "strong"})) : "",
    el("div", {class: "buttons"}, button(found.label === null ? "Label it" : "Correct the label", attempt(assign), {key: "b", kind: given ? "" : "primary"}),
      given && given.ids.length === 1 ? button("Remove the answer", () => remove(given.uid)) : ""));
};

const FIRST = 6; // signals that are shown

const signals = (all) => {
  const rows = (some) => some.map((one) => [
    el("span", {}, visible(one.meaning), " ", el("span", {class: "soft small"}, visible(one.name.replaceAll("_", " ")))),
    el("span", {class: `tag ${one.direction === "unseen" ? "flag" : ""}`}, one.direction), Math.abs(one.contribution).toFixed(2)]);
  const shown = (caption, some) => table(caption, ["signal", "for", "by"], rows(some), [0, 1]);
  return [shown("Signals of the detector", all.slice(0, FIRST)),
    all.length > FIRST ? el("details", {}, el("summary", {}, `${counted(all.length - FIRST, "weaker signal")}`), shown("Weaker signals", all.slice(FIRST))) : "",
    el("p", {class: "soft small"}, "A number says by how much the signal changes the logarithm of the odds that the class is unseen.")];
};

const explain = attempt(async () => {
  const place = byId("why");
  place.replaceChildren(el("p", {class: "soft", role: "status"}, "Loading the model to explain the decision. This takes some seconds…"));
  let why;
  try { why = await get(vertex(found.id, "/explanation")); } catch (error) {
    place.replaceChildren(el("p", {class: "soft"}, visible(error.message)), button("Try again", explain));
    return;
  }
  place.replaceChildren(...[
    why.because.length ? el("p", {class: "soft"}, "Inputs that raise the most likely class, ", value(found.decision.best), ":") : el("p", {class: "soft"}, "No single input explains the most likely class."),
    el("ul", {class: "because"}, why.because.map(({text}) => el("li", {}, value(text)))),
    el("p", {class: "soft"}, why.signals?.length ? "Signals of the detector " : "The detector has no signals to explain: ", value(why.detector), why.signals?.length ? ":" : "."),
    ...(why.signals?.length ? signals(why.signals) : []),
  ].filter(Boolean));
});

const show = (graph) => {
  const {decision} = found;
  const text = found.text ? el("p", {class: "fulltext"}, el("bdi", {}, visible(found.text, true))) : el("p", {class: "soft"}, "This vertex has no text.");
  const words = found.words?.length ? el("ul", {class: "terms", "aria-label": "Characteristic words"}, found.words.map((word) => el("li", {}, value(word)))) : "";
  const around = found.neighbours?.length ? el("p", {class: "soft"}, "Classes of its neighbours within the history: ", found.neighbours.slice(0, 6).flatMap((one, i) => [i ? ", " : "", value(one.class), ` (${number(one.count)})`])) : "";
  const nearest = decision?.nearest?.length ? decision.nearest.map((one) => [one.class, one.probability]) : decision?.best ? [[decision.best, decision.probability]] : [];
  document.title = `${visible(found.id)} – Evergraph`;
  byId("vertex").removeAttribute("aria-busy");
  byId("vertex").replaceChildren(
    el("p", {class: "crumbs"}, found.group === null ? el("a", {href: "/label"}, "What to label next") : el("a", {href: "/review"}, `Group ${found.group}`)),
    el("h1", {}, value(found.id)),
    el("div", {class: "columns"}, el("div", {},
      el("div", {class: "panel"}, el("p", {class: "soft"}, `Arrived in ${visible(found.time)}`), verdict(found), el("div", {id: "answer"})),
      section("Text", text, words),
      section("Class probabilities", nearest.length ? [el("p", {class: "soft"}, "If the class is known at all: a probability can be high although the vertex is flagged."), bars(nearest)] : el("p", {class: "soft"}, "There is no decision on this vertex yet.")),
      section("Past decisions", found.decisions.length ? table("Past decisions", ["version", "model", "decision", "score", "most likely", "probability"], found.decisions.map((row) =>
        [number(row.version), number(row.model), value(row.class), row.score === null ? "–" : row.score.toFixed(3), value(row.best), percent(row.probability, 1)]), [2, 4], {cards: true}) : el("p", {class: "soft"}, "None."))),
    el("div", {},
      section("Neighbours", graph.nodes.length > 1 ? exploreGraph(graph) : el("p", {class: "soft"}, "It has no neighbours."), graph.left_out ? el("p", {class: "soft small"}, `${counted(graph.left_out, "more neighbour")} not drawn.`) : "", around),
      section("Why", el("div", {id: "why"}, decision ? button("Explain the decision", explain, {key: "e"}) : el("p", {class: "soft"}, "There is no decision to explain."))))));
  showAnswer();
};

let opened = false, seen = "";
begin({
  refresh: async (now) => {
    if (!opened) openAnswers(now.name, () => found && showAnswer());
    opened = true;
    try {
      const [next, graph] = await Promise.all([get(vertex(id)), get(`graph/neighbourhood/${encodeURIComponent(id)}`, {hops: 1, limit: 60})]);
      if (JSON.stringify([next, graph]) === seen) return;
      seen = JSON.stringify([next, graph]);
      found = next;
      show(graph);
    } catch (error) {
      if (found || error.status === undefined) throw error;
      byId("vertex").replaceChildren(el("h1", {}, value(id || "Vertex")), el("p", {class: "empty"}, visible(error.message)));
    }
  },
  keys: [...(mayWrite ? [["b", "label this vertex", () => found && attempt(assign)()]] : []), ["e", "explain the decision", () => found?.decision && explain()],
    ["+", "zoom in, with the focus in the drawing"], ["-", "zoom out"], ["0", "reset the zoom"], ...KEYS],
});
