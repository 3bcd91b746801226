// Locks, windows and queues: keys by what they are used for.

import { get } from "./api.js";
import { bar } from "./chart.js";
import { confirm, inform } from "./dialog.js";
import { card, h, notice, setText, Table } from "./dom.js";
import { count, millis } from "./format.js";
import { asked, searchBox } from "./lists.js";

// holder returns the field that asks which of several holders is meant.
function holder(e) {
  return e.owners.length < 2 ? [] : [{ name: "holder", label: "Holder",
    options: e.owners.map((o, i) => [String(i), o.text]) }];
}

const chosen = (e, v) => e.owners[Number(v.holder || 0)] || { text: "", id: "" };

function release(view, e) {
  confirm({ title: "Release this lock?", action: "Release", danger: true, fields: holder(e),
    text: `${e.key}, held by ${e.owner || "nobody that is known"}. Whoever believes to hold it may ` +
      "still act: only a resource that checks the fencing token refuses him. Nothing is done if " +
      "the lock has another holder by now.",
    command: (v) => ["LOCKS", "RELEASE", e.key, chosen(e, v).text, e.token],
    request: (v) => ({ action: "release", db: view.db(), id: e.id, owner: chosen(e, v).id,
      token: e.token }),
    done: "The lock is released.", after: view.refresh });
}

function extend(view, e) {
  confirm({ title: "Extend this lock?", action: "Extend",
    text: `${e.key}, held by ${e.owner || "nobody that is known"}. The time counts from now.` +
      (e.lease ? ` Renewals of its lease ${e.lease} do not prolong it any more.` : ""),
    fields: [...holder(e), { name: "seconds", label: "Seconds", value: "60" }],
    command: (v) => ["LOCKS", "EXTEND", e.key, chosen(e, v).text, e.token,
      String(Math.round(v.seconds * 1000))],
    request: (v) => ({ action: "extend", db: view.db(), id: e.id, owner: chosen(e, v).id,
      token: e.token, ms: Math.round(v.seconds * 1000) }),
    done: "The lock is extended.", after: view.refresh });
}

// details shows who holds a lock, who waits for it, and who held it before.
async function details(view, e) {
  let lock;
  try {
    lock = await get("lock", { db: view.db(), id: e.id });
  } catch (failure) {
    notice(failure.message);
    return;
  }
  const holds = new Table("Held by", [
    { title: "Held by", class: "wrap mono", cell: (o) => o.owner },
    { title: "Token", number: true, class: "mono", cell: (o) => o.token },
    { title: "Count", number: true, cell: (o) => count(o.count) },
    { title: "Time left", number: true, cell: (o) => (o.ttl < 0 ? "no end" : millis(o.ttl)) },
    { title: "Lease", number: true, class: "mono", cell: (o) => o.lease || "–" },
  ], "");
  holds.show(lock.holds, (o) => o);
  const queue = new Table("In the queue", [
    { title: "In the queue", class: "wrap mono", cell: (q) => q.owner },
    { title: "Kind", cell: (q) => q.kind },
    { title: "Priority", number: true, cell: (q) => String(q.priority) },
    { title: "For", number: true, cell: (q) => millis(q.waits) },
  ], "");
  queue.show(lock.queue, (q) => q);
  const waiting = new Table("Waiting", [
    { title: "Waiting", class: "wrap mono", cell: (w) => w.owner },
    { title: "For", number: true, cell: (w) => millis(w.waits) },
    { title: "Attempts", number: true, cell: (w) => count(w.attempts) },
    { title: "Last attempt", number: true, cell: (w) => millis(w.seen) + " ago" },
  ], "Nobody is known to wait.");
  waiting.show(lock.waiting, (w) => w);
  const history = new Table("Holders before", [
    { title: "Held before by", class: "wrap mono", cell: (p) => p.owner },
    { title: "Token", number: true, class: "mono", cell: (p) => p.token },
    { title: "For", number: true, cell: (p) => millis(p.held) },
    { title: "Until", number: true, cell: (p) => millis(p.ago) + " ago" },
    { title: "End", cell: (p) => p.end },
  ], "Nobody is known to have held it before. A new leader begins to remember when it leads.");
  history.show(lock.history, (p) => p);
  const facts = { Owner: lock.owner || "nobody", Kind: lock.kind || "–", Token: lock.token || "–",
    "Held for": millis(lock.held), "Time left": lock.ttl < 0 ? "no end" : millis(lock.ttl) };
  if (lock.lease) facts.Lease = lock.lease;
  inform(e.key, h("dl", {}, ...Object.entries(facts).flatMap(([name, value]) =>
    [h("dt", {}, name), h("dd", {}, value)])),
    ...(lock.holds.length > 1 || lock.lease ? [holds.element] : []),
    ...(lock.queue.length ? [queue.element] : []), waiting.element, history.element);
}

