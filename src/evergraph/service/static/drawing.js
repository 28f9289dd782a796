// Line charts and drawings of graphs, as SVG. Colours are classes of the style sheet, so that they follow the theme.

import {button, counted, el, number, percent, svg, table, value, vertexPath, visible} from "./dom.js";

// --- line charts ---

const WIDE = 360, HIGH = 170, LEFT = 42, RIGHT = 14, TOP = 12, BOTTOM = 26;
const TOPS = [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1];

// A chart of shares over time, with a table of its numbers: series are {name, kind, points: [[time, share or null]]}.
export const lineChart = (title, meaning, series) => {
  const times = series[0].points.map(([time]) => time);
  const known = series.flatMap(({points}) => points.map(([, share]) => share)).filter((share) => share !== null);
  const head = el("figcaption", {}, el("h3", {}, title), el("p", {class: "soft"}, meaning));
  if (!known.length) return el("figure", {class: "chart"}, head, el("p", {class: "empty"}, "No value yet."));
  const highest = TOPS.find((one) => one >= Math.max(...known)) ?? 1;
  const x = (i) => LEFT + (times.length === 1 ? 0.5 : i / (times.length - 1)) * (WIDE - LEFT - RIGHT);
  const y = (share) => HIGH - BOTTOM - (share / highest) * (HIGH - TOP - BOTTOM);
  const last = ({points}) => points.map(([, share]) => share).filter((share) => share !== null).at(-1);
  const label = `${title} from ${times[0]} to ${times.at(-1)}. ` + series.map((one) =>
    `${one.name}: ${known.length ? `last ${percent(last(one) ?? null, 1)}` : "unknown"}`).join("; ");
  const grid = [0, highest / 2, highest].flatMap((share) => [
    svg("line", {class: "grid", x1: LEFT, x2: WIDE - RIGHT, y1: y(share), y2: y(share)}),
    svg("text", {class: "tick", x: LEFT - 6, y: y(share) + 4, "text-anchor": "end"}, percent(share, highest < 0.2 && share ? 1 : 0))]);
  const shown = [...new Set([0, times.length > 4 ? Math.floor((times.length - 1) / 2) : 0, times.length - 1])];
  const anchor = (i) => (times.length === 1 ? "middle" : i === 0 ? "start" : i === times.length - 1 ? "end" : "middle");
  const ticks = shown.map((i) => svg("text", {class: "tick", x: x(i), y: HIGH - 7, "text-anchor": anchor(i)}, visible(times[i])));
  const lines = series.map(({name, kind, points}) => {
    let pen = "M";
    const path = points.map(([, share], i) => {
      if (share === null) { pen = "M"; return ""; }
      const step = `${pen}${x(i).toFixed(1)} ${y(share).toFixed(1)}`;
      pen = "L";
      return step;
    }).join("");
    const dots = points.map(([time, share], i) => share !== null && svg("circle", {cx: x(i), cy: y(share), r: 3},
      svg("title", {}, `${visible(time)}: ${name} ${percent(share, 1)}`)));
    return svg("g", {class: `line ${kind}`}, svg("path", {d: path}), dots);
  });
  const picture = svg("svg", {viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": label}, grid, ticks, lines);
  const keys = series.length > 1 && el("ul", {class: "legend"}, series.map(({name, kind}) => el("li", {}, swatch(kind), name)));
  const rows = times.map((time, i) => [value(time), ...series.map(({points}) => percent(points[i][1], 1))]);
  return el("figure", {class: "chart"}, head, picture, keys,
    el("details", {}, el("summary", {}, "Numbers"), table(title, ["period", ...series.map(({name}) => name)], rows)));
};

const swatch = (kind) => svg("svg", {width: 20, height: 10, "aria-hidden": "true"}, svg("g", {class: `line ${kind}`}, svg("path", {d: "M0 5H20"})));

// --- graphs ---

const ROUNDS = 160;

// Places of vertices by forces (Fruchterman and Reingold), from a spiral: the same graph has the same drawing.
const layout = (count, edges, width, height, margin = 12) => {
  const places = Array.from({length: count}, (_, i) => {
    const angle = i * 2.399963, far = Math.sqrt((i + 0.5) / count) / 2;
    return [far * Math.cos(angle), far * Math.sin(angle)];
  });
  const ideal = 0.9 / Math.sqrt(count);
  for (let round = 0; round < ROUNDS; round++) {
    const most = 0.12 * (1 - round / ROUNDS) ** 1.5 + 0.001;
    const moves = places.map(([x, y]) => [-0.35 * x, -0.35 * y]); // towards the centre
    const push = (i, j, of) => {
      const dx = places[i][0] - places[j][0], dy = places[i][1] - places[j][1];
      const far = Math.hypot(dx, dy) || 1e-6, force = of(far) / far;
      moves[i][0] += dx * force; moves[i][1] += dy * force;
      moves[j][0] -= dx * force; moves[j][1] -= dy * force;
    };
    for (let i = 0; i < count; i++) for (let j = 0; j < i; j++) push(i, j, (far) => ideal * ideal / far);
    for (const [i, j] of edges) if (i !== j) push(i, j, (far) => -far * far / ideal);
    places.forEach((place, i) => {
      const far = Math.hypot(...moves[i]) || 1e-6, step = Math.min(far, most) / far;
      place[0] += moves[i][0] * step; place[1] += moves[i][1] * step;
    });
  }
  const fit = (axis, size) => {
    const all = places.map((place) => place[axis]), low = Math.min(...all), span = Math.max(...all) - low || 1;
    return (place) => (count === 1 ? size / 2 : margin + (place[axis] - low) / span * (size - 2 * margin));
  };
  const x = fit(0, width), y = fit(1, height);
  return places.map((place) => [x(place), y(place)]);
};

const SHOWN = 3; // classes that have a colour

// Colours of a drawing: flagged vertices, the most frequent classes, the rest.
const colours = (nodes) => {
  const counts = new Map();
  for (const {label, flagged} of nodes) if (label !== null && !flagged) counts.set(label, (counts.get(label) ?? 0) + 1);
  const order = [...counts].sort((a, b) => b[1] - a[1]).slice(0, SHOWN).map(([name]) => name);
  const kind = (node) => {
    if (node.flagged && node.label === null) return "flagged";
    if (node.label === null) return "none";
    return order.includes(node.label) ? `class-${order.indexOf(node.label)}` : "other";
  };
  const used = new Set(nodes.map(kind));
  const rest = counts.size - order.length;
  const names = [["flagged", "flagged"], ...order.map((name, i) => [`class-${i}`, value(name)]),
    ["other", counted(rest, "other class", "other classes")], ["none", "no label"]];
  const legend = el("ul", {class: "legend"}, names.filter(([one]) => used.has(one)).map(([one, name]) =>
    el("li", {}, svg("svg", {width: 12, height: 12, "aria-hidden": "true"}, mark(one, 6, 6, 4.5)), name)));
  return {kind, legend};
};

// Kinds differ by shape, too: flagged ones are diamonds, vertices without a label are rings.
const mark = (kind, x, y, size) => (kind === "flagged"
  ? svg("path", {class: `node ${kind}`, d: `M${x} ${y - size * 1.25}l${size * 1.25} ${size * 1.25}l${-size * 1.25} ${size * 1.25}l${-size * 1.25} ${-size * 1.25}z`})
  : svg("circle", {class: `node ${kind}`, cx: x, cy: y, r: size}));

const lines = (edges, places) => svg("path", {class: "edges",
  d: edges.map(([i, j]) => `M${places[i].map((one) => one.toFixed(1)).join(" ")}L${places[j].map((one) => one.toFixed(1)).join(" ")}`).join("")});

const summary = ({nodes, edges, left_out: rest}) => {
  const flagged = nodes.filter((node) => node.flagged && node.label === null).length;
  const more = rest ? `; ${number(rest)} more are not drawn` : "";
  return `${counted(nodes.length, "vertex", "vertices")}, ${number(flagged)} flagged, ${counted(edges.length, "edge")}${more}`;
};

// A small drawing of a group; with `ids`, the other members are faint.
export const drawGroup = (graph, ids = null) => {
  const width = 300, height = 190, places = layout(graph.nodes.length, graph.edges, width, height);
  const {kind, legend} = colours(graph.nodes), chosen = ids && new Set(ids);
  const marks = graph.nodes.map((node, i) => {
    const made = mark(kind(node), ...places[i], node.centre ? 4 : 3);
    if (chosen && node.centre && !chosen.has(node.id)) made.classList.add("faint");
    made.append(svg("title", {}, visible(node.id)));
    return made;
  });
  const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `The group and its neighbours: ${summary(graph)}`},
    lines(graph.edges, places), marks);
  return [picture, legend, graph.left_out ? el("p", {class: "soft small"}, `${number(graph.left_out)} more vertices are not drawn.`) : null];
};

