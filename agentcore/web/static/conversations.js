// The list of conversations: newest first, one is open, each can be deleted.

import { button, element } from "./dom.js";

const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const UNITS = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

export class ConversationList {
  #known = new Map(); // what the server says of each, newest first
  #after = null;
  #current = "";

  /** `remove` asks and deletes; `list` gets a page. */
  constructor({ list, more, status, get, remove }) {
    this.list = list;
    this.more = more;
    this.status = status;
    this.get = get;
    this.remove = remove;
    more.addEventListener("click", () => this.#load(this.#after));
  }

  /** Read the newest ones again. */
  async refresh() {
    await this.#load(null);
  }

  /** Which one is open. */
  mark(id) {
    this.#current = id;
    for (const link of this.list.querySelectorAll("a")) {
      if (link.dataset.id === id) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  titleOf(id) {
    return this.#known.get(id)?.title || "";
  }

  /** It is deleted; the focus goes to its neighbour, if there is one. */
  forget(id) {
    const item = this.#itemOf(id);
    const neighbour = item?.nextElementSibling ?? item?.previousElementSibling;
    item?.remove();
    this.#known.delete(id);
    this.#say();
    neighbour?.querySelector("a")?.focus();
    return Boolean(neighbour);
  }

  async #load(after) {
    let page;
    try {
      page = await this.get(after);
    } catch (error) {
      this.status.textContent = error.message;
      return;
    }
    const others = new Map([...this.#known].filter(([id]) => !page.conversations.some((one) => one.conversation_id === id)));
    const first = page.conversations.map((one) => [one.conversation_id, one]);
    this.#known = new Map(after ? [...others, ...first] : [...first, ...others]);
    if (after || others.size === 0) this.#after = page.after;
    this.#draw();
  }

  #draw() {
    const focused = document.activeElement?.closest?.("li")?.dataset.id;
    this.list.replaceChildren(...[...this.#known.values()].map((one) => this.#item(one)));
    if (focused) this.#itemOf(focused)?.querySelector("a").focus();
    this.more.hidden = this.#after === null;
    this.mark(this.#current);
    this.#say();
  }

  #say() {
    this.status.textContent = this.#known.size ? "" : "None yet.";
  }

  #itemOf(id) {
    return [...this.list.children].find((item) => item.dataset.id === id);
  }

  #item(one) {
    const id = one.conversation_id;
    const title = one.title || id;
    const when = new Date(one.updated_at * 1000);
    const link = element(
      "a",
      { href: addressOf(id), data: { id } },
      element("span", { class: "title" }, title),
      element("time", { datetime: when.toISOString(), title: when.toLocaleString() }, ago(when)),
    );
    const remove = button("×", () => this.remove(id, title), { class: "delete", "aria-label": `Delete “${title}”` });
    return element("li", { data: { id } }, link, remove);
  }
}

/** The address of a conversation on this page. */
export function addressOf(id) {
  return `#/${encodeURIComponent(id)}`;
}

/** The conversation that an address names; "" for none. */
export function idIn(hash) {
  if (!hash.startsWith("#/")) return "";
  try {
    return decodeURIComponent(hash.slice(2));
  } catch {
    return "";
  }
}

function ago(when) {
  const seconds = (Date.now() - when.getTime()) / 1000;
  if (seconds > 30 * 86_400) return when.toLocaleDateString();
  const [unit, length] = UNITS.find(([, long]) => seconds >= long) ?? [null, 1];
  return unit === null ? "just now" : relative.format(-Math.round(seconds / length), unit);
}
