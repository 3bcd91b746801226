// Confirmations. Every action shows the command that it runs, and asks.

import { Failure, post } from "./api.js";
import { h, notice } from "./dom.js";

// inform shows something under a title until it is closed.
export function inform(title, ...content) {
  const dialog = h("dialog", { class: "wide", "aria-labelledby": "d-title",
    close: () => dialog.remove() },
  h("h2", { id: "d-title", class: "key mono" }, title), ...content,
  h("div", { class: "buttons" }, h("button", { type: "button", autofocus: true,
    click: () => dialog.close() }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

// confirm asks before an action. options: title, text, action (the name of the button), danger,
// fields ({name, label, value, must, options}: must is what has to be typed, options are pairs of
// value and text to choose from), command(values) and request(values), which return the words of the command and the request.
export function confirm(options) {
  const inputs = (options.fields || []).map((f) => {
    const attributes = { name: f.name, id: "f-" + f.name, "aria-describedby": "d-text" };
    return f.options ?
      h("select", attributes, ...f.options.map(([value, text]) => h("option", { value }, text))) :
      h("input", { ...attributes, value: f.value || "", autocomplete: "off", spellcheck: "false",
        required: true });
  });
  const values = () => Object.fromEntries(inputs.map((e) => [e.name, e.value.trim()]));
  const command = h("code", { class: "command" });
  const error = h("p", { class: "error", role: "alert" });
  const go = h("button", { type: "submit", class: options.danger ? "danger" : "main" },
    options.action);
  const stay = h("button", { type: "button", autofocus: inputs.length === 0,
    click: () => dialog.close() }, "Cancel");
  const update = () => {
    command.textContent = options.command(values()).join(" ");
    go.disabled = (options.fields || []).some((f, i) =>
      f.must ? inputs[i].value.trim() !== f.must : inputs[i].value.trim() === "");
  };
  const dialog = h("dialog", { "aria-labelledby": "d-title", "aria-describedby": "d-text",
    close: () => dialog.remove() },
  h("form", { method: "dialog", input: update, submit: async (e) => {
    e.preventDefault();
    error.textContent = "";
    go.disabled = true;
    try {
      await post("act", options.request(values()));
      dialog.close();
      notice(options.done || "Done.");
      options.after?.();
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      error.textContent = failure.message;
      update();
    }
  } },
  h("h2", { id: "d-title" }, options.title), h("p", { id: "d-text" }, options.text),
  ...(options.fields || []).map((f, i) =>
    h("div", { class: "field" }, h("label", { for: "f-" + f.name }, f.label), inputs[i])),
  command, error, h("div", { class: "buttons" }, stay, go)));
  update();
  document.body.append(dialog);
  dialog.showModal(); // returns the focus to the button when it closes
}
