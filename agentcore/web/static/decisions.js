// What a paused turn waits for: a card for each call, with the decisions that can be made on it.

import { readable } from "./calls.js";
import { button, element, newId } from "./dom.js";

const WHY = {
  approval: (name) => `${name} wants to run`,
  client_tool: (name) => `${name} wants an answer from you`,
  environment: (name) => `${name} could not run`,
};

/**
 * The cards of a pause. `decide` is called once, with the decisions on all calls and what they are in words:
 * `[{decision, words}]`.
 */
export class PauseView {
  #made = new Map();
  #cards = new Map();
  #decide;

  constructor(pause, decide) {
    this.pause = pause;
    this.#decide = decide;
    const heading = newId("pause");
    const count = pause.calls.length;
    this.heading = element(
      "h3",
      { id: heading, tabindex: "-1" },
      count === 1 ? "This waits for you" : `These ${count} calls wait for you`,
    );
    this.error = element("p", { class: "notice alarm", role: "alert", hidden: true });
    this.element = element("section", { class: "pause", "aria-labelledby": heading }, this.heading);
    if (pause.expires_at) {
      const when = new Date(pause.expires_at * 1000).toLocaleString();
      this.element.append(element("p", { class: "hint" }, `Until ${when}. A new message gives it up.`));
    }
    for (const pending of pause.calls) {
      const card = new Card(pending, (made) => this.#take(pending, made));
      this.#cards.set(pending.call.id, card);
      this.element.append(card.element);
    }
    this.element.append(this.error);
  }

  /** The decisions were not taken: say why, and let them be made anew. */
  failed(words) {
    this.error.textContent = words;
    this.error.hidden = false;
    this.#made.clear();
    for (const card of this.#cards.values()) card.open();
  }

  #take(pending, made) {
    this.error.hidden = true;
    if (made === null) this.#made.delete(pending.call.id);
    else this.#made.set(pending.call.id, made);
    if (this.#made.size < this.pause.calls.length) return;
    for (const card of this.#cards.values()) card.sent();
    this.#decide(this.pause.calls.map(({ call }) => this.#made.get(call.id)));
  }
}

class Card {
  #actions = element("div", { class: "actions" });

  constructor(pending, take) {
    this.pending = pending;
    this.take = take;
    const heading = newId("call");
    const { call, kind, reason } = pending;
    this.heading = element("h4", { id: heading, tabindex: "-1" }, WHY[kind](call.name));
    this.element = element(
      "div",
      { class: "card", role: "group", "aria-labelledby": heading, data: { kind } },
      this.heading,
      reason ? element("p", { class: "reason" }, reason) : null,
      Object.keys(call.args ?? {}).length ? element("pre", { class: "call-text" }, readable(call.args)) : null,
      this.#actions,
    );
    this.open();
  }

  /** Offer the decisions. */
  open() {
    this.#actions.replaceChildren(...this.#offers());
  }

  /** Nothing more to choose: the decisions are on their way. */
  sent() {
    for (const one of this.#actions.querySelectorAll("button")) one.disabled = true;
  }

  #offers() {
    const approve = button("Approve", () => this.#made("approve", {}, "approved"), { class: "main" });
    const change = button("Change arguments…", () => this.#askArguments());
    const answer = button("Answer in its place…", () => this.#askAnswer());
    const reject = button("Reject…", () => this.#askReason());
    switch (this.pending.kind) {
      case "approval":
        return [approve, change, reject];
      case "client_tool":
        return this.#answerForm(null);
      default:
        return [
          button("Try again", () => this.#made("retry", {}, "to be tried again"), { class: "main" }),
          button("Go on with the failure", () => this.#made("proceed", {}, "given up")),
          answer,
          reject,
        ];
    }
  }

  #askArguments() {
    const { box, field, error } = textField("Arguments, as a JSON object", readable(this.pending.call.args ?? {}), 4);
    field.spellcheck = false;
    const send = () => {
      let args;
      try {
        args = JSON.parse(field.value);
      } catch (problem) {
        return error(`This is not JSON: ${problem.message}`);
      }
      if (typeof args !== "object" || args === null || Array.isArray(args)) {
        return error("The arguments are an object, like {\"name\": \"value\"}.");
      }
      return this.#made("approve", { args }, "approved with changed arguments");
    };
    this.#ask(box, field, button("Approve with these", send, { class: "main" }));
  }

  #askReason() {
    const { box, field } = textField("Why not? The model is told (may be empty)", "", 1);
    this.#ask(box, field, button("Reject", () => this.#reject(field.value.trim()), { class: "main" }));
  }

  #askAnswer() {
    const [box, ...actions] = this.#answerForm(() => this.#back());
    this.#actions.replaceChildren(box, ...actions);
    box.querySelector("textarea").focus();
  }

  #answerForm(back) {
    const { box, field } = textField("Answer, as the model is to read it", "", 2);
    const failed = element("input", { type: "checkbox" });
    box.append(element("label", { class: "check" }, failed, "It is a failure"));
    const send = () =>
      this.#made("reply", { content: field.value, is_error: failed.checked }, failed.checked ? "failed" : "answered");
    const others = back ? button("Back", back) : button("Reject…", () => this.#askReason());
    return [box, button("Send answer", send, { class: "main" }), others];
  }

  #reject(reason) {
    this.#made("reject", { content: reason }, reason ? `rejected: ${reason}` : "rejected");
  }

  #ask(box, field, send) {
    field.addEventListener("keydown", (event) => {
      const plain = event.key === "Enter" && !event.shiftKey && !event.isComposing;
      if (plain && field.rows === 1) {
        event.preventDefault();
        send.click();
      }
    });
    this.#actions.replaceChildren(box, send, button("Back", () => this.#back()));
    field.focus();
  }

  #back() {
    this.open();
    this.#actions.querySelector("button")?.focus();
  }

  #made(action, more, words) {
    const { call, digest } = this.pending;
    this.#actions.replaceChildren(
      element("p", { class: "made" }, words),
      button("Change", () => {
        this.take(null);
        this.#back();
      }),
    );
    this.heading.focus();
    this.take({ decision: { call_id: call.id, digest, action, ...more }, words });
  }
}

function textField(name, value, rows) {
  const id = newId("field");
  const field = element("textarea", { id, rows });
  field.value = value;
  const problem = element("p", { class: "problem", role: "alert", id: newId("problem") });
  field.setAttribute("aria-describedby", problem.id);
  const box = element("div", { class: "field" }, element("label", { for: id }, name), field, problem);
  const error = (words) => {
    problem.textContent = words;
    field.setAttribute("aria-invalid", "true");
    field.focus();
  };
  return { box, field, error };
}
