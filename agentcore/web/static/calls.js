// Tool calls: what the model asked for, what became of it, and what came out.

import { element } from "./dom.js";

const STATES = {
  writing: "is being written",
  asked: "asked for",
  waiting: "waits for you",
  running: "running",
  done: "done",
  failed: "failed",
};

export class CallView {
  #state = element("span", { class: "call-state" });
  #brief = element("span", { class: "call-brief" });
  #name = element("span", { class: "call-name" });
  #arguments = element("pre", { class: "call-text" });
  #extra = element("div", { class: "call-extra" });
  #progress = null;
  #agents = new Map();
  #written = "";

  constructor() {
    this.id = "";
    this.name = "";
    this.finished = false;
    const summary = element("summary", {}, this.#name, this.#brief, this.#state);
    const body = element("div", { class: "call-body" }, label("Arguments"), this.#arguments, this.#extra);
    this.element = element("details", { class: "call" }, summary, body);
    this.#become("writing");
  }

  /** Some more of the call, as the model writes it. */
  write(delta) {
    if (delta.id) this.id = delta.id;
    if (delta.name) this.#called(delta.name);
    this.#written += delta.arguments;
    this.#arguments.textContent = this.#written;
  }

  /** The whole call: `{id, name, args}`, or with `raw_arguments` where those are no object. */
  show(call) {
    this.id = call.id;
    this.#called(call.name);
    const text = call.raw_arguments ?? readable(call.args ?? {});
    this.#arguments.textContent = text === "{}" ? "none" : text;
    this.#brief.textContent = call.raw_arguments ?? brief(call.args ?? {});
    if (this.element.dataset.state === "writing") this.#become("asked");
  }

  runs(call) {
    this.show(call);
    this.#become("running");
  }

  waits() {
    if (!this.finished) this.#become("waiting");
  }

  /** What a person decided, in words, until the result is there. */
  decided(words) {
    if (this.finished) return;
    this.#become("asked");
    this.#state.textContent = words;
  }

  /** What the running tool told of its progress. */
  progress(data) {
    if (this.#progress === null) {
      this.#progress = element("pre", { class: "call-text" });
      this.#extra.append(label("Progress"), this.#progress);
    }
    this.#progress.textContent = readable(data);
    if (typeof data === "string" && !this.finished) this.#state.textContent = data;
  }

  /** Where the events of an agent that runs inside this call are shown; `make` makes it at the first of them. */
  agent(name, make) {
    if (!this.#agents.has(name)) {
      const view = make();
      this.#agents.set(name, view);
      this.#extra.append(element("div", { class: "agent" }, label(name), view.element));
    }
    return this.#agents.get(name);
  }

  /** The result: what the model is told. */
  ends(message) {
    if (this.finished) return;
    this.finished = true;
    if (!this.name) this.#called(message.name);
    this.#become(message.is_error ? "failed" : "done");
    this.element.querySelector(".call-body").append(
      label(message.is_error ? "Failure" : "Result"),
      element("div", { class: "call-result" }, ...contentNodes(message.content)),
    );
  }

  #called(name) {
    this.name = name;
    this.#name.textContent = name;
  }

  #become(state) {
    this.element.dataset.state = state;
    this.#state.textContent = STATES[state];
  }
}

function label(text) {
  return element("p", { class: "call-label" }, text);
}

/** A value as a person reads it. */
export function readable(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

function brief(args) {
  const text = Object.entries(args)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
  return text.length > 120 ? `${text.slice(0, 119)}…` : text;
}

/** The content of a message, text or parts, as nodes. */
export function contentNodes(content) {
  const parts = typeof content === "string" ? [{ type: "text", text: content }] : (content ?? []);
  return parts.map((part) => {
    if (part.type === "text") return element("pre", { class: "call-text" }, part.text);
    if (part.type === "image" && part.data && /^image\/[\w.+-]+$/.test(part.media_type)) {
      return element("img", { src: `data:${part.media_type};base64,${part.data}`, alt: "Image" });
    }
    const name = part.name ?? part.url ?? part.media_type ?? "";
    return element("p", { class: "attachment" }, `${part.type}: ${name}`); // nothing is fetched from elsewhere
  });
}
