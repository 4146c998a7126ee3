// For those who listen: the answer sentence by sentence, not piece by piece, and what happens around it.

const KEPT = 30;

export class Announcer {
  #rest = "";

  /** `region` is a live region that is heard and not seen. */
  constructor(region) {
    this.region = region;
  }

  /** Say this at once. */
  say(words) {
    const line = document.createElement("p");
    line.textContent = words;
    this.region.append(line);
    while (this.region.childNodes.length > KEPT) this.region.firstChild.remove();
  }

  /** A piece of the answer: said when the sentence or line is whole. */
  piece(text) {
    this.#rest += text;
    const end = Math.max(this.#rest.lastIndexOf("\n"), ...[". ", "! ", "? ", ": "].map((at) => this.#rest.lastIndexOf(at)));
    if (end < 0) return;
    this.#saySpoken(this.#rest.slice(0, end + 1));
    this.#rest = this.#rest.slice(end + 1);
  }

  /** The answer is at its end: say what is left of it. */
  flush() {
    this.#saySpoken(this.#rest);
    this.#rest = "";
  }

  #saySpoken(text) {
    const words = text.replace(/[*_`#|>~]+/g, " ").replace(/\s+/g, " ").trim(); // marks are for the eye
    if (words) this.say(words);
  }
}
