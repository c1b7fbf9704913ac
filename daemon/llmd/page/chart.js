/* chart.js: a small chart of a few lines over time, as SVG. */

import { count, h, setText } from "./dom.js";

const WIDTH = 300, HEIGHT = 80;
const POINTS_MIN = 60; /* the width stands for at least so many values */

function svg(tag, properties, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/* lines: [[class, name], ...]. The numbers are also in the text below the chart, with the unit. */
export class Chart {
  constructor(title, lines, unit) {
    this.unit = unit;
    this.lines = lines.map(([kind, name]) => ({ name, path: svg("polyline", { class: kind }), text: h("span", { class: kind }) }));
    this.top = h("span", { class: "quiet" });
    this.span = h("span", { class: "quiet" });
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      ...this.lines.map((line) => line.path));
    this.element = h("figure", { class: "chart", "aria-label": title }, h("p", {}, this.top), picture, h("p", {}, this.span),
      h("figcaption", {}, this.lines.flatMap((line) => [line.text, " "])));
  }

  /* values: for each line the values, the oldest first. spanText says what the width stands for. */
  draw(values, spanText) {
    const points_max = Math.max(POINTS_MIN, ...values.map((one) => one.length));
    const top = Math.max(1, ...values.flat());
    setText(this.top, `${count(Math.round(top))} ${this.unit}`);
    setText(this.span, spanText);
    this.lines.forEach((line, i) => {
      const from = points_max - values[i].length;
      const points = values[i].map((value, x) =>
        `${(((from + x) * WIDTH) / (points_max - 1)).toFixed(1)},${(HEIGHT - 1 - ((HEIGHT - 2) * value) / top).toFixed(1)}`);
      line.path.setAttribute("points", points.join(" "));
      setText(line.text, `${line.name}: ${count(Math.round(values[i].at(-1) ?? 0))} ${this.unit}`);
    });
  }
}
