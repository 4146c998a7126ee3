// A turn on the page: what was said, the replies as they come, their tool calls, and how it ended.

import { CallView, contentNodes } from "./calls.js";
import { button, element } from "./dom.js";
import { MarkdownView } from "./markdown.js";

const CUT = {
  interrupted: "Interrupted here.",
  length: "Cut here: the answer reached its greatest length.",
  content_filter: "Cut here by a content filter.",
  other: "The model ended in an unusual way.",
};
const ENDED = {
  cancelled: () => "Stopped.",
  limit: (result) => `Ended at a limit of this turn (${(result.limit ?? "limit").replaceAll("_", " ")}).`,
  blocked: (result) => `Blocked${result.reason ? `: ${result.reason}` : "."}`,
  stopped: () => "Ended early by the application.",
};

/** One reply of the model: thoughts, text, calls. */
class ReplyView {
  #text = "";
  #thoughts = "";
  #markdown = null;
  #reasoning = null;
  #drawing = false;
  #calls = new Map();

  constructor() {
    this.element = element("div", { class: "reply" });
    this.calls = [];
    this.closed = false; // its tools have run: what comes next is another reply
  }

  get isEmpty() {
    return !this.element.childNodes.length;
  }

  text(piece) {
    this.#text += piece;
    this.#draw();
  }

  reasoning(piece) {
    this.#thoughts += piece;
    this.#draw();
  }

