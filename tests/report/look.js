() => {
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const parse = (colour) => {
    const found = colour.match(/[\d.]+/g).map(Number);
    return found.length > 3 ? found : [...found, 1];
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
  const ground = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const contrast = (colour, behind) => {
    const [a, b] = [luminance(over(colour, behind)), luminance(behind)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };

  // What is left of a box within all that cut it off.
  const clipped = (rect, element) => {
    let {left, top, right, bottom} = rect;
    for (let one = element; one && one !== document.body; one = one.parentElement) {
      if (one.ownerSVGElement || getComputedStyle(one).overflow === "visible") continue;
      const frame = one.getBoundingClientRect();
      left = Math.max(left, frame.left); right = Math.min(right, frame.right);
      top = Math.max(top, frame.top); bottom = Math.min(bottom, frame.bottom);
    }
    return {left, top, right, bottom};
  };

  const boxes = [], faint = [], cut = [];
  const judge = (element, text, colour) => {
    const found = contrast(parse(colour), ground(element.ownerSVGElement?.parentElement ?? element));
    if (found < 4.5) faint.push(`${text.slice(0, 60)}: ${found.toFixed(2)} (${colour})`);
  };
  const add = (rect, element, text, owner) => {
    const box = clipped(rect, element);
    if (box.right - box.left > 1 && box.bottom - box.top > 1) boxes.push({...box, text: text.slice(0, 60), owner});
  };

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, text = node.textContent.trim();
    if (!text || element.closest("script, noscript, style, svg, caption")) continue;
    if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const rects = [...range.getClientRects()];
    rects.forEach((rect) => add(rect, element, text, node));
    if (rects.length) judge(element, text, getComputedStyle(element).color);
  }
  for (const element of document.querySelectorAll("svg text")) {
    const text = element.textContent.trim(), style = getComputedStyle(element);
    const rect = element.getBoundingClientRect();
    if (!text || !element.checkVisibility({opacityProperty: true, visibilityProperty: true}) || !rect.width) continue;
    const chart = element.closest(".chart");
    if (!chart) continue;  // plotly measures letters in a corner of its own
    add(rect, element, text, element);
    judge(element, text, style.fill);
    const frame = chart.getBoundingClientRect();
    if (rect.left < frame.left - 1 || rect.right > frame.right + 1 || rect.top < frame.top - 1 || rect.bottom > frame.bottom + 1)
      cut.push(`${chart.id}: ${text.slice(0, 60)}`);
  }

  // Boxes are a little higher than their letters.
  const intersecting = [];
  boxes.sort((a, b) => a.top - b.top);
  boxes.forEach((one, at) => {
    for (let next = at + 1; next < boxes.length && boxes[next].top < one.bottom - 3; next++) {
      const other = boxes[next];
      const width = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const height = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (one.owner !== other.owner && width > 1 && height > 3) intersecting.push([one.text, other.text]);
    }
  });

  const charts = [...document.querySelectorAll(".chart")];
  const drawn = charts.filter((one) => one.querySelector(".scatterlayer .trace, .barlayer .trace, .heatmaplayer image"));
  return {texts: boxes.length, intersecting, faint, cut, charts: charts.length, drawn: drawn.length};
}
