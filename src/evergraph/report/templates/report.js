(async () => {
  "use strict";
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isNarrow = matchMedia("(max-width: 700px)");
  const button = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);

  // Colours are variables of the style sheet, so that they follow the theme.
  const painted = (value, style) => {
    if (Array.isArray(value)) return value.map((one) => painted(one, style));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, painted(one, style)]));
    const name = typeof value === "string" && /^var\((--[a-z-]+)\)$/.exec(value);
    return name ? style.getPropertyValue(name[1]).trim() : value;
  };

  const put = (layout, path, value) => {
    const keys = path.split("."), last = keys.pop();
    keys.reduce((part, key) => part[key], layout)[last] = value;
  };

  const draw = async () => {
    const style = getComputedStyle(root);
    for (const place of document.querySelectorAll(".chart")) {
      const figure = painted(JSON.parse(document.getElementById(`${place.id}-data`).textContent), style);
      if (isNarrow.matches) {
        // On a narrow screen, dragging scrolls the page.
        Object.assign(figure.layout, {dragmode: false});
        figure.layout.xaxis.fixedrange = figure.layout.yaxis.fixedrange = true;
        for (const [path, value] of Object.entries(figure.narrow)) put(figure.layout, path, value);
      }
      if (!place.drawn) place.replaceChildren();
      place.drawn = true;
      const options = {responsive: true, displayModeBar: false, scrollZoom: false, doubleClick: "reset"};
      await Plotly.react(place, figure.data, figure.layout, options);
    }
    root.dataset.drawn = `${isDark() ? "dark" : "light"} ${isNarrow.matches ? "narrow" : "wide"}`;
  };

  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  let charts = false;
  const repaint = () => { label(); if (charts) draw(); };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; repaint(); });
  for (const change of [prefersDark, isNarrow]) change.addEventListener("change", repaint);
  let before;
  addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; repaint(); });
  addEventListener("afterprint", () => { if (before) root.dataset.theme = before; else delete root.dataset.theme; repaint(); });
  label();
  button.hidden = false;

  try {
    const packed = document.getElementById("plotly");
    if (packed) {
      const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const script = document.createElement("script");
      script.textContent = await new Response(stream).text();
      document.head.append(script);
    }
    charts = true;
    await draw();
  } catch (error) {
    // All numbers are in the tables, too.
    root.classList.add("no-charts");
    document.getElementById("sorry").hidden = false;
    for (const one of document.querySelectorAll("details")) one.open = true;
    root.dataset.drawn = "nothing";
    console.warn(error);
  }
})();
