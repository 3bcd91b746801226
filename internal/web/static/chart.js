// Small graphs of the last two minutes, drawn by hand.

import { h, setText, svg } from "./dom.js";

const points = 120;
const width = 240;
const height = 54;

// Graph shows one or two lines. A missing value (null) leaves a gap.
export class Graph {
  constructor(label, unit, format, lines = [""]) {
    this.label = label;
    this.format = format;
    this.names = lines;
    this.values = lines.map(() => []);
    this.area = svg("path", { class: "area" });
    this.lines = lines.map((_, i) => svg("path", { class: i ? "line second" : "line" }));
    this.svg = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none",
      role: "img" },
    svg("path", { class: "floor", d: `M0 ${height - 0.5}H${width}` }), this.area, ...this.lines);
    this.now = lines.map(() => h("span"));
    this.element = h("div", { class: "graph" }, h("div", { class: "label" }, label),
      h("div", { class: "value" }, ...this.now.flatMap((e, i) => [
        i > 0 ? h("small", {}, " · ") : null,
        this.names[i] ? h("small", {}, this.names[i] + " ") : null, e]),
      h("small", {}, unit)), this.svg);
    this.draw();
  }

  add(...values) {
    values.forEach((v, i) => {
      this.values[i].push(v);
      if (this.values[i].length > points) this.values[i].shift();
      setText(this.now[i], v == null ? "–" : this.format(v));
    });
    this.draw();
  }

  draw() {
    const top = Math.max(...this.values.flat().filter((v) => v != null), 1e-9);
    const x = (i, n) => ((points - n + i) / (points - 1)) * width;
    const y = (v) => height - 1 - (v / top) * (height - 6);
    this.values.forEach((values, line) => {
      let d = "", open = false;
      values.forEach((v, i) => {
        if (v != null) {
          d += `${open ? "L" : "M"}${x(i, values.length).toFixed(1)} ${y(v).toFixed(1)}`;
        }
        open = v != null;
      });
      this.lines[line].setAttribute("d", d);
      if (line === 0) {
        const first = values.findIndex((v) => v != null);
        this.area.setAttribute("d", first < 0 || d.lastIndexOf("M") > 0 ? "" :
          `${d}L${width} ${height}L${x(first, values.length).toFixed(1)} ${height}Z`);
      }
    });
    const now = this.now.map((e, i) => (this.names[i] ? this.names[i] + " " : "") + e.textContent);
    this.svg.setAttribute("aria-label",
      `${this.label} in the last two minutes; now ${now.join(", ")}, at most ${this.format(top)}`);
  }
}

// Bar shows a share of a whole, 0 to 1.
export function bar(share, label) {
  const part = Math.max(0, Math.min(1, share));
  return svg("svg", { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img",
    "aria-label": label },
  svg("rect", { class: "whole", width: 100, height: 6, rx: 3 }),
  svg("rect", { class: "part", width: 100 * part, height: 6, rx: 3 }));
}