const key = { title: "Key", class: "key mono", cell: (e) => e.key };
const left = { title: "Time left", number: true, cell: (e) => (e.ttl < 0 ? "no end" :
  millis(e.ttl)) };

// The columns of each group; view offers what buttons need.
const groups = {
  locks: { title: "Locks", empty: "There is no lock here.", columns: (view) => [
    key,
    { title: "Owner", class: "wrap mono", cell: (e) => e.owner },
    { title: "Kind", cell: (e) => e.kind },
    { title: "Token", number: true, class: "mono", cell: (e) => e.token },
    { title: "Held for", number: true, cell: (e) => millis(e.held) },
    left,
    { title: "Waiting", number: true, cell: (e) => count(e.waiters) },
    { title: "", class: "act", fill: (td, e) => {
      td.entry = e;
      if (!td.children.length && e.id) {
        td.append(
          h("button", { class: "plain", type: "button", click: () => details(view, td.entry) },
            "Details", h("span", { class: "sr" }, " of " + e.key)),
          h("button", { class: "plain", type: "button", click: () => extend(view, td.entry) },
            "Extend", h("span", { class: "sr" }, " " + e.key)),
          h("button", { class: "plain", type: "button", click: () => release(view, td.entry) },
            "Release", h("span", { class: "sr" }, " " + e.key)));
      }
      // only its clients know how the holder of a semaphore is extended
      if (td.children[1]) td.children[1].hidden = e.kind === "semaphore";
    } },
  ] },
  windows: { title: "Windows", empty: "There is no window here.", columns: () => [
    key,
    { title: "Kind", cell: (e) => e.kind },
    { title: "Fill", number: true, cell: (e) => count(e.size) },
    { title: "Compared with the fullest shown", fill: (td, e) => {
      if (td.shown === e.share) return;
      td.shown = e.share;
      td.replaceChildren(...(e.size < 0 ? [] : [bar(e.share,
        Math.round(100 * e.share) + " % of the fullest")]));
    } },
    left,
  ] },
  queues: { title: "Queues", empty: "There is no queue here.", columns: () => [
    key,
    { title: "Kind", cell: (e) => e.kind },
    { title: "Length", number: true, cell: (e) => count(e.size) },
    left,
  ] },
};

// group returns the view of a group.
function group(name) {
  const g = groups[name];
  let cursors = [""]; // of the pages up to the one that is shown
  let next = "";
  const again = () => {
    cursors = [""];
    view.refresh();
  };
  const search = searchBox("Search by prefix", again);
  const db = h("input", { type: "number", min: 0, max: 15, value: 0, class: "db",
    input: again });
  const where = h("span", { class: "quiet", role: "status" });
  const back = h("button", { type: "button", click: () => {
    cursors.pop();
    view.refresh();
  } }, "Back");
  const on = h("button", { type: "button", click: () => {
    cursors.push(next);
    view.refresh();
  } }, "Go on");
  const foot = h("div", { class: "head", hidden: true }, where,
    h("div", { class: "tools" }, back, on));
  const view = asked(g.title, "keys", () => ({ group: name, prefix: search.input.value,
    db: db.value || 0, cursor: cursors.at(-1) }), (body) => {
    const fullest = Math.max(1, ...body.shown.map((e) => e.size));
    for (const e of body.shown) e.share = e.size / fullest;
    next = body.cursor;
    back.hidden = cursors.length === 1;
    on.hidden = !next;
    foot.hidden = back.hidden && on.hidden;
    setText(where, next ? `Page ${cursors.length}. There are more keys to look at.` :
      cursors.length > 1 ? `Page ${cursors.length}, the last` : "");
    table.show(body.shown, (e) => e.id || e.key);
  }, h("div"));
  view.db = () => Number(db.value);
  const table = new Table(g.title, g.columns(view), g.empty);
  view.element.prepend(card(g.title, [search.element,
    h("label", { class: "db" }, "Database", db)], table.element, foot));
  return view;
}

export const locks = group("locks");
export const windows = group("windows");
export const queues = group("queues");
