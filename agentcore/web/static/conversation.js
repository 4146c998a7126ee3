// The open conversation: its turns, the one that runs, and what may be done with it.

import { Lost } from "./api.js";
import { PauseView } from "./decisions.js";
import { follow } from "./streams.js";
import { recordedTurns, TurnView } from "./turns.js";

export class ConversationView {
  #api;
  #log;
  #announcer;
  #changed;
  #opened = null; // aborts what reads for the conversation that is open
  #reading = null; // the reader of the running turn
  #turns = [];
  #pause = null;

  /**
   * `log` holds the turns. `changed` is called when a turn begins, ends or pauses; `handBack` with a text that was not
   * sent after all.
   */
  constructor({ api, log, announcer, changed, handBack }) {
    this.#api = api;
    this.#log = log;
    this.#announcer = announcer;
    this.#changed = changed;
    this.handBack = handBack;
    this.id = "";
  }

  get isRunning() {
    return this.#reading !== null;
  }

  /** What it began with, on one line; "" while there is nothing. */
  get title() {
    return this.#turns[0]?.words ?? "";
  }

  get isEmpty() {
    return this.#turns.length === 0;
  }

  /** Where the focus belongs when something waits for the user; null if nothing does. */
  get waiting() {
    return this.#pause?.heading ?? null;
  }

  /** Show a new conversation, which the server need not hear of yet. */
  begin(id) {
    this.#leave(id);
    this.#show([]);
    this.#changed();
  }

  /** Show what the record has, and join the turn that runs. */
  async open(id) {
    this.#leave(id);
    this.#log.setAttribute("aria-busy", "true");
    this.#changed();
    const { signal } = this.#opened;
    let shown;
    try {
      shown = await this.#api.show(id, signal);
    } catch (error) {
      if (signal.aborted) return;
      this.#show([]);
      const turn = this.#add(new TurnView());
      turn.notice(error.message, { alarm: true, actions: [["Try again", () => this.open(id)]] });
      this.#changed();
      return;
    } finally {
      if (!signal.aborted) this.#log.removeAttribute("aria-busy");
    }
    const past = shown.running === null ? shown.messages : shown.messages.slice(0, shown.running_from);
    this.#show(recordedTurns(past));
    if (shown.running !== null) {
      const said = shown.running_said;
      const turn = said.length || this.isEmpty ? this.#add(new TurnView()) : this.#turns.at(-1);
      for (const message of said) if (message.role === "user") turn.said(message);
      this.#read(turn, (reading) => this.#api.join(id, `${shown.running}:0`, reading));
    } else if (shown.pause !== null) {
      this.#waitFor(shown.pause, this.#turns.at(-1) ?? this.#add(new TurnView()));
    }
    this.#changed();
  }

