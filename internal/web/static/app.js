// The frame: who has logged in, which view is shown, and whether the cluster is well.

import { get, live, post } from "./api.js";
import { card, h, notice, setText } from "./dom.js";
import { locks, queues, windows } from "./keys.js";
import { clients, slow } from "./lists.js";
import { overview } from "./overview.js";

// A Map: an object has more names than its own, such as constructor.
const views = new Map(Object.entries({ overview, locks, windows, queues, clients, slow }));
const $ = (id) => document.getElementById(id);
const content = $("content");

let shown = null;
let endStream = null;
let node = "";

// health shows the verdict, in words, color and the title of the tab. A problem is {text, next}:
// what is wrong, and the next act.
function health(level, text, next = "", problems = []) {
  const e = $("health");
  e.hidden = false;
  if (e.className !== "health " + level) e.className = "health " + level;
  setText($("verdict"), text);
  setText($("next"), next && "Next: " + next);
  const lines = JSON.stringify(problems);
  if ($("problems").dataset.lines !== lines) {
    $("problems").dataset.lines = lines;
    $("problems").replaceChildren(...problems.map((p) => h("li", {}, p.text,
      p.next ? h("div", { class: "next" }, "Next: " + p.next) : null)));
  }
  document.title = ({ ok: "", warn: "▲ ", down: "■ " })[level] + node + " – coordd";
}

const onEvent = {
  sample(s) {
    health(s.health.level, s.health.text, s.health.next, s.health.problems || []);
    overview.show(s);
  },
  failure(f) {
    health("down", node + " cannot say how it is: " + f.error);
    overview.gap();
  },
  lost() {
    health("down", node + " does not answer", "The other nodes show this page too.");
    overview.gap();
  },
  ended(e) {
    stop();
    logIn(e.error);
  },
  refused() {
    stop();
    setTimeout(start, 2000);
  },
};

function follow() {
  endStream?.();
  endStream = live((name, body) => onEvent[name](body));
}

function stop() {
  endStream?.();
  endStream = null;
  shown?.leave?.();
}

// show shows the view that the address names.
function show() {
  const name = location.hash.slice(1);
  const view = views.get(name) || overview;
  if (!endStream) return;
  for (const a of $("nav").children) {
    if (views.get(a.hash.slice(1)) === view) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  if (shown === view && content.contains(view.element)) return;
  shown?.leave?.();
  shown = view;
  content.replaceChildren(view.element);
  view.enter?.();
}

function enter(user) {
  setText($("user"), user);
  $("who").hidden = $("nav").hidden = false;
  follow();
  show();
}

// logIn shows the form. why tells why there is one, if that is no matter of course.
function logIn(why, passwords = "") {
  $("who").hidden = $("nav").hidden = $("health").hidden = true;
  shown = null;
  document.title = "Log in to " + node + " – coordd";
  const error = h("p", { class: "error", role: "alert" }, why || "");
  const user = h("input", { id: "l-user", autocomplete: "username", value: "default",
    spellcheck: "false" });
  const password = h("input", { id: "l-password", type: "password",
    autocomplete: "current-password" });
  const button = h("button", { class: "main", type: "submit" }, "Log in");
  const form = h("form", { submit: async (e) => {
    e.preventDefault();
    error.textContent = "";
    button.disabled = true;
    try {
      const body = await post("login", { user: user.value, password: password.value });
      enter(body.user);
      content.focus();
    } catch (failure) {
      error.textContent = failure.message;
      password.value = "";
      password.focus();
    }
    button.disabled = false;
  } },
  h("p", { class: "quiet" }, "With a user of the cluster, as a client does. The page shows and " +
    "does what that user may."),
  h("div", { class: "field" }, h("label", { for: "l-user" }, "User"), user),
  h("div", { class: "field" }, h("label", { for: "l-password" }, "Password"), password), error,
  button);
  const box = card("Log in to " + node, [],
    ...passwords ? [h("p", { class: "error" }, passwords)] : [form]);
  if (passwords && why) box.append(h("p", { class: "quiet" }, why));
  box.classList.add("login");
  content.replaceChildren(box);
  password.focus();
}

// start finds out who the user is: one who has logged in, or the default user if that is open.
async function start() {
  try {
    const session = await get("session");
    node = session.node;
    setText($("node"), node);
    if (session.user) {
      enter(session.user);
      return;
    }
    try {
      enter((await post("login", { user: "", password: "" })).user);
    } catch (failure) {
      logIn(failure.status === 401 ? "" : failure.message, session.passwords);
    }
  } catch {
    health("down", (node || "The node") + " does not answer");
    setTimeout(start, 2000);
  }
}

for (const [name, view] of views) {
  $("nav").append(h("a", { href: "#" + name }, view.name));
}
$("logout").addEventListener("click", async () => {
  stop();
  await post("logout", {}).catch(() => {});
  logIn("");
  notice("You are logged out.");
});
addEventListener("hashchange", show);
addEventListener("signed-out", () => {
  stop();
  start();
});
// A hidden page asks for nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden && endStream) {
    endStream();
    shown?.leave?.();
  } else if (!document.hidden && endStream) {
    follow();
    shown?.enter?.();
  }
});
start();