const NEAREST = 1, FARTHEST = 8;

// A drawing to explore: zoom by wheel, buttons and keys; arrows go from vertex to vertex, Enter opens one.
export const exploreGraph = (graph) => {
  const width = 640, height = 420, places = layout(graph.nodes.length, graph.edges, width, height, 24);
  const {kind, legend} = colours(graph.nodes);
  const said = el("p", {class: "said", "aria-live": "polite"}, `${summary(graph)}. Point at a vertex, or move with the arrow keys.`);
  let zoom = 1, [cx, cy] = [width / 2, height / 2];
  const marks = graph.nodes.map((node, i) => {
    const name = `${visible(node.id)}, ${node.label === null ? (node.flagged ? "flagged" : "no label") : visible(node.label)}, ${visible(node.time)}`;
    const tell = () => said.replaceChildren(value(node.id, {class: "strong"}),
      ` · ${visible(node.time)} · `, node.label === null ? (node.flagged ? "flagged, no label" : "no label") : value(node.label),
      node.text ? ": " : "", node.text ? value(node.text) : "");
    return svg("a", {href: vertexPath(node.id), tabindex: i ? "-1" : "0", "aria-label": name, class: node.centre && "centre", onfocus: tell, onpointerenter: tell},
      mark(kind(node), ...places[i], node.centre ? 8 : 5.5));
  });
  const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `The vertex and its neighbours: ${summary(graph)}`},
    lines(graph.edges, places), marks);
  const show = () => {
    const [w, h] = [width / zoom, height / zoom];
    cx = Math.min(width - w / 2, Math.max(w / 2, cx));
    cy = Math.min(height - h / 2, Math.max(h / 2, cy));
    picture.setAttribute("viewBox", `${cx - w / 2} ${cy - h / 2} ${w} ${h}`);
    picture.style.setProperty("--zoom", zoom);
  };
  const scale = (factor, at = [cx, cy]) => {
    const before = zoom;
    zoom = Math.min(FARTHEST, Math.max(NEAREST, zoom * factor));
    cx = at[0] + (cx - at[0]) * before / zoom;
    cy = at[1] + (cy - at[1]) * before / zoom;
    show();
    return zoom !== before;
  };
  const point = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
  picture.addEventListener("wheel", (event) => { // at the ends of the zoom, the wheel scrolls the page
    const {x, y} = point(event);
    if (scale(event.deltaY < 0 ? 1.2 : 1 / 1.2, [x, y])) event.preventDefault();
  }, {passive: false});
  let held = null;
  picture.addEventListener("pointerdown", (event) => { held = zoom > 1 && event.pointerType === "mouse" ? point(event) : null; });
  picture.addEventListener("pointermove", (event) => {
    if (!held || !event.buttons) return;
    const {x, y} = point(event);
    cx += held.x - x; cy += held.y - y;
    show();
  });
  picture.addEventListener("dragstart", (event) => event.preventDefault());
  const go = (from, [dx, dy]) => { // the nearest vertex in that direction
    const [x, y] = places[from];
    const cost = ([px, py]) => { const along = (px - x) * dx + (py - y) * dy, aside = Math.abs((px - x) * dy) + Math.abs((py - y) * dx); return along > 0.5 ? along + 2 * aside : Infinity; };
    const best = places.reduce((found, place, i) => (cost(place) < cost(places[found]) ? i : found), from);
    marks[from].setAttribute("tabindex", "-1");
    marks[best].setAttribute("tabindex", "0");
    [cx, cy] = places[best];
    show();
    marks[best].focus({preventScroll: true});
  };
  const WAYS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
  const ZOOMS = {"+": 1.4, "=": 1.4, "-": 1 / 1.4, 0: 1e-3};
  picture.addEventListener("keydown", (event) => {
    const at = marks.indexOf(event.target.closest("a"));
    if (at >= 0 && WAYS[event.key]) go(at, WAYS[event.key]);
    else if (ZOOMS[event.key] && !event.ctrlKey && !event.metaKey) scale(ZOOMS[event.key]);
    else return;
    event.preventDefault();
  });
  const buttons = el("div", {class: "zoom"}, button("+", () => scale(1.4), {label: "Zoom in"}),
    button("−", () => scale(1 / 1.4), {label: "Zoom out"}), button("Reset", () => scale(1e-3), {label: "Reset the zoom"}));
  return el("figure", {class: "explore"}, picture, el("div", {class: "below"}, legend, buttons), said);
};
