// Views that are asked for: connections of all nodes, and slow commands of this one.

import { get } from "./api.js";
import { card, h, setText, Table } from "./dom.js";
import { bytes, clock, count, micros, seconds } from "./format.js";

const every = 3000; // ms, while the view is shown
const share = 20; // … but an answer that took long is asked for again after that many times as long

// asked returns a view that asks path for its content again and again while it is shown.
export function asked(name, path, query, show, element) {
  const error = h("p", { class: "empty error", role: "status", hidden: true });
  element.append(error);
  let timer = 0;
  let asks = 0;
  const view = { name, element,
    async refresh() {
      clearTimeout(timer);
      const mine = ++asks;
      const began = performance.now();
      try {
        const body = await get(path, query());
        if (mine !== asks) return; // a newer question, or another view
        show(body);
        error.hidden = true;
      } catch (failure) {
        if (mine !== asks) return;
        setText(error, failure.message);
        error.hidden = false;
        if (failure.status === 401) dispatchEvent(new Event("signed-out"));
      }
      timer = setTimeout(view.refresh, Math.max(every, share * (performance.now() - began)));
    },
    enter: () => view.refresh(),
    leave: () => {
      asks++;
      clearTimeout(timer);
    },
  };
  return view;
}

// searchBox returns a field that calls found when its content changes.
export function searchBox(label, found) {
  let timer = 0;
  const input = h("input", { type: "search", placeholder: label, "aria-label": label,
    autocomplete: "off", spellcheck: "false",
    input: () => {
      clearTimeout(timer);
      timer = setTimeout(found, 200);
    } });
  return { input, element: h("div", { class: "search" }, input) };
}

const connections = new Table("Connections", [
  { title: "Client", class: "mono", cell: (c) => c.addr },
  { title: "Node", class: "mono", cell: (c) => c.node || "–" },
  { title: "Library", class: "wrap", cell: (c) => c.library || "–" },
  { title: "Name", class: "wrap", cell: (c) => c.name || "–" },
  { title: "User", class: "wrap", cell: (c) => c.user },
  { title: "Last command", class: "mono", cell: (c) => c.command.replace("|", " ") },
  { title: "Connected", number: true, cell: (c) => seconds(c.age) },
  { title: "Idle", number: true, cell: (c) => seconds(c.idle) },
  { title: "Memory", number: true, cell: (c) => bytes(c.bytes) },
], "No connection matches.");

const libraries = new Table("Client libraries", [
  { title: "Library", class: "wrap", cell: (l) => l.name || "does not say" },
  { title: "Connections", number: true, cell: (l) => count(l.connections) },
], "Nobody is connected.");

const total = h("span", { class: "quiet" });
const search = searchBox("Address, node, library, name, user or command", () => clients.refresh());

export const clients = asked("Clients", "clients", () => ({ word: search.input.value }), (body) => {
  libraries.show(body.libraries, (l) => l.name);
  connections.show(body.shown, (c) => c.id);
  setText(total, body.shown.length < body.matching ?
    `the largest ${count(body.shown.length)} of ${count(body.matching)}` :
    `${count(body.matching)} of ${count(body.total)}`);
}, h("div", {}, card("Libraries", [], libraries.element),
  card("Connections", [total, search.element], connections.element)));

const calls = new Table("Slow commands, the newest first", [
  { title: "When", class: "num", cell: (c) => clock(c.at) },
  { title: "Took", number: true, cell: (c) => micros(c.took) },
  { title: "Command", class: "key mono", cell: (c) => c.call },
  { title: "Client", class: "mono", cell: (c) => c.addr + (c.name ? " " + c.name : "") },
], "No command of this node's clients was slow.");

export const slow = asked("Slow commands", "slow", () => ({}), (body) => {
  calls.show(body.calls, (c) => c.id);
}, h("div", {}, card("Slow commands of this node's clients", [
  h("span", { class: "quiet" }, "CONFIG SET slowlog-log-slower-than says from when")],
calls.element)));