  /** Say something: a new turn. */
  say(text) {
    const { id } = this;
    this.#giveUpPause();
    const turn = this.#add(new TurnView());
    turn.said({ content: text });
    this.#read(turn, (signal) => this.#api.begin(id, text, signal), {
      again: () => {
        turn.element.remove();
        this.#turns = this.#turns.filter((one) => one !== turn);
        this.say(text);
      },
      text,
    });
  }

  /** Stop the running turn: what was delivered stays. */
  async stop() {
    const { id } = this;
    const turn = this.#turns.at(-1);
    try {
      await this.#api.cancel(id);
    } catch (error) {
      if (id === this.id && this.isRunning) turn.notice(`It could not be stopped: ${error.message}`, { alarm: true });
    }
  }

  #leave(id) {
    this.#opened?.abort();
    this.#opened = new AbortController();
    this.#reading = null;
    this.#pause = null;
    this.id = id;
  }

  #show(turns) {
    this.#turns = turns;
    this.#log.replaceChildren(...turns.map((turn) => turn.element));
  }

  #add(turn) {
    this.#turns.push(turn);
    this.#log.append(turn.element);
    return turn;
  }

  async #read(turn, open, { again = null, text = "" } = {}) {
    const { id } = this;
    const { signal } = this.#opened;
    const reading = {};
    this.#reading = reading;
    this.#changed();
    turn.notice(null);
    turn.element.dataset.running = "";
    const connected = (there) => {
      turn.notice(there ? null : "The connection is lost. Trying to get it back…");
      if (!there) this.#announcer.say("The connection is lost.");
    };
    const done = () => {
      delete turn.element.dataset.running;
      if (this.#reading === reading) this.#reading = null;
    };
    try {
      const rejoin = (after) => this.#api.join(id, after, signal);
      for await (const { event, data } of follow({ open: () => open(signal), rejoin, signal, connected })) {
        if (signal.aborted) return;
        if (event === "result") {
          done();
          this.#ended(turn, data);
        } else if (event === "error") {
          done();
          this.#failed(turn, data.message, again);
        } else if (event === "gone") {
          done();
          await this.open(id); // the record has what came of it
          return;
        } else {
          turn.take(data);
          if (event === "text") this.#announcer.piece(data.text);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      done();
      if (error instanceof Undecided) {
        await this.#undecided(error);
      } else if (error instanceof Lost && text) {
        // It may have arrived: only the record knows, so that is looked at before it is said again.
        turn.finish();
        turn.notice(`${error.message} It is unknown whether this was heard.`, {
          alarm: true,
          actions: [["Look again", () => this.#lookAgain(text)]],
        });
      } else {
        this.#failed(turn, error.message, again);
      }
    } finally {
      done();
      if (!signal.aborted) this.#changed();
    }
  }

  async #lookAgain(text) {
    const { id } = this;
    await this.open(id);
    if (id !== this.id || this.isRunning) return;
    const last = this.#log.querySelector(".turn:last-child .said pre:last-child");
    if (this.#log.querySelector(".alarm") === null && last?.textContent !== text) this.handBack(text);
  }

  #ended(turn, result) {
    this.#announcer.flush();
    if (turn.missed) {
      this.#openAgain(result);
      return;
    }
    // What the user left undecided is answered in their new turn, before what they said.
    this.#turns.at(-2)?.settle(result.messages.slice(0, Math.max(0, result.messages.findIndex(isUsers))));
    const words = turn.ended(result);
    if (result.pause !== null) this.#waitFor(result.pause, turn);
    else this.#announcer.say(words || "The answer is complete.");
  }

  /** Show the record, which has what the stream left out, and how the turn ended. */
  async #openAgain(result) {
    const { id } = this;
    await this.open(id);
    if (id === this.id && !this.isRunning) this.#turns.at(-1)?.ended({ ...result, messages: [] });
  }

  #failed(turn, words, again) {
    this.#announcer.flush();
    turn.finish();
    const { id } = this;
    turn.notice(words, { alarm: true, actions: [again ? ["Try again", again] : ["Look again", () => this.open(id)]] });
  }

  #waitFor(pause, turn) {
    turn.waits(pause);
    this.#pause = new PauseView(pause, (made) => this.#decide(turn, made));
    turn.append(this.#pause.element);
    this.#announcer.say(`${pause.calls.map(({ call }) => call.name).join(", ")} waits for your decision.`);
  }

  #decide(turn, made) {
    const { id } = this;
    const pause = this.#pause;
    const decisions = made.map(({ decision }) => decision);
    this.#read(turn, async (signal) => {
      let response;
      try {
        response = await this.#api.resume(id, decisions, signal);
      } catch (error) {
        if (signal.aborted) throw error;
        throw new Undecided(error.message, { cause: error });
      }
      // Taken: the cards have had their time.
      pause.element.remove();
      if (this.#pause === pause) this.#pause = null;
      for (const { decision, words } of made) turn.decided(decision.call_id, words);
      this.#changed();
      return response;
    });
  }

  /** The decisions were not taken. Where something else is there by now, that is shown. */
  async #undecided(error) {
    const { id } = this;
    if (!(error.cause instanceof Lost) && error.cause.status !== 409) {
      this.#pause?.failed(error.message);
      return;
    }
    await this.open(id);
    if (id !== this.id) return;
    this.#announcer.say(error.message);
    if (this.#pause !== null) this.#pause.failed(error.message);
    else if (!this.isRunning && !this.#log.querySelector(".alarm")) {
      this.#turns.at(-1)?.notice(error.message, { alarm: true });
    }
  }

  #giveUpPause() {
    if (this.#pause === null) return;
    this.#pause.element.remove();
    this.#pause = null;
    this.#turns.at(-1)?.element.querySelectorAll('.call[data-state="waiting"] .call-state').forEach((state) => {
      state.textContent = "given up";
    });
  }
}

function isUsers(message) {
  return message.role === "user";
}

/** Decisions were not taken; `cause` says why. */
class Undecided extends Error {}
