// The cluster and its load.

import { Graph } from "./chart.js";
import { confirm } from "./dialog.js";
import { card, h, setText, Table } from "./dom.js";
import { bytes, count, micros, millis, rate, seconds } from "./format.js";

const silent = 3000; // ms, as in internal/observe/health.go

let sample = null;

const may = (action) => sample.may.includes(action);

function makeLeader(id) {
  confirm({ title: "Make " + id + " the leader?", action: "Transfer leadership",
    text: "Commands wait for a moment while " + id + " takes over. None fails.",
    command: () => ["RAFT", "TRANSFER", id], request: () => ({ action: "transfer", member: id }),
    done: id + " leads." });
}

function removeMember(id) {
  confirm({ title: "Remove " + id + " for good?", action: "Remove " + id, danger: true,
    text: "The id can never be used again: a node that replaces it joins under another one.",
    fields: [{ name: "id", label: "Type " + id + " to confirm", must: id }],
    command: () => ["RAFT", "REMOVE", id], request: () => ({ action: "remove", member: id }),
    done: id + " is removed." });
}

function promote(id) {
  confirm({ title: "Give " + id + " a vote?", action: "Make " + id + " a voter",
    text: "It must have caught up. From then on it counts for the majority.",
    command: () => ["RAFT", "PROMOTE", id], request: () => ({ action: "promote", member: id }),
    done: id + " is a voter." });
}

function addMember() {
  confirm({ title: "Add a member", action: "Add",
    text: "The node must be running with --join and an empty data directory. It becomes a voter " +
      "once it has caught up.",
    fields: [{ name: "id", label: "Its id (--id)" },
      { name: "address", label: "host:port of its peer port" }],
    command: (v) => ["RAFT", "ADD", v.id || "ID", v.address || "HOST:PORT"],
    request: (v) => ({ action: "add", member: v.id, address: v.address }),
    done: "The member is added." });
}

function takeSnapshot() {
  confirm({ title: "Take a snapshot of " + (sample?.node.id || "this node") + "?",
    action: "Take it",
    text: "The node writes its whole state to disk, while it serves, and shortens its log.",
    command: () => ["BGSAVE"], request: () => ({ action: "snapshot" }),
    done: "The snapshot is being written." });
}

function role(td, m) {
  const text = m.id === sample.node.leader ? "leader" : m.role === "voter" ? "follower" : m.role;
  if (td.dataset.shown === text) return;
  td.dataset.shown = text;
  td.replaceChildren(h("span", { class: "tag " + text }, text));
}

function memberActions(td, m, isNew) {
  if (isNew) {
    td.append(
      h("button", { class: "plain", type: "button", click: () => makeLeader(m.id) },
        "Make leader", h("span", { class: "sr" }, " of " + m.id)),
      h("button", { class: "plain", type: "button", click: () => promote(m.id) },
        "Make voter", h("span", { class: "sr" }, " of " + m.id)),
      h("button", { class: "plain", type: "button", click: () => removeMember(m.id) },
        "Remove", h("span", { class: "sr" }, " " + m.id)));
  }
  td.children[0].hidden = !may("transfer") || m.id === sample.node.leader || m.role !== "voter";
  td.children[1].hidden = !may("promote") || m.role !== "learner" || m.permanent;
  td.children[2].hidden = !may("remove") || m.role === "removed";
}

const isSilent = (m) => !sample.alone && (m.contact > silent || m.contact < 0);

// isMixed reports whether the members run different builds.
const isMixed = () => new Set(sample.members.filter((m) => m.build)
  .map((m) => m.version + " " + m.build)).size > 1;

