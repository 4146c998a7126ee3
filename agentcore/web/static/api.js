// The chat routes as functions; what they refuse and what gets lost on the way as errors.

/** The server said no: `kind` for programs, `message` for people. */
export class Refusal extends Error {
  constructor(status, kind, message) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

/** No answer came, or it broke off. Whether the server heard the request is unknown. */
export class Lost extends Error {}

export class Api {
  #base;
  #prefix;

  /** `base` is where the chat routes are, `prefix` what the ids of this user's conversations begin with. */
  constructor(base, prefix) {
    this.#base = base;
    this.#prefix = prefix;
  }

  /** An id that no other conversation has, and that tells when it began. */
  newId() {
    const when = new Date().toISOString().slice(0, 19).replaceAll("-", "").replaceAll(":", "").replace("T", "-");
    return `${this.#prefix}${when}-${randomText(4)}`;
  }

  /** A page of conversations, newest first: `{conversations, after}`. */
  async list(after) {
    const query = new URLSearchParams({ titles: "1", limit: "30", prefix: this.#prefix });
    if (after) query.set("after", after);
    return (await this.#ask("GET", `conversations?${query}`)).json();
  }

  /** A conversation: `{messages, pause, running, running_from, running_said}`. */
  async show(id, signal) {
    return (await this.#ask("GET", this.#path(id), { signal })).json();
  }

  async remove(id) {
    await this.#ask("DELETE", this.#path(id));
  }

  async cancel(id) {
    await this.#ask("POST", `${this.#path(id)}/cancel`);
  }

  /**
   * Begin a turn; gives the response, whose body is its events. Each request has a key: browsers send one again when
   * its connection breaks before an answer, and nothing is to be said twice for that.
   */
  async begin(id, message, signal) {
    return this.#ask("POST", `${this.#path(id)}/turns`, { body: { message }, signal, stream: true });
  }

  /** Go on with a turn that paused. */
  async resume(id, decisions, signal) {
    return this.#ask("POST", `${this.#path(id)}/resume`, { body: { decisions }, signal, stream: true });
  }

  /** Join the running turn after an event (`run:number`), or from its beginning; null if there is none to join. */
  async join(id, after, signal) {
    const headers = after ? { "Last-Event-ID": after } : {};
    const response = await this.#ask("GET", `${this.#path(id)}/events`, { signal, headers, stream: true });
    return response.status === 204 ? null : response;
  }

  #path(id) {
    return `conversations/${encodeURIComponent(id)}`;
  }

  async #ask(method, path, { body, signal, headers = {}, stream = false } = {}) {
    const request = { method, signal, headers: { ...headers }, cache: "no-store", redirect: "error" };
    if (stream) request.headers["Accept"] = "text/event-stream";
    if (body !== undefined) {
      request.body = JSON.stringify(body);
      request.headers["Content-Type"] = "application/json";
      request.headers["Idempotency-Key"] = randomText(16);
    }
    let response;
    try {
      response = await fetch(this.#base + path, request);
    } catch (error) {
      throw signal?.aborted ? error : new Lost("The server cannot be reached.", { cause: error });
    }
    if (response.ok) return response;
    throw await refusalOf(response);
  }
}

function randomText(bytes) {
  const random = crypto.getRandomValues(new Uint8Array(bytes));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function refusalOf(response) {
  const text = await response.text().catch(() => "");
  try {
    const { kind, message } = JSON.parse(text).error;
    return new Refusal(response.status, String(kind), String(message));
  } catch {
    // Not the routes' own answer: a proxy's, or that of whoever guards the door.
    const words = response.headers.get("content-type")?.startsWith("text/plain") ? text.trim().slice(0, 300) : "";
    return new Refusal(response.status, "http", words || `The server answered with status ${response.status}.`);
  }
}
