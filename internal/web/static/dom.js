// Building the page. What clients have typed is text, never markup: nothing here parses HTML.

// h returns an element with attributes, listeners (functions), and children (elements or texts).
export function h(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") e.addEventListener(key, value);
    else if (value === true) e.setAttribute(key, "");
    else if (value !== false && value != null) e.setAttribute(key, value);
  }
  e.append(...children.filter((c) => c != null));
  return e;
}

// svg is h for drawings.
export function svg(name, attributes = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

// setText changes a text only if it differs, so that screen readers hear of changes alone.
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// Table is a table whose rows stay the same elements while their content changes: a button that
// has the focus, or is being pressed, is not replaced. columns are {title, number, class, cell}:
// cell(item) returns a text, or null to leave the content to fill(td, item, isNew).
export class Table {
  constructor(caption, columns, empty) {
    this.columns = columns;
    this.rows = new Map();
    this.body = h("tbody");
    this.table = h("table", {}, h("caption", { class: "sr" }, caption),
      h("thead", {}, h("tr", {}, ...columns.map((c) => h("th",
        { scope: "col", class: c.number ? "num" : null },
        c.title || h("span", { class: "sr" }, "Actions"))))), this.body);
    this.empty = h("p", { class: "empty" }, empty);
    this.element = h("div", { tabindex: "-1" }, this.table, this.empty);
  }

  show(items, key, rowClass = () => "") {
    const focused = this.table.contains(document.activeElement) && document.activeElement;
    const gone = new Map(this.rows);
    items.forEach((item, i) => {
      const id = key(item);
      let row = this.rows.get(id);
      const isNew = !row;
      if (isNew) {
        row = h("tr", {}, ...this.columns.map((c) => h("td", { "data-label": c.title,
          class: [c.number && "num", c.class].filter(Boolean).join(" ") || null })));
        this.rows.set(id, row);
      }
      gone.delete(id);
      if (this.body.children[i] !== row) this.body.insertBefore(row, this.body.children[i] || null);
      const name = rowClass(item);
      if (row.className !== name) row.className = name;
      this.columns.forEach((c, n) => {
        if (c.cell) setText(row.children[n], c.cell(item));
        else c.fill(row.children[n], item, isNew);
      });
    });
    for (const [id, row] of gone) {
      row.remove();
      this.rows.delete(id);
    }
    this.table.hidden = items.length === 0;
    this.empty.hidden = items.length > 0;
    // A button that has gone takes the focus with it, to the beginning of the page.
    if (focused && (!focused.isConnected || focused.closest("[hidden]"))) this.element.focus();
  }
}

// card returns a section with a heading and controls beside it.
export function card(title, tools, ...children) {
  const id = "h-" + title.toLowerCase().replaceAll(/[^a-z]+/g, "-");
  return h("section", { class: "card", "aria-labelledby": id },
    h("div", { class: "head" }, h("h2", { id }, title), h("div", { class: "tools" }, ...tools)),
    ...children);
}

let noticeTimer;

// notice tells what has been done, for some seconds.
export function notice(text) {
  const e = document.getElementById("notice");
  e.textContent = text;
  e.hidden = false;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { e.hidden = true; }, 8000);
}