const members = new Table("Members of the cluster", [
  { title: "Member", cell: (m) => m.id + (m.id === sample.node.id ? " (this node)" : "") +
    (m.zone ? ", zone " + m.zone : "") },
  { title: "Role", fill: role },
  { title: "Behind", number: true, cell: (m) => (m.behind < 0 ? "–" : count(m.behind)) },
  { title: "Last heard", number: true,
    cell: (m) => (m.id === sample.node.leader ? "–" : millis(m.contact)) },
  { title: "Uptime", number: true, cell: (m) => seconds(m.uptime) },
  { title: "Version", class: "wrap", cell: (m) => (m.version || "–") +
    (isMixed() && m.build ? ", " + m.build : "") },
  { title: "Clients at", class: "wrap", cell: (m) => m.client || "–" },
  { title: "", class: "act", fill: memberActions },
], "The members are not known.");

const graphs = {
  commands: new Graph("Commands", " /s", rate),
  latency: new Graph("Duration of commands", "", micros, ["p50", "p99"]),
  entries: new Graph("Log entries", " /s", rate),
  errors: new Graph("Error replies", " /s", rate),
};

const facts = {};

function fact(name) {
  facts[name] = h("dd", {}, "–");
  return h("div", {}, h("dt", {}, name), facts[name]);
}

const commands = new Table("Commands of the last second", [
  { title: "Command", class: "mono", cell: (c) => c.name.replace("|", " ").toUpperCase() },
  { title: "Calls /s", number: true, cell: (c) => rate(c.calls) },
  { title: "Mean", number: true, cell: (c) => micros(c.mean) },
  { title: "Failed /s", number: true, cell: (c) => rate(c.failed) },
], "No client has sent a command in the last second.");

const buttons = {
  snapshot: h("button", { type: "button", click: takeSnapshot }, "Snapshot…"),
  add: h("button", { type: "button", click: addMember }, "Add member…"),
};

const denied = h("p", { class: "empty" });

export const overview = {
  name: "Overview",
  element: h("div"),

  show(s) {
    sample = s;
    buttons.snapshot.hidden = !may("snapshot");
    buttons.add.hidden = !may("add");
    members.show(s.members || [], (m) => m.id, (m) => (isSilent(m) ? "silent" : ""));
    const r = s.rates;
    if (r) {
      graphs.commands.add(r.commands);
      graphs.latency.add(r.p50 || null, r.p99 || null);
      graphs.entries.add(r.entries);
      graphs.errors.add(r.errors);
      commands.show(r.top || [], (c) => c.name);
    }
    const c = s.counts;
    const values = {
      Clients: count(c.clients) + (c.blocked ? ", " + count(c.blocked) + " waiting" : ""),
      Keys: count(c.keys) + (c.expires ? ", " + count(c.expires) + " with a TTL" : ""),
      Data: bytes(c.data) + (c.maxMemory ? " of " + bytes(c.maxMemory) : ""),
      "Memory of the process": bytes(c.resident),
      Term: count(s.node.term),
      "Log index": count(s.node.commit) + (s.node.applied < s.node.commit ?
        ", " + count(s.node.commit - s.node.applied) + " to apply" : ""),
      Snapshot: c.saving ? "being written" : c.snapshotAge < 0 ? "none yet" :
        seconds(c.snapshotAge) + " ago",
      Network: r ? bytes(r.in) + "/s in, " + bytes(r.out) + "/s out" : "–",
    };
    for (const [name, value] of Object.entries(values)) setText(facts[name], value);
    const missing = (s.unanswered || []).map((why) => "Not shown: " + why);
    if (s.denied?.length) {
      missing.push("Not shown, since the user may not run it: " + s.denied.join(", "));
    }
    setText(denied, missing.join(". "));
    denied.hidden = !missing.length;
  },

  // gap shows that nothing is known now.
  gap() {
    graphs.commands.add(null);
    graphs.latency.add(null, null);
    graphs.entries.add(null);
    graphs.errors.add(null);
  },
};

overview.element.replaceChildren(
  card("Members", Object.values(buttons), members.element),
  card("Load of this node", [],
    h("div", { class: "graphs" }, ...Object.values(graphs).map((g) => g.element)),
    h("dl", { class: "facts" }, ...["Clients", "Keys", "Data", "Memory of the process", "Term",
      "Log index", "Snapshot", "Network"].map(fact)), denied),
  card("Commands of the last second", [], commands.element));
