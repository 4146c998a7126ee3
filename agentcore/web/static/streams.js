// The events of a turn, over as many connections as it takes.

import { Lost } from "./api.js";

const FIRST_WAIT = 250;
const LONGEST_WAIT = 8000;

/**
 * The events of a turn up to its `result` or `error`, as `{id, event, data}`. A connection that breaks is made again,
 * where it broke; `gone` comes last if there is nothing to join any more.
 *
 * `open` makes the first connection, `rejoin` one after an event's id ("" for the beginning), null when there is none.
 * `connected` is told when the connection is lost (false) and when it is back (true).
 */
export async function* follow({ open, rejoin, signal, connected }) {
  let response = await open();
  let last = "";
  let wait = FIRST_WAIT;
  while (response !== null) {
    try {
      for await (const sent of sentEvents(response)) {
        wait = FIRST_WAIT;
        if (sent.id) last = sent.id;
        yield sent;
        if (sent.event === "result" || sent.event === "error") return;
      }
    } catch (error) {
      if (signal.aborted || !(error instanceof Lost)) throw error;
    }
    connected(false);
    response = undefined;
    while (response === undefined) {
      await after(wait, signal);
      wait = Math.min(2 * wait, LONGEST_WAIT);
      try {
        response = await rejoin(last);
      } catch (error) {
        if (signal.aborted || !(error instanceof Lost)) throw error;
      }
    }
    connected(true);
  }
  yield { id: "", event: "gone", data: null };
}

/** The server-sent events of a response as they come; the data of each is JSON. */
export async function* sentEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      let read;
      try {
        read = await reader.read();
      } catch (error) {
        throw new Lost("The connection broke.", { cause: error });
      }
      if (read.done) return;
      const blocks = (rest + read.value).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const sent = sentEvent(block);
        if (sent !== null) yield sent;
      }
    }
  } finally {
    await reader.cancel().catch(() => {}); // it may be broken already
  }
}

function sentEvent(block) {
  const fields = { id: "", event: "message" };
  const data = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue; // a comment keeps the connection alive
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else fields[name] = value;
  }
  return data.length ? { id: fields.id, event: fields.event, data: JSON.parse(data.join("\n")) } : null;
}

/** Wait, but no longer than until the network is back. */
function after(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const done = (settle, value) => {
      clearTimeout(timer);
      window.removeEventListener("online", early);
      signal.removeEventListener("abort", stopped);
      settle(value);
    };
    const early = () => done(resolve);
    const stopped = () => done(reject, signal.reason);
    const timer = setTimeout(early, milliseconds);
    window.addEventListener("online", early);
    signal.addEventListener("abort", stopped);
    if (signal.aborted) stopped();
  });
}