  /** A piece of a call, by its number in the reply. */
  callDelta(delta) {
    if (!this.#calls.has(delta.index)) this.#calls.set(delta.index, this.newCall());
    this.#calls.get(delta.index).write(delta);
  }

  newCall() {
    this.#drawNow();
    const call = new CallView();
    this.calls.push(call);
    this.element.append(call.element);
    return call;
  }

  /** Mark where and why the reply ended, unless it did so in the ordinary way. */
  cut(reason) {
    this.#drawNow();
    if (reason in CUT && !this.element.querySelector(".cut")) {
      this.element.append(element("p", { class: "cut" }, CUT[reason]));
    }
  }

  finish() {
    this.#drawNow();
    if (this.#reasoning) this.#reasoning.firstChild.textContent = "Thoughts";
  }

  #draw() {
    if (this.#drawing) return;
    this.#drawing = true;
    // At most once a frame, and in the background, where there are no frames, not at all until it is looked at.
    requestAnimationFrame(() => this.#drawNow());
  }

  #drawNow() {
    this.#drawing = false;
    if (this.#thoughts && this.#reasoning === null) {
      this.#reasoning = element(
        "details",
        { class: "reasoning" },
        element("summary", {}, "Thinking…"),
        element("div", { class: "thoughts" }),
      );
      this.element.prepend(this.#reasoning);
    }
    if (this.#reasoning) this.#reasoning.lastChild.textContent = this.#thoughts;
    if (this.#text) {
      if (this.#reasoning) this.#reasoning.firstChild.textContent = "Thoughts";
      if (this.#markdown === null) {
        const container = element("div", { class: "prose" });
        this.#markdown = new MarkdownView(container);
        if (this.#reasoning) this.#reasoning.after(container);
        else this.element.prepend(container);
      }
      this.#markdown.show(this.#text);
    }
  }
}

export class TurnView {
  #reply = null;
  #replies = element("div", { class: "replies" });
  #calls = []; // all of the turn, newest last
  #notice = null;

  /** `nested`: the turn of an agent inside a tool call. */
  constructor({ nested = false } = {}) {
    this.missed = false; // events that are not shown
    this.words = ""; // what the user said, on one line
    this.element = element(
      nested ? "div" : "article",
      { class: "turn", "aria-label": nested ? null : "Turn" },
      this.#replies,
    );
  }

  /** What the user said, as a message. */
  said(message) {
    const words = element("div", { class: "said" }, element("span", { class: "unseen" }, "You said: "));
    words.append(...contentNodes(message.content));
    this.#replies.before(words);
    this.words ||= words.textContent.slice("You said: ".length).replace(/\s+/g, " ").trim().slice(0, 80);
    if (this.words) this.element.setAttribute("aria-label", `Turn: ${this.words}`);
  }

  /** A message of the record that is the model's, a tool's or the application's. */
  recorded(message) {
    if (message.role === "tool") {
      this.#ends(message);
    } else if (message.role === "system") {
      this.#replies.append(element("p", { class: "instruction" }, `Instruction: ${message.content}`));
    } else {
      const reply = this.#newReply();
      if (message.reasoning) reply.reasoning(message.reasoning);
      if (message.content) reply.text(message.content);
      reply.finish();
      for (const call of message.tool_calls ?? []) this.#newCall(reply).show(call);
      if (message.finish_reason) reply.cut(message.finish_reason);
      reply.closed = true;
    }
  }

  /** An event of the running turn. */
  take(event) {
    switch (event.type) {
      case "text":
        this.#current().text(event.text);
        break;
      case "reasoning":
        this.#current().reasoning(event.text);
        break;
      case "tool_call": {
        const reply = this.#current();
        reply.callDelta(event);
        for (const call of reply.calls) if (!this.#calls.includes(call)) this.#calls.push(call);
        break;
      }
      case "reply_restarted":
        this.#reply?.cut("interrupted");
        this.#reply = null;
        break;
      case "tool_started":
        this.#close();
        this.#call(event.call.id, event.call.name).runs(event.call);
        break;
      case "tool_finished":
        this.#close();
        this.#ends(event.message);
        break;
      case "tool_progress":
        this.#call(event.call_id).progress(event.data);
        break;
      case "agent":
        this.#call(event.call_id)
          .agent(event.agent, () => new TurnView({ nested: true }))
          .take(event.event);
        break;
      case "behind":
        this.missed = true;
        this.notice("The beginning of this answer is shown when it is complete.");
        break;
    }
  }

  /** The calls of a pause wait; gives the view of each. */
  waits(pause) {
    this.#close();
    for (const { call } of pause.calls) {
      const view = this.#call(call.id, call.name);
      view.show(call);
      view.waits();
    }
  }

  decided(callId, words) {
    this.#call(callId).decided(words);
  }

  /** How the turn ended: a result of the routes. */
  ended(result) {
    this.#close();
    // Results that no event told of: what was rejected, or answered in a tool's place.
    this.settle(result.messages.slice(result.messages.findIndex(({ role }) => role === "user") + 1));
    this.notice(null);
    if (result.status === "cancelled") this.#last()?.cut("interrupted");
    else if (CUT[result.finish_reason]) this.#last()?.cut(result.finish_reason);
    const words = ENDED[result.status]?.(result);
    const totals = totalsOf(result);
    if (words || totals) {
      this.element.append(
        element(
          "footer",
          { class: "outcome" },
          words ? element("span", { class: "status" }, words) : null,
          totals ? element("span", { class: "totals" }, totals) : null,
        ),
      );
    }
    return words ?? "";
  }

  /** Results of this turn's calls, wherever they come from. */
  settle(messages) {
    for (const message of messages) if (message.role === "tool") this.#ends(message);
  }

  /** What stands below the turn while something is the matter with it; null for nothing. */
  notice(words, { alarm = false, actions = [] } = {}) {
    this.#notice?.remove();
    this.#notice = null;
    if (words === null) return;
    this.#notice = element(
      "div",
      { class: alarm ? "notice alarm" : "notice", role: alarm ? "alert" : null },
      element("p", {}, words),
      ...actions.map(([name, act]) => button(name, act)),
    );
    this.element.append(this.#notice);
  }

  /** An element at the end of the turn, before what comes later. */
  append(node) {
    this.element.append(node);
  }

  /** Nothing more comes of the running reply. */
  finish() {
    this.#close();
  }

  #current() {
    if (this.#reply === null || this.#reply.closed) this.#newReply();
    return this.#reply;
  }

  #last() {
    return this.#reply ?? this.#newReply();
  }

  #newReply() {
    this.#reply?.finish();
    this.#reply = new ReplyView();
    this.#replies.append(this.#reply.element);
    return this.#reply;
  }

  #newCall(reply) {
    const call = reply.newCall();
    this.#calls.push(call);
    return call;
  }

  #close() {
    if (this.#reply === null) return;
    this.#reply.finish();
    if (this.#reply.calls.length) this.#reply.closed = true;
  }

  /** The open call of an id. Providers give ids anew in every reply: an older one of the same id has its result. */
  #call(id, name = "") {
    for (const call of this.#calls.toReversed()) if (!call.finished && call.id === id) return call;
    const unnamed = this.#calls.find((call) => !call.finished && !call.id && (!name || call.name === name));
    if (unnamed) {
      unnamed.id = id;
      return unnamed;
    }
    const call = this.#newCall(this.#last());
    call.show({ id, name });
    return call;
  }

  #ends(message) {
    const shown = this.#calls.some((call) => call.finished && call.id === message.tool_call_id);
    const open = this.#calls.some((call) => !call.finished && (call.id === message.tool_call_id || !call.id));
    if (shown && !open) return;
    this.#call(message.tool_call_id, message.name).ends(message);
  }
}

const whole = new Intl.NumberFormat("en");

function totalsOf({ usage, cost }) {
  const parts = [];
  if (usage?.input_tokens != null) {
    const cached = usage.cached_input_tokens ? ` (${whole.format(usage.cached_input_tokens)} cached)` : "";
    parts.push(`${whole.format(usage.input_tokens)} tokens in${cached}`);
  }
  if (usage?.output_tokens != null) {
    const reasoning = usage.reasoning_tokens ? ` (${whole.format(usage.reasoning_tokens)} thoughts)` : "";
    parts.push(`${whole.format(usage.output_tokens)} out${reasoning}`);
  }
  if (cost != null) parts.push(`$${cost >= 0.01 ? cost.toFixed(2) : cost.toPrecision(2)}`);
  return parts.join(" · ");
}

/** The turns of a record: each begins with what the user said, the first perhaps with something else. */
export function recordedTurns(messages) {
  const turns = [];
  let afterUser = false;
  for (const message of messages) {
    // Several user messages in a row are one turn's.
    if (turns.length === 0 || (message.role === "user" && !afterUser)) turns.push(new TurnView());
    afterUser = message.role === "user";
    if (afterUser) turns.at(-1).said(message);
    else turns.at(-1).recorded(message);
  }
  return turns;
}

